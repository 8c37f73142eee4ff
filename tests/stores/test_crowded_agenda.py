"""Crowds in an agenda: what nobody here serves, and what one lane has queued, delay nobody else."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.records.words import Durability
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.stores.sqlite_agenda import Taking
from holdfast.testing.conformance.agendas import OTHER, PREFIX, ROUTE, queued
from holdfast.testing.conformance.samples import Line, key, rows
from rounds import size

BATCH = 500


@pytest.fixture(params=["memory", "sqlite"])
def backend(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    is_memory = request.param == "memory"
    opened: Any = MemoryBackend() if is_memory else SQLiteBackend(str(tmp_path / "crowd.db"), Durability.PROCESS)
    opened.open()
    yield opened
    opened.close()


def fill(backend: Any, name: str, count: int, **fields: Any) -> None:
    lines = [(number, Line(backend, key(f"{name} {number}"))) for number in range(count)]
    swaps = [line.swap(queued(updated_at=1_000 + number, **fields), rows(1)) for number, line in lines]
    for start in range(0, count, BATCH):
        assert all(backend.swap(swaps[start : start + BATCH]))


def test_what_nobody_here_serves_stands_in_no_way(backend: Any) -> None:
    fill(backend, "other", size(1_000, 10_000), route=OTHER, priority=2)
    fill(backend, "mine", 3)
    taken = backend.take(PREFIX, "q", [ROUTE], 10)
    assert len(taken.entries) == 3
    assert taken.next_due > backend.now(), "what others serve is no reason to look again"


def served_lanes(backend: Any, lanes: int, places: int) -> Counter[bytes]:
    """Take as often as it needs to serve each lane once; return how many each lane got."""
    served, after = Counter[bytes](), b""
    for _ in range(-(-lanes // places)):
        taken = backend.take(PREFIX, "q", [ROUTE], places, after)
        served.update(due.entry.lane for due in taken.entries)
        after = taken.last_lane
    return served


def test_a_lane_with_a_crowd_gets_one_in_each_turn_of_all_lanes(backend: Any) -> None:
    lanes, places = size(100, 1_000), 10
    fill(backend, "crowd", size(1_000, 10_000), lane=b"0050")
    for number in range(lanes):
        if number != 50:
            fill(backend, f"lane {number}", 1, lane=b"%04d" % number)
    served = served_lanes(backend, lanes, places)
    assert served == {b"%04d" % number: 1 for number in range(lanes)}


def test_an_agenda_without_turns_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take: Any = MemoryBackend.take

    def unfair(self: MemoryBackend, *place: Any) -> Any:
        return take(self, *place[:4], b"")

    monkeypatch.setattr(MemoryBackend, "take", unfair)
    with pytest.raises(AssertionError):
        test_a_lane_with_a_crowd_gets_one_in_each_turn_of_all_lanes(MemoryBackend())


def test_a_look_in_sqlite_does_not_read_the_crowd_of_a_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SQLiteBackend(str(tmp_path / "crowd.db"), Durability.PROCESS)
    opened.open()
    steps = 0

    def counted(take: Callable[[Taking], Any]) -> Callable[[Taking], Any]:
        def counting(self: Taking) -> Any:
            def step() -> None:
                nonlocal steps
                steps += 1

            self._connection.set_progress_handler(step, 1)
            try:
                return take(self)
            finally:
                self._connection.set_progress_handler(None, 1)

        return counting

    monkeypatch.setattr(Taking, "take", counted(Taking.take))

    def cost() -> int:
        nonlocal steps
        steps = 0
        assert len(opened.take(PREFIX, "q", [ROUTE], 4).entries) == 4
        return steps

    for lane in (b"a", b"b", b"c"):
        fill(opened, f"lane {lane!r}", 20, lane=lane)
    before = cost()
    fill(opened, "crowd", 2_000, lane=b"b")
    assert cost() < 2 * before
    opened.close()
