"""Ctrl-C anywhere in a turn or a step: the program may catch it and go on, or come again; nothing hangs or doubles."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast import sync
from holdfast.records.rows import Swap
from holdfast.stores.memory import MemoryBackend
from rounds import TIMES

MOST_CALLS = 400


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Ctrl-C as the given function within is entered, counted from 1. Gives the names of all up to there."""
    entered: list[str] = []

    def trace(frame: FrameType, event: str, _argument: Any) -> None:
        if "holdfast" in frame.f_code.co_filename and event == "call":
            entered.append(frame.f_code.co_qualname)
            if len(entered) == number:
                raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield entered
    finally:
        sys.settrace(before)


def value(made: list[int]) -> str:
    """What is to be done once."""
    made.append(1)
    return "value"


def turn(store: sync.Store, made: list[int], number: int) -> bool:
    """One turn under Ctrl-C, and then again in the same session; True if there were fewer calls than that."""
    with (
        suppress(KeyboardInterrupt, sync.OutcomeUnknown),
        sync.Orchestrator("r", "p", store, max_turns=2).session("t") as session,
    ):
        first = session.run_turn(lambda: "before", idempotency_key="before")
        assert first.value == "before"
        try:
            with interrupted_at(number) as entered:
                session.run_turn(partial(value, made), idempotency_key="key")
        except KeyboardInterrupt:
            assert session.run_turn(partial(value, made), idempotency_key="key").value == "value"
            return False
        return len(entered) < number
    return False


def step(store: sync.Store, made: list[int], number: int) -> bool:
    """The same for a step of a run."""
    with suppress(KeyboardInterrupt, sync.OutcomeUnknown), store.run("t") as run:
        run.step("before", lambda: "before")
        try:
            with interrupted_at(number) as entered:
                run.step("key", partial(value, made))
        except KeyboardInterrupt:
            assert run.step("key", partial(value, made)) == "value"
            return False
        return len(entered) < number
    return False


def recorded(store: sync.Store) -> int:
    """How often the thread has what was to be done once."""
    return sum("key" in {info.metadata.get("turn"), info.metadata.get("step")} for info in store.history("t"))


@pytest.mark.faults
@pytest.mark.parametrize("once", [turn, step])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # struck before it was begun
def test_ctrl_c_as_any_function_is_entered(
    once: Callable[[sync.Store, list[int], int], bool], kind: str, tmp_path: Path
) -> None:
    stride = 3 if kind == "sqlite" and TIMES == 1 else 1
    for number in range(1, MOST_CALLS, stride):
        made: list[int] = []
        path = f"{tmp_path}/{number}.db"
        with sync.MemoryStore() if kind == "memory" else sync.open(path, durability="process") as store:
            is_over = copy_context().run(once, store, made, number)
            again: list[int] = []
            assert once(store, again, MOST_CALLS), "the next program comes to its end"
            assert recorded(store) == 1, number
            assert len(made) + len(again) <= 2, number
            assert store.verify().ok
        if is_over:
            return
    raise AssertionError("there are more calls than were tried")


class Interrupted(MemoryBackend):
    """Ctrl-C as a swap has been made, once it is told to."""

    armed = False

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        outcomes = super().swap(swaps, wait=wait)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return outcomes


@pytest.mark.parametrize("once", [turn, step])
def test_ctrl_c_in_a_write_is_told_once_and_then_what_to_do(once: Any) -> None:
    backend, calls = Interrupted(), list[int]()

    def act(again: Callable[[], Any]) -> None:
        backend.armed = True
        with pytest.raises(KeyboardInterrupt):
            again()
        for _ in range(3):
            with pytest.raises(sync.OutcomeUnknown, match="open the thread again"):
                again()

    def enter(store: sync.Store) -> Any:
        return sync.Orchestrator("r", "p", store).session("t") if once is turn else store.run("t")

    def call(entered: Any) -> Any:
        if once is turn:
            return entered.run_turn(partial(value, calls), idempotency_key="key").value
        return entered.step("key", partial(value, calls))

    with sync.Store(backend) as store:
        with suppress(sync.OutcomeUnknown), enter(store) as entered:
            act(partial(call, entered))
        with enter(store) as entered:
            assert call(entered) == "value"
    assert calls == [1]


UNGUARDED = {"RunBlock.__exit__", "RunBlock.leave", "run_blocking"}
"""The way out of the block of a run: what strikes there leaves it as a kill would."""


def run_once(store: sync.Store) -> None:
    with store.run("t") as run:
        run.step("key", str)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_ctrl_c_while_a_run_begins_or_ends_leaves_no_lease() -> None:
    for number in range(1, 10 * MOST_CALLS):
        with sync.MemoryStore() as store:
            store.save("t", {})
            is_over = False
            with suppress(KeyboardInterrupt), interrupted_at(number) as entered:
                copy_context().run(run_once, store)
                is_over = True
            assert store.thread("t").lease is None or entered[-1] in UNGUARDED, entered[-9:]
        if is_over:
            return
    raise AssertionError("there are more calls than were tried")


def asked(store: sync.Store, at_the_end: Callable[[], object] = int) -> None:
    """A session that uses an answer: that it does is written as it is left."""
    with sync.Orchestrator("r", "p", store).session("t") as session:
        session.pause_for_input("go on?")
        at_the_end()


def test_ctrl_c_as_a_session_is_left_is_raised_and_not_what_it_did_to_a_write() -> None:
    """`except Exception` caught it: it came as the error of the release that followed."""
    backend = Interrupted()
    with sync.Store(backend) as store:
        with pytest.raises(sync.Suspended) as raised:
            asked(store)
        store.answer(raised.value.requests[0].id, value=1)
        with pytest.raises(KeyboardInterrupt):
            asked(store, partial(setattr, backend, "armed", True))
        with store.run("t", wait=0):
            pass
