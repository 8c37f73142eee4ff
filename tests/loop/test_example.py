"""The research example: killed at every line that the outside sees, and resumed."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast import sync
from patience import GIVE_UP_SECONDS

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "research_loop"
MOMENTS = [
    *("plan after 0", "search kelp growth", "search kelp holdfast", "reflect on 1", "plan after 1"),
    *("search kelp storms", "reflect on 2", "reflect on 3", "send"),
]


def research(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLE / "research.py"), *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == (-9 if arguments else 0), done.stderr
    return done.stdout.strip()


@pytest.mark.processes
@pytest.mark.parametrize(
    "moment",
    [pytest.param(each, marks=[] if number % 2 else [pytest.mark.slow]) for number, each in enumerate(MOMENTS)],
)
def test_the_research_loop_is_killed_and_resumed(moment: str, tmp_path: Path) -> None:
    assert research(tmp_path, "--crash", moment) == ""
    printed = research(tmp_path)
    assert printed in (EXAMPLE / "README.md").read_text()
    lines = (tmp_path / "outside.log").read_text().splitlines()
    repeated = {line for line, count in Counter(lines).items() if count > 1}
    assert all(line.startswith((moment, "search kelp")) for line in repeated)
    sent = [line for line in lines if line.startswith("send")]
    assert len(set(sent)) == 1  # once more at most, with the same key
    assert lines[-len(sent) :] == sent
    assert research(tmp_path) == printed
    assert len((tmp_path / "outside.log").read_text().splitlines()) == len(lines)


@pytest.mark.processes
def test_the_plan_of_a_killed_research_is_shown(tmp_path: Path) -> None:
    research(tmp_path, "--crash", "search kelp storms")
    with sync.open(tmp_path / "research.db") as store:
        newest = store.latest("kelp")
    assert newest is not None
    assert (newest.state["state"], newest.state["plan"]) == ("EXECUTING", ["kelp storms", "write"])
