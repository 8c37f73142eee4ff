"""Ctrl-C anywhere in the writes of a run that continues: no acknowledged step is lost or repeated, nothing hangs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest

from holdfast import sync
from rounds import TIMES

WRITE_PATH = ("claim.py", "ledger.py", "committer.py", "writer.py", "landing.py", "tickets.py", "steps.py")
"""The files in which the interrupt strikes."""


@contextmanager
def struck(point: int) -> Iterator[list[str]]:
    """Ctrl-C where Python looks for signals: as a function is entered, or a built-in one returns. Counted from 1."""
    passed: list[str] = []

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event in {"call", "c_return"} and frame.f_code.co_filename.endswith(WRITE_PATH):
            passed.append(f"{frame.f_code.co_qualname} {event}")
            if len(passed) == point:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        yield passed
    finally:
        sys.setprofile(None)


def continued(store: sync.Store, pin: str, point: int, done: list[str]) -> tuple[list[str], bool]:
    """The steps that were acknowledged; and True if the interrupt struck."""
    acknowledged: list[str] = []
    passed: list[str] = []
    with suppress(KeyboardInterrupt, sync.OutcomeUnknown), store.run("t") as run:
        with suppress(KeyboardInterrupt), struck(point) as passed:
            for key in ("a", "b"):
                run.step(key, done.append, key)
                acknowledged.append(key)
        for key in ("c", "d"):
            run.step(key, done.append, key)
            acknowledged.append(key)
        store.pin(pin)  # the next write meets another head
        run.step("e", done.append, "e")
        acknowledged.append("e")
    return acknowledged, len(passed) == point


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_ctrl_c_anywhere_in_a_write_loses_and_repeats_no_acknowledged_step() -> None:
    point = 0
    while True:
        point += 4 if TIMES == 1 else 1
        with sync.MemoryStore() as store:
            pin, done = store.save("t", {"n": 0}).id, list[str]()
            acknowledged, has_struck = continued(store, pin, point, done)
            if not has_struck:
                assert point > 100, "the interrupt strikes nowhere"
                return
            with store.run("t", wait=0) as run:
                for key in acknowledged:
                    run.step(key, done.append, key)
            assert {key: done.count(key) for key in acknowledged} == dict.fromkeys(acknowledged, 1), point
            assert store.verify().ok
