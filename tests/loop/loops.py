"""Loops in both worlds: a scenario awaits them, and in the blocking world each call is one of `holdfast.sync`."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import holdfast
from holdfast import sync
from holdfast.ports import run_blocking
from runs.worlds import BlockingWorld, Calls, World

HANDLERS = ("plan", "execute", "observe", "reflect")
OVER = (holdfast.LoopState.COMPLETE, holdfast.LoopState.FAILED)


class Outside:
    """What tools act on: a service that honours keys, and a log of all calls."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Make it new."""
        self.sent: dict[str, Any] = {}
        self.calls: list[Any] = []

    def send(self, what: Any, idempotency_key: str) -> str:
        """Send, once per key."""
        self.calls.append(what)
        self.sent.setdefault(idempotency_key, what)
        return f"sent {what}"


class _Loop(Calls):
    """A blocking loop whose methods are awaited."""

    def snapshot(self) -> holdfast.Snapshot:
        return self._inner.snapshot()  # type: ignore[no-any-return]


def _plain(function: Any) -> Any:
    """Return a handler of the scenario for the blocking world: the loop it is given is awaited there too."""

    @wraps(function)
    def called(loop: Any, *args: Any) -> Any:
        result = function(_Loop(loop), *args)
        return run_blocking(result) if iscoroutinefunction(function) else result

    return called


def options_of(world: World, options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a loop, with handlers of that world; a plan may be given as a list."""
    plan = options.get("plan", ["a", "b", "c"])
    made = {"execute": lambda _, step: step, **options, "plan": plan if callable(plan) else lambda _: list(plan)}
    if isinstance(world, BlockingWorld):
        made |= {name: _plain(made[name]) for name in HANDLERS if made.get(name) is not None}
    return made


def _store(world: World, store: Any) -> Any:
    store = world.store if store is None else store
    return store._inner if isinstance(world, BlockingWorld) else store


def new_loop(world: World, request: Any = "essay", *, store: Any = None, thread_id: str = "t", **options: Any) -> Any:
    """Make a loop of that world; each one is another process's."""
    named = {"store": _store(world, store), "thread_id": thread_id, **options_of(world, options)}
    return _Loop(sync.Loop(request, **named)) if isinstance(world, BlockingWorld) else holdfast.Loop(request, **named)


def loop_from(world: World, snapshot: Any, *, store: Any = None, thread_id: str = "t", **options: Any) -> Any:
    """Make a loop of a snapshot."""
    named = {"store": _store(world, store), "thread_id": thread_id, **options_of(world, options)}
    if isinstance(world, BlockingWorld):
        return _Loop(sync.Loop.from_dict(snapshot, **named))
    return holdfast.Loop.from_dict(snapshot, **named)


async def resumed(world: World, *, store: Any = None, thread_id: str = "t", **options: Any) -> Any:
    """Resume the loop of a thread."""
    named = options_of(world, options)
    if isinstance(world, BlockingWorld):
        found = sync.Loop.resume(_store(world, store), thread_id, **named)
        return None if found is None else _Loop(found)
    return await holdfast.Loop.resume(_store(world, store), thread_id, **named)


def failing(times: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that raises as often before it works: the process of each is over then."""
    left = [times]

    async def handler(loop: Any, *args: Any) -> Any:
        result = function(loop, *args)
        result = await result if hasattr(result, "__await__") else result
        if left[0]:
            left[0] -= 1
            raise ConnectionError("the network is down")
        return result

    return handler


async def latest_of(world: World, thread_id: str = "t") -> holdfast.Checkpoint:
    """Return the newest checkpoint of a thread that has one."""
    found = await world.store.latest(thread_id)
    assert found is not None
    return found


async def transitions(world: World, thread_id: str = "t") -> list[tuple[str, str]]:
    """Return the transitions that the rows of a thread tell of, the oldest first."""
    infos = (await world.store.history(thread_id, limit=500)).items
    told = [info.metadata["transition"] for info in reversed(infos) if "transition" in info.metadata]
    return [(each["from"], each["to"]) for each in told]
