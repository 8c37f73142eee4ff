"""Servers as real processes: several start at once on what a dead one left, and each task is resumed once."""

import time
from functools import partial
from pathlib import Path

import pytest

from kinds import open_store, shared_kinds, url_of
from rounds import TIMES
from scripts import ended, start

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("servers.py")


started = partial(start, SCRIPT)


@pytest.mark.parametrize(
    "kind",
    [
        *shared_kinds("sqlite", "postgres"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("file", "redis", "s3")),
    ],
)
def test_four_servers_that_start_at_once_resume_each_of_many_abandoned_tasks_once(kind: str, tmp_path: Path) -> None:
    url, log, count = url_of(kind, tmp_path), tmp_path / "log", 60 if TIMES == 1 else 200
    assert ended(started(url, "abandon", log, count), -9) == ""
    servers = [started(url, "recover", log, time.time() + 3) for _ in range(4)]
    reports = [ended(server).split() for server in servers]
    assert sum(int(resumed) for resumed, _ in reports) == count
    assert {failed for _, failed in reports} == {"0"}
    assert sorted(log.read_text().split()) == sorted(f"task-{number}" for number in range(count))
    with open_store(kind, tmp_path) as store:
        assert store.counts() == {"idle": count}


def test_a_task_that_a_killed_process_held_is_resumed_at_once(disk_kind: str, tmp_path: Path) -> None:
    url, log = url_of(disk_kind, tmp_path), tmp_path / "log"
    ended(started(url, "die_at_work", log, 0), -9)
    assert ended(started(url, "recover", log, 0)) == "1 0"
    assert log.read_text() == "task-0\n"


def test_a_recorded_effect_is_not_repeated_though_three_processes_were_killed_after_it(
    disk_kind: str, tmp_path: Path
) -> None:
    """The first dies in `hold`, the others in the resume callback."""
    url, log = url_of(disk_kind, tmp_path), tmp_path / "log"
    for _ in range(3):
        ended(started(url, "refund_and_die", log, 0), -9)
    ended(started(url, "refund_and_die", log, 1))
    assert len(log.read_text().split()) == 1
    with open_store(disk_kind, tmp_path) as store:
        assert store.counts() == {}
