"""No wake-up is lost: whoever answers posts first and makes the entry due then; whoever releases looks after that.

One side is struck by the whole of the other before each of its calls to the store, and both race on threads.
"""

import random
import time
from collections.abc import Callable
from contextvars import Context
from threading import Thread, get_ident
from typing import Any

import pytest

from holdfast import sync
from holdfast.runs.block import RunBlock
from holdfast.runs.durable import registry
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.faults import FaultyBackend
from holdfast.testing.handles import blocking_store
from patience import GIVE_UP_SECONDS
from rounds import rounds

ROUNDS = rounds(50, 50)
CALLS = ("heads", "swap", "rows", "inbox", "post", "look_again")


class Struck(FaultyBackend):
    """Calls `strike` before each call to the store."""

    strike: Callable[[], object] = staticmethod(lambda: None)

    def _do(self, name: str, *arguments: Any, **options: Any) -> Any:
        if name in CALLS:
            self.strike()
        return super()._do(name, *arguments, **options)


def waiting_and_answering(backend: MemoryBackend, wrap: type[FaultyBackend]) -> tuple[Any, Any]:
    """A function that asks, run on a store that is wrapped; and a person who answers as soon as there is a question."""
    registry.pop("asks", None)
    store, other = blocking_store(wrap(backend)), blocking_store(wrap(backend))

    @sync.durable(store=store, name="asks")
    def asks() -> str | None:
        return sync.ask("go on?", choices=["yes"]).choice

    asks.submit("t")

    def wait() -> None:
        asks.start("t")

    def answer() -> None:
        for request in other.requests():
            other.answer(request.id, "yes")

    return (store, wait), (other, answer)


def waiting_and_ending(backend: MemoryBackend, wrap: type[FaultyBackend]) -> tuple[Any, Any]:
    """A parent that waits for its child, and the process that runs the child."""
    for name in ("parent", "child"):
        registry.pop(name, None)
    store, other = blocking_store(wrap(backend)), blocking_store(wrap(backend))

    @sync.durable(store=other, name="child")
    def child() -> str:
        return "yes"

    @sync.durable(store=store, name="parent")
    def parent() -> str:
        return str(store.handle("child").result())

    child.submit("child")
    parent.submit("t")

    def end() -> None:
        if other.outcome("child").status != "complete":
            child.run("child")

    return (store, lambda: parent.start("t")), (other, end)


SCENES = {"an answer": waiting_and_answering, "a child": waiting_and_ending}


def check(backend: MemoryBackend) -> None:
    """The thread can be resumed at once, by a worker that finds it by itself."""
    store = blocking_store(backend)
    if store.outcome("t").status != "complete":
        entry = backend.entries(b"\0")[store._store._reader.key("t")]
        assert entry.due <= backend.now(), "the thread was not woken"
        sync.Worker(store).run(once=True)
    assert store.outcome("t").result == "yes"


def struck_at(scene: str, side: int, number: int) -> bool:
    """One side is struck by all of the other before this call. False if it made fewer calls."""
    backend = MemoryBackend()
    sides = SCENES[scene](backend, Struck)
    (store, act), (_, strike) = sides[side], sides[1 - side]
    calls, is_struck = 0, False
    if side:
        strike()  # it has begun to wait, and does so again in the middle of the other's work

    here = get_ident()

    def before() -> None:
        nonlocal calls, is_struck
        if get_ident() != here:
            return  # a call of the heartbeat: nobody would wait for the other side there
        calls += 1
        if calls == number:
            is_struck = True
            Context().run(strike)

    store._store._backend.strike = before
    act()
    if not is_struck:
        return False
    sides[1][1]()  # if it was too early to answer, the question is answered now
    check(backend)
    return True


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_lost_wherever_one_side_strikes_the_other(scene: str, side: int) -> None:
    number = 1
    while struck_at(scene, side, number):
        number += 1
    assert number > 5


@pytest.mark.parametrize("scene", SCENES)
def test_a_release_that_does_not_look_again_loses_it(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunBlock, "_wake_if_called", lambda *_: None)
    with pytest.raises(AssertionError, match="was not woken"):
        for number in range(1, 100):
            if not struck_at(scene, 0, number):
                return


class Jittery(FaultyBackend):
    """Waits for a random moment before each call to the store."""

    def _do(self, name: str, *arguments: Any, **options: Any) -> Any:
        if name in CALLS and random.random() < 0.5:
            time.sleep(random.random() * 0.0005)
        return super()._do(name, *arguments, **options)


@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_lost_in_a_thousand_races(scene: str) -> None:
    for _ in range(ROUNDS):
        backend = MemoryBackend()
        (_, wait), (_, strike) = SCENES[scene](backend, Jittery)
        other = Thread(target=strike)
        other.start()
        wait()
        other.join(GIVE_UP_SECONDS)
        strike()
        check(backend)
