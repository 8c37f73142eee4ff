"""Real worker processes on a SQLite file: killed, stopped, drained, and of two versions."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import GIVE_UP_SECONDS
from rounds import rounds
from runs.fleet import Fleet

pytestmark = [pytest.mark.processes, pytest.mark.faults]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, str(tmp_path / "fleet.db"))
    yield made
    made.close()


def test_killed_workers_lose_nothing_and_only_steps_in_flight_are_executed_again(fleet: Fleet) -> None:
    threads, kills = rounds(40, 100), rounds(4, 8)
    fleet.submit_many(threads)
    for _ in range(3):
        fleet.start()
    fleet.kill_at_random(threads, kills)
    fleet.check_all_ended(threads, most_repeated=kills * 10)  # ten run at once in each worker


def test_a_thread_that_kills_its_process_fails_and_takes_no_other_with_it(fleet: Fleet) -> None:
    """Threads that ran beside it have died as often as it has; but only it dies when each runs alone."""
    for number in range(6):
        fleet.submit(f"t-{number}", 1)
    fleet.store.submit("worker_app:deadly", "deadly", ())
    worker = fleet.start(step="0.4")

    def has_ended() -> bool:
        nonlocal worker
        if worker.poll() is not None:
            worker = fleet.start(step="0.4")
        return fleet.store.counts() == {"complete": 6, "failed": 1}

    fleet.until(has_ended)
    assert "died in each of 3 attempts" in str(fleet.store.outcome("deadly").error)


def test_a_killed_workers_thread_is_taken_over_before_its_lease_ends(fleet: Fleet) -> None:
    victim = fleet.start("--lease", "600", step="600")
    fleet.submit("t", 1)
    fleet.until(fleet.executions)
    fleet.start("--lease", "600")
    victim.kill()
    victim.wait()
    fleet.until(lambda: fleet.store.counts() == {"complete": 1})


def test_a_stopped_workers_thread_is_taken_over_and_its_late_write_is_refused(fleet: Fleet) -> None:
    victim = fleet.start(step="1.5")
    fleet.submit("t", 1)
    fleet.until(fleet.executions)
    victim.send_signal(signal.SIGSTOP)
    fleet.start()
    fleet.until(lambda: fleet.store.counts() == {"complete": 1})
    victim.send_signal(signal.SIGCONT)
    time.sleep(2)
    assert victim.poll() is None
    assert fleet.executions() == ["t 0", "t 0", "t by 1 for 1"]
    assert len(fleet.store.history("t").items) == 1


def test_a_drained_worker_hands_its_threads_over_at_once(fleet: Fleet) -> None:
    drained = fleet.start(step="0.3")
    for number in range(5):
        fleet.submit(f"t-{number}", 3)
    fleet.until(lambda: len(fleet.executions()) >= 5)
    drained.send_signal(signal.SIGTERM)
    assert drained.wait(GIVE_UP_SECONDS) == 0
    assert fleet.store.counts() == {"working": 5}
    assert all(fleet.store.thread(f"t-{number}").owner is None for number in range(5))
    fleet.start("--once")
    fleet.until(lambda: fleet.store.counts() == {"complete": 5})
    executed = Counter(line for line in fleet.executions() if " by " not in line)
    assert set(executed.values()) == {1}


@pytest.mark.parametrize("signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
def test_a_second_signal_abandons_what_does_not_end(fleet: Fleet, signals: tuple[signal.Signals, ...]) -> None:
    worker = fleet.start()
    fleet.store.submit("worker_app:stubborn", "t", (600,))
    fleet.until(fleet.executions)
    for number in signals:
        assert worker.poll() is None
        worker.send_signal(number)
        time.sleep(0.2)
    assert worker.wait(GIVE_UP_SECONDS) == 0
    info = fleet.store.thread("t")
    assert (info.status, info.owner) == ("working", None)


def test_versions_run_side_by_side_and_a_thread_stays_with_its_version(fleet: Fleet) -> None:
    fleet.start(version="1", step="0.2")
    fleet.submit("old", 8)
    fleet.until(fleet.executions)
    fleet.start("--once", version="2").wait(GIVE_UP_SECONDS)
    fleet.until(lambda: fleet.store.counts() == {"complete": 1})
    fleet.workers[0].kill()
    fleet.submit("new", 1)
    fleet.start("--once", version="2").wait(GIVE_UP_SECONDS)
    assert "old by 1 for 1" in fleet.executions()
    assert fleet.executions()[-1] == "new by 2 for 2"


def test_a_begun_thread_is_adopted_only_by_a_version_that_says_so(fleet: Fleet) -> None:
    first = fleet.start(version="1", step="0.2")
    fleet.submit("old", 8)
    fleet.until(fleet.executions)
    first.send_signal(signal.SIGTERM)
    first.wait(GIVE_UP_SECONDS)
    fleet.start("--once", version="2").wait(GIVE_UP_SECONDS)
    assert fleet.store.counts() == {"working": 1}
    assert [info.ready for info in fleet.store.queues()] == [1]
    fleet.start("--once", version="2", since="1").wait(GIVE_UP_SECONDS)
    assert fleet.executions()[-1] == "old by 2 for 1"
