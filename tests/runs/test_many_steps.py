"""A long thread: resumed, it executes nothing again."""

from pathlib import Path

import pytest

from holdfast.stores.backend import Backend
from holdfast.testing.handles import blocking_store
from kinds import new_place

COUNT = 10_000


@pytest.mark.large
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("memory", marks=pytest.mark.slow), pytest.param("file", marks=pytest.mark.slow)]
)
def test_ten_thousand_steps_are_all_remembered(kind: str, tmp_path: Path) -> None:
    place, calls = new_place(kind, tmp_path), list[int]()

    def work(number: int) -> int:
        calls.append(number)
        return number * 2

    def live(backend: Backend, count: int) -> None:
        with blocking_store(backend) as store, store.run("t") as run:
            for number in range(count):
                assert run.step(f"step {number}", work, number) == number * 2

    live(place.open(), COUNT)
    assert len(calls) == COUNT
    live(place.open(), COUNT + 1)
    assert calls == list(range(COUNT + 1))
