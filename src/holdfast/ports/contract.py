"""The interface to the outside world, the same in the blocking and the awaitable world."""

import os
import sys
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from threading import RLock, Thread
from typing import Any, ParamSpec, Protocol, TypeVar

from holdfast import processes
from holdfast.ports.tickets import Driver, Signal, Ticket

T = TypeVar("T")
P = ParamSpec("P")


def host_time() -> int:
    """Return the time of this host, in microseconds since 1970."""
    return time.time_ns() // 1000


class Ports(Protocol):
    """The interface to the event loop, threads, the clock, randomness and the process."""

    blocking: bool
    """True if there is no event loop, so that no async function can be called."""

    clock: Callable[[], int] = staticmethod(host_time)
    """The clock to use: that of the store. It does not block."""

    def now(self) -> int:
        """Return microseconds since 1970. Only shown, or compared with leases: no order depends on it."""
        return self.clock()

    def entropy(self, count: int) -> bytes:
        """Return random bytes."""
        return os.urandom(count)

    @abstractmethod
    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work without blocking the caller's world."""

    @abstractmethod
    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Wait for a ticket. A cancelled wait does not cancel the write."""

    @abstractmethod
    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """Have a ticket settled without waiting for it: soon, or at once in the blocking world."""

    @abstractmethod
    async def wait(self, ticket: Ticket) -> None:
        """Wait until another thread has settled a ticket."""

    @abstractmethod
    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a user's function, plain or (in the awaitable world) async."""

    @abstractmethod
    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Call a listener and wait for it; plain code cannot wait for an async one and leaves it to the loop."""

    @abstractmethod
    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Call a user's function that may take long, plain or async. Raises `StepTimeout` after `seconds`."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run all to their end: concurrently on an event loop, in order elsewhere."""

    @abstractmethod
    def side_by_side(self, branches: Sequence[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
        """Run branches of a run concurrently, on threads without an event loop; yield each result as it ends.

        Closing it cancels the remaining branches, or waits for those on threads.
        """

    @abstractmethod
    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await it to its end even if the caller is cancelled; then raise the cancellation."""

    @abstractmethod
    def is_cancelled_by(self, error: BaseException | None) -> bool:
        """True if this error is a cancellation of the current task."""

    @abstractmethod
    def is_raised_cancellation(self, error: BaseException) -> bool:
        """True if the called code raised a cancellation itself, without a request to cancel."""

    def owner(self, tag: str = "") -> str:
        """Return a unique name for a new claim of this process; a claim of an engine has the engine's tag in it."""
        return f"{processes.identity()}:{processes.tagged(tag, os.urandom(4).hex())}"

    def is_certainly_dead(self, owner: str) -> bool:
        """True if the process of a claim has certainly ended."""
        return processes.is_certainly_dead(owner)

    @abstractmethod
    def branch(self) -> int:
        """Return an id of the current task or thread."""

    @abstractmethod
    def others(self, belongs: Callable[[Context], bool]) -> Collection[object]:
        """Return the other tasks or threads whose context may belong to the caller's run."""

    def lock(self) -> AbstractContextManager[Any]:
        """Return a reentrant lock."""
        return RLock()

    def beat(self, tick: Callable[[], float | None], woken: Signal) -> None:
        """Call `tick` on a separate thread, repeatedly after the seconds it returns, until it returns None.

        The signal wakes it sooner.
        """
        Thread(target=_beat, args=(tick, woken), name="holdfast-heartbeat", daemon=True).start()

    def tell(self, text: str) -> None:
        """Print a text if there is a terminal."""
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")

    @abstractmethod
    def for_plain_code(self) -> "Ports":
        """Return blocking ports, for code that cannot await."""

    @abstractmethod
    def close(self) -> None:
        """Release the threads."""


def _beat(tick: Callable[[], float | None], woken: Signal) -> None:
    while (seconds := tick()) is not None:
        if woken.wait(seconds):
            woken.clear()
