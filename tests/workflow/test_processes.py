"""Workflows of real processes: killed with SIGKILL, started again, and started twice at once."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kinds import SHARED, open_store, url_of
from patience import GIVE_UP_SECONDS
from workflow.workers import NAME

SCRIPT = Path(__file__).with_name("workers.py")
SQUARES = [{number: number * number for number in range(1, 11)}]


def command(url: str, log: Path, fatal: int, *more: str) -> list[str]:
    return [sys.executable, "-W", "error", str(SCRIPT), url, str(log), str(fatal), *more]


def run(url: str, log: Path, fatal: int) -> str:
    done = subprocess.run(
        command(url, log, fatal), capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
    )
    assert done.returncode == (-9 if fatal else 0), done.stderr
    return done.stdout


@pytest.mark.processes
@pytest.mark.parametrize("kind", SHARED)
def test_the_complete_example_killed_at_item_six_computes_ten_items_and_the_one_in_flight(
    kind: str, tmp_path: Path
) -> None:
    url, log = url_of(kind, tmp_path), tmp_path / "log"
    run(url, log, 6)
    printed = run(url, log, 0)
    assert printed == f"Resuming from iteration 6\n{SQUARES}\n"
    computed = [int(line.split()[1]) for line in log.read_text().splitlines()]
    assert computed == [1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10]
    assert run(url, log, 0) == f"Resuming from iteration 11\n{SQUARES}\n"
    assert len(log.read_text().splitlines()) == 11
    with open_store(kind, tmp_path) as store:
        assert store.verify().ok
        assert [info.labels for info in store.threads()] == [{"workflow": NAME}]


@pytest.mark.processes
def test_of_two_processes_that_resume_one_thread_one_proceeds(tmp_path: Path) -> None:
    url, log = url_of("sqlite", tmp_path), tmp_path / "log"
    both = [
        subprocess.Popen(command(url, log, 0, "t", "40"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [each.communicate(timeout=GIVE_UP_SECONDS) for each in both]
    assert [each.returncode for each in both] == [0, 0], printed
    expected = [{number: number * number for number in range(1, 41)}]
    assert [out for out, _ in printed] == [f"{expected}\n"] * 2
    computed = Counter(line.split()[1] for line in log.read_text().splitlines())
    assert computed == Counter(str(number) for number in range(1, 41))
    assert len({line.split()[0] for line in log.read_text().splitlines()}) == 1
