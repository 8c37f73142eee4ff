"""Every parser of stored or foreign bytes against inputs near the right ones: errors of ours, and nothing else happens.

200,000 inputs in an ordinary run, 5,000,000 in `make faults`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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


Fuzz = Callable[[str, int], list[str]]


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Fuzz]:
    """Parse that many inputs with the parser of that name, in a process of its own; returns what went wrong."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "fuzz.child"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        requests, replies = parent.stdin, parent.stdout

        def run(name: str, count: int) -> list[str]:
            print(json.dumps([name, 0, count]), file=requests, flush=True)
            found, code = replies.readline(), replies.readline().strip()
            assert code == "0", f"{name}: the process ended with {code or 'its parent'}; standard error says why"
            failures: list[str] = json.loads(found)["failures"]
            return failures

        yield run
        requests.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_parser_meets_no_input_that_it_cannot_refuse(fuzz: Fuzz, name: str) -> None:
    assert fuzz(name, INPUTS * NAMES[name] // sum(NAMES.values())) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_parser_is_found(fuzz: Fuzz, name: str) -> None:
    assert fuzz(name, 1)
