"""Crash points: one before and one after each effect, that is each write to the store and each call of a step.

Reads are no effects: a crash between two of them leaves the same world as one before them. A life counts its points and
knows how it ends; a backend and ports pass the points of whatever is done through them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

from holdfast.ports import Ports
from holdfast.runs.scope import Frame, current_frame
from holdfast.runs.steps import KEY_NAME
from holdfast.stores.backend import Backend
from holdfast.testing.crash_engine import StepId
from holdfast.testing.faults import WRITES, Crash, FaultyBackend

P = ParamSpec("P")
T = TypeVar("T")
CHECKED = frozenset({"perform", "settle", "dispatch", "wait", "call", "notify"})
"""The methods of ports that do something to the world, so that a dead life cannot call them."""


class Died(Crash, KeyboardInterrupt):
    """The process is dead.

    A KeyboardInterrupt, because asyncio ends its loop at once for nothing else: no other task gets another turn.
    """


class Witness(Protocol):
    """Records which steps a life executes."""

    def executes(self, frame: Frame, *, with_key: bool) -> None:
        """The function of a step is about to be called, `with_key` if it takes the idempotency key."""
        ...

    def failed(self, frame: Frame) -> None:
        """The function of a step raised an error."""
        ...


def step_of(frame: Frame) -> StepId:
    """Return the thread and the key of the step that a frame belongs to."""
    return frame.run.thread_id, frame.scope.prefix.removesuffix("/")


class EffectCounter(ABC):
    """Counts the crash points of one life, and ends it at point number `crash_at` (0: at none)."""

    def __init__(self, crash_at: int = 0) -> None:
        self.points: list[str] = []
        self.dead = False
        self._crash_at = crash_at

    def check(self) -> None:
        """Raise `Died` if this life is over: a dead process does nothing more."""
        if self.dead:
            raise Died("this process is dead")

    def die(self, point: str) -> None:
        """End this life."""
        self.dead = True
        raise Died(point)

    @abstractmethod
    def name_step(self, key: str) -> str:
        """Return the name of the call of a step's function."""

    def name_call(self, function: Callable[..., Any]) -> str:
        """Return the name of another call of a user's function; empty if it is no crash point."""
        return ""

    @abstractmethod
    def name_write(self, call: str, args: Sequence[Any]) -> str:
        """Return the name of a write to the backend; empty if it is no crash point."""

    def point(self, what: str) -> None:
        """Pass one point, or die there."""
        self.check()
        self.points.append(what)
        if len(self.points) == self._crash_at:
            self.die(what)

    @contextmanager
    def effect(self, what: str) -> Iterator[None]:
        """Pass a point before the block and one after it; none if `what` is empty."""
        if not what:
            yield
            return
        self.point(f"before {what}")
        try:
            yield
        except Exception:
            self.point(f"after {what} failed")
            raise
        self.point(f"after {what}")


class EffectBackend(FaultyBackend):
    """A backend as one life sees it: a point before and after each write, and no call at all once it is dead."""

    def __init__(self, inner: Backend, life: EffectCounter) -> None:
        super().__init__(inner)
        self._life = life

    def _do(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._life.check()
        what = self._life.name_write(name, args) if name in WRITES else ""
        with self._life.effect(what):
            return function(*args, **kwargs)

    def close(self) -> None:
        """Leave it open, as a killed process does: the maker of the backend closes it."""


class EffectPorts:
    """Any ports, with a point before and after each call of a step's function."""

    def __init__(self, inner: Ports, life: EffectCounter, witness: Witness) -> None:
        self.blocking = inner.blocking
        self._inner = inner
        self._life = life
        self._witness = witness

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Call a user's function; if it is that of a step, as an effect that the witness records."""
        frame = current_frame.get()
        if frame is None or not frame.idempotency_key or function is next:  # the next chunk of a stream that was begun
            with self._life.effect(self._life.name_call(function)):
                return await self._inner.invoke(function, args, named, seconds)
        with self._life.effect(self._life.name_step(step_of(frame)[1])), self._witnessed(frame, named):
            return await self._inner.invoke(function, args, named, seconds)

    @contextmanager
    def _witnessed(self, frame: Frame, named: Mapping[str, Any]) -> Iterator[None]:
        self._witness.executes(frame, with_key=KEY_NAME in named)
        try:
            yield
        except Exception:
            self._witness.failed(frame)
            raise

    def for_plain_code(self) -> Any:
        """Return blocking ports of the same life."""
        if self.blocking:
            return self
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, _inner=self._inner.for_plain_code(), blocking=True)
        return twin

    def __getattr__(self, name: str) -> Any:
        """Pass on everything else to the inner ports, unless this life is over."""
        if name in CHECKED:
            self._life.check()
        return getattr(self._inner, name)
