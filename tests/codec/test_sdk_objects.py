"""Objects of the OpenAI and Anthropic SDKs come back exactly: the tests of `sdk_objects.py`, in a process of their own.

The SDKs take seconds to import, and every worker of a test run would import them to collect those tests.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from patience import GIVE_UP_SECONDS

TESTS = Path(__file__).with_name("sdk_objects.py")


@pytest.mark.processes
def test_objects_of_the_sdks_come_back_exactly() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    assert "14 passed" in done.stdout
