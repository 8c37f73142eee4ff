"""Killed worker processes exceed no limit: at most 5 threads at once, 2 of a tenant, and 24 beginnings in a second."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.records.identity import namespace_prefix
from holdfast.stores.listed_agenda import agenda_of
from rounds import rounds
from runs.fleet import Fleet

pytestmark = [pytest.mark.processes, pytest.mark.faults]
APP = Path(__file__).parent / "limited_app.py"
FAIR = holdfast.Queue("limited", fair_by="tenant")
TENANTS = ("a", "b", "c", "d")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, str(tmp_path / "fleet.db"), str(APP))
    yield made
    made.close()


def begun(fleet: Fleet) -> list[float]:
    """Return when each thread began for the first time, in order."""
    first: dict[str, float] = {}
    for line in fleet.executions():
        moment, name = line.split()
        first.setdefault(name, float(moment))
    return sorted(first.values())


def most_in_a_second(moments: list[float]) -> int:
    return max(sum(start <= moment < start + 1 for moment in moments) for start in moments)


def watch(fleet: Fleet, threads: int, kills: int, **environment: str) -> tuple[int, int, int]:
    """Run threads with workers of which some are killed.

    Return the most that were held at once, of all and of a lane, and the most that began in a second.
    """
    agenda, held, in_lane = agenda_of(fleet.store._store._backend), 0, 0
    for number in range(threads):
        labels = {"tenant": TENANTS[number % len(TENANTS)]}
        fleet.store.submit("limited", f"t-{number}", (f"t-{number}",), queue=FAIR, labels=labels)
    for _ in range(3):
        fleet.start(**environment)  # type: ignore[arg-type]

    def is_done() -> bool:
        nonlocal held, in_lane
        lanes = Counter(entry.lane for entry in agenda.entries(namespace_prefix("")).values() if entry.held)
        held, in_lane = max(held, lanes.total()), max([in_lane, *lanes.values()])
        killed = len(fleet.workers) - 3
        if killed < kills and len(fleet.executions()) > (killed + 1) * threads // (kills + 1):
            fleet.workers[killed].kill()
            fleet.start(**environment)  # type: ignore[arg-type]
        return fleet.store.counts() == {"complete": threads}

    fleet.until(is_done)
    return held, in_lane, most_in_a_second(begun(fleet))


def test_limits_are_kept(fleet: Fleet) -> None:
    held, in_lane, beginnings = watch(fleet, rounds(40, 200), rounds(3, 12))
    assert held <= 5
    assert in_lane <= 2
    assert beginnings <= 24 + 5, "what was granted may begin a moment later: at most as many as are held"


def test_a_queue_without_limits_exceeds_them(fleet: Fleet) -> None:
    held, in_lane, beginnings = watch(fleet, 60, 1, limits="none")
    assert held > 5
    assert in_lane > 2
    assert beginnings > 24 + 5
