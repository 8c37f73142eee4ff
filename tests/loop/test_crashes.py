"""A loop is killed at every point, and in pairs of points; it always ends the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import LoopState, sync
from holdfast.runtimes.loop.core import LoopCore
from holdfast.runtimes.loop.transitions import applied
from holdfast.runtimes.loop.work import Transition
from holdfast.testing import crash_everywhere
from kinds import ON_DISK, new_place
from loop.loops import Outside
from rounds import points, rounds

outside = Outside()
decided: list[str] = []


def clear() -> None:
    outside.clear()
    decided.clear()


def notify(what: str, idempotency_key: str) -> str:
    """Send the report; by then every decision must be made."""
    outside.calls.append(f"late {what}")
    outside.sent.setdefault(idempotency_key, f"late {what}")
    return f"told {what}"


TOOLS = [holdfast.tool(outside.send, name="send", effect=True), holdfast.tool(notify, defer=True)]
STEPS = ["a", ["b", "c"]]
AGAIN = ["d"]


def plan(loop: Any) -> list[Any]:
    return AGAIN if loop.results else STEPS


def reflect(loop: Any) -> LoopState | None:
    decided.append("decided")
    assert not [call for call in outside.calls if call.startswith("late")]
    replans = loop.cursor == len(loop.plan) and len(loop.results) < 3
    return LoopState.PLANNING if replans else None


async def awaitable_execute(loop: Any, step: str) -> str:
    await loop.call("notify", step)
    return str(await loop.call("send", step))


def blocking_execute(loop: Any, step: str) -> str:
    loop.call("notify", step)
    return str(loop.call("send", step))


HANDLERS: dict[str, Any] = {"plan": plan, "reflect": reflect, "tools": TOOLS}


async def awaitable_loop(store: holdfast.Store) -> Any:
    """A loop with effects, a parallel step, a second plan and deferred effects."""
    loop = holdfast.Loop("essay", store=store, thread_id="t", execute=awaitable_execute, **HANDLERS)
    return [await loop.drive(), loop.state]


def blocking_loop(store: sync.Store) -> Any:
    """The same, blocking."""
    loop = sync.Loop("essay", store=store, thread_id="t", execute=blocking_execute, **HANDLERS)
    return [loop.drive(), loop.state]


def rare_loop(store: sync.Store) -> Any:
    """The same with few checkpoints."""
    loop = sync.Loop("essay", store=store, thread_id="t", execute=blocking_execute, every=4, **HANDLERS)
    return [loop.drive(), loop.state]


def hand_driven_loop(store: sync.Store) -> Any:
    """The same, driven by its program."""
    options: dict[str, Any] = {"execute": blocking_execute, **HANDLERS}
    loop = sync.Loop("essay", store=store, thread_id="t", **options)
    while loop.state not in {LoopState.COMPLETE, LoopState.FAILED}:
        loop.step_once()
        loop.checkpoint()
    loop.checkpoint()
    return [loop.results, loop.state]


LOOPS: dict[str, Callable[..., Any]] = {
    "awaitable": awaitable_loop,
    "blocking": blocking_loop,
    "rare": rare_loop,
    "hand-driven": hand_driven_loop,
}


def check() -> None:
    """Each effect happened once; the deferred ones after all others, and in order."""
    happened = list(outside.sent.values())
    assert sorted(happened[:4]) == ["a", "b", "c", "d"]
    assert happened[4:] == [f"late {each}" for each in "abcd"]


@pytest.mark.faults
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_ends_the_same_wherever_it_is_killed(name: str) -> None:
    report = crash_everywhere(LOOPS[name], before=clear, after=check, pairs=rounds(2, 40), max_points=points(20))
    assert report.result == [["sent a", ["sent b", "sent c"], "sent d"], LoopState.COMPLETE]
    assert len(report.points) > 40


@pytest.mark.faults
@pytest.mark.parametrize("kind", ON_DISK)
def test_a_loop_on_disk_ends_the_same_wherever_it_is_killed(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"pairs": rounds(0, 5), "max_points": points(10)}
    crash_everywhere(blocking_loop, before=clear, after=check, place=lambda: new_place(kind, tmp_path), **options)


async def _forgetful(self: Transition) -> None:
    """Perform deferred calls as soon as they are decided on, without a record."""
    for each in self.snapshot.outbox:
        self._terms.tools.find(each.tool)(*each.arguments, idempotency_key=str(len(outside.sent)))
    self.snapshot = applied(self.snapshot, LoopState.COMPLETE, outbox=[])


async def _unsaved(self: LoopCore, *_: Any) -> None:
    self._known_transitions = self.snapshot.transitions


@pytest.mark.faults
@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [(Transition, "_perform_deferred", _forgetful), (LoopCore, "_save", _unsaved)],
    ids=["deferred calls without a record", "checkpoints that are not written"],
)
def test_a_broken_loop_is_caught(where: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail."""
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(AssertionError):
        crash_everywhere(blocking_loop, before=clear, after=check, pairs=0, limit=1)
