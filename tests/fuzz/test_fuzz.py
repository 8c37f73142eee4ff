"""Every parser of stored or foreign bytes against inputs near the right ones: errors of ours, and nothing else happens.

200,000 inputs in an ordinary run, 5,000,000 in `make faults`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz.child import WRONG
from fuzz.targets import targets
from rounds import rounds

ROOT = Path(__file__).parent.parent
INPUTS = rounds(200_000, 250_000)
with targets() as every:
    NAMES = {name: target.share for name, target in every.items()}

pytestmark = pytest.mark.faults


def fuzz(name: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "fuzz.child", name, "0", str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, f"{name}: the process ended with {done.returncode}: {done.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_parser_meets_no_input_that_it_cannot_refuse(name: str) -> None:
    found = fuzz(name, INPUTS * NAMES[name] // sum(NAMES.values()))
    assert found["failures"] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_parser_is_found(name: str) -> None:
    assert fuzz(name, 1)["failures"]
