"""A process that kills itself with SIGKILL at the n-th point: before or after a write, or the function of a step.

Renewals of a lease come at their own times, so they are no points. Nothing is cleaned up, flushed or said farewell to.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, ParamSpec, TypeVar

import msgspec

from holdfast.chaos.order import HANDED, Note
from holdfast.ports import BlockingPorts, Ports
from holdfast.ports.awaitable import AsyncPorts
from holdfast.records.head import decode_head
from holdfast.records.rows import Swap
from holdfast.runs.scope import Frame, current_frame
from holdfast.runs.steps import KEY_NAME
from holdfast.stores.backend import Backend
from holdfast.testing.faults import WRITES, FaultyBackend

P = ParamSpec("P")
T = TypeVar("T")


class Life:
    """Counts points, writes down what happens, and ends the process when its time has come."""

    def __init__(self, report: str, kill_at: int) -> None:
        self._file = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._kill_at = kill_at
        self._count = 0
        self._lock = RLock()
        self.returned = ""
        """The step whose function has returned, and whose result is not yet on its way to the store."""

    def note(self, kind: str, what: str = "", key: str = "", value: str = "") -> None:
        """Write a line, in one call: it is there whatever happens next."""
        os.write(self._file, msgspec.json.encode(Note(kind=kind, what=what, key=key, value=value)) + b"\n")

    def point(self, what: str) -> None:
        """Pass a point, or die there."""
        with self._lock:
            self._count += 1
            self.note("point", what)
            if self._count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def effect(self, what: str) -> Iterator[None]:
        """A point before what is done within, and one after it, also if that failed."""
        self.point(f"before {what}")
        try:
            yield
        finally:
            self.point(f"after {what}")


class KillingBackend(FaultyBackend):
    """A backend with a point before and after each write."""

    def __init__(self, inner: Backend, life: Life) -> None:
        super().__init__(inner)
        self._life = life

    def _do(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        what = self._described(name, args) if name in WRITES else ""
        if not what:
            return function(*args, **kwargs)
        with self._life.effect(what):
            return function(*args, **kwargs)

    def _described(self, name: str, args: Sequence[Any]) -> str:
        """What a write is, in a few words; nothing for one that renews a lease."""
        if name == "post":
            return f"message {args[1]}"
        swaps: Sequence[Swap] = args[0]
        rows = [row.seq for swap in swaps for row in swap.rows]
        if rows:
            step, self._life.returned = self._life.returned, ""
            return f"saving the result of {step}" if step else f"writing row {rows[0]}"
        return ", ".join(filter(None, map(_amended, swaps)))


def _amended(swap: Swap) -> str:
    before = decode_head(swap.thread, swap.expected) if swap.expected else None
    if not swap.head.owner:
        return "the release of the thread"
    return "" if before is not None and before.token == swap.head.token else "the claim on the thread"


def name_of(key: str) -> str:
    """The name in a step's key: what stands before its fingerprint, within the step that called it."""
    return " / ".join(part.split(":")[0] for part in key.split("/"))


async def _executed(life: Life, named: Mapping[str, Any], invoke: Callable[[], Any]) -> Any:
    """Call a user's function; if it is a step's, with a point before and after it."""
    frame = current_frame.get()
    if frame is None or not frame.idempotency_key:
        return await invoke()
    key = _key_of(frame)
    with life.effect(f"executing {name_of(key)}"):
        life.note("executes", key, frame.idempotency_key, value=HANDED if KEY_NAME in named else "")
        result = await invoke()
        life.returned = name_of(key)
        return result


def _key_of(frame: Frame) -> str:
    return frame.scope.prefix.removesuffix("/")


class KillingBlockingPorts(BlockingPorts):
    """The blocking world, with points."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """A step's function is an effect."""
        call = super().invoke
        return await _executed(self._life, named, lambda: call(function, args, named, seconds))


class KillingAsyncPorts(AsyncPorts):
    """The awaitable world, with points."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """A step's function is an effect."""
        call = super().invoke
        return await _executed(self._life, named, lambda: call(function, args, named, seconds))

    def for_plain_code(self) -> Ports:
        """The same life."""
        return KillingBlockingPorts(self._life)
