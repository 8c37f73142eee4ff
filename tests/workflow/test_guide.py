"""The complete example of the guide, as it is printed there: killed in the middle, and started again."""

import subprocess
import sys
from pathlib import Path

import pytest

from patience import GIVE_UP_SECONDS

GUIDE = Path(__file__).parent.parent.parent / "docs" / "workflow.md"
RESULTS = f"Results: {[{number: number * number for number in range(1, 11)}]}\n"
KILLER = """
import asyncio, functools, os, signal, sys
import squares

compute = squares.WorkerExecutor.compute

@functools.wraps(compute)
async def fatal(self, task, ctx):
    with open("log", "a") as log:
        log.write(f"{task.remaining[0]}\\n")
    if str(task.remaining[0]) == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    await compute(self, task, ctx)

squares.WorkerExecutor.compute = fatal
asyncio.run(squares.main())
"""


def squares(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == (-9 if arguments[-1] == "6" else 0), done.stderr
    return done.stdout


@pytest.mark.processes
def test_the_complete_example_of_the_guide_is_killed_at_item_six_and_resumed(tmp_path: Path) -> None:
    code = GUIDE.read_text().partition("<!-- saved as squares.py -->\n```python\n")[2].partition("```\n")[0]
    (tmp_path / "squares.py").write_text(code)
    squares(tmp_path, "-c", KILLER, "6")
    assert squares(tmp_path, "-c", KILLER, "0") == f"Resuming from iteration 6\n{RESULTS}"
    assert (tmp_path / "log").read_text().split() == ["1", "2", "3", "4", "5", "6", "6", "7", "8", "9", "10"]
    assert squares(tmp_path, "squares.py") == f"Resuming from iteration 11\n{RESULTS}"
