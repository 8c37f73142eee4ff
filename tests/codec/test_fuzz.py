"""Hostile bytes in processes with little memory and little time: whatever they are, they give a value or our error."""

import subprocess
import sys
from pathlib import Path

import pytest

from patience import GIVE_UP_SECONDS

CHILD = Path(__file__).with_name("fuzz_child.py")
COUNT = 30


@pytest.mark.large
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
def test_no_input_takes_the_process_down_or_more_than_its_share(seed: int) -> None:
    """Also with a recursion limit that guards nothing."""
    command = [sys.executable, str(CHILD), str(seed), str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5 * GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
