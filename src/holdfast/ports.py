"""The only door to the event loop, threads, the clock and randomness.

What is written once as `async def` over `Ports` runs in both worlds: `AsyncPorts` awaits, `BlockingPorts` calls inline
and `run_blocking` steps the coroutine to its end without an event loop.
"""

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from threading import Event, Lock, get_ident
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from holdfast.records.errors import ConfigurationError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
P = ParamSpec("P")


class Forkable(Protocol):
    """What holds locks or threads, which a forked child has no use for."""

    def after_fork(self) -> None:
        """Begin anew, in the child."""
        ...


_forkables: "WeakSet[Forkable]" = WeakSet()


def reset_after_fork(forkable: Forkable) -> None:
    """Have this reset in every forked child, before anything else runs there."""
    _forkables.add(forkable)


class Guard(Protocol):
    """A lock."""

    def acquire(self) -> bool:
        """Take it."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...


_guards: "WeakSet[Guard]" = WeakSet()
_guarding: list[Guard] = []


def hold_during_fork(guard: Guard) -> None:
    """Take this lock before any fork and give it back after it: what it guards is at rest when the child is made."""
    _guards.add(guard)


def _before_fork() -> None:
    for guard in list(_guards):
        guard.acquire()
        _guarding.append(guard)


def _after_fork_in_parent() -> None:
    while _guarding:
        _guarding.pop().release()


def _after_fork() -> None:
    global _settling  # noqa: PLW0603  the child must not wait for a lock that nobody will release
    _settling = Lock()
    _guarding.clear()
    for forkable in list(_forkables):
        forkable.after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)

_settling = Lock()
"""One lock for all tickets: it is held for a moment, and a lock for each would cost more than it saves."""


class Ticket:
    """A write on its way: settled once, by whoever commits it, as True (done), False (refused) or an error."""

    __slots__ = ("_callbacks", "_outcome", "settled")

    def __init__(self) -> None:
        self.settled = False
        self._outcome: bool | BaseException = False
        self._callbacks: list[Callable[[], None]] = []

    def settle(self, outcome: bool | BaseException) -> None:
        """Fix the outcome and call whoever waits."""
        with _settling:
            self._outcome = outcome
            self.settled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once settled, at once if it is already; from whichever thread settles it."""
        with _settling:
            if not self.settled:
                self._callbacks.append(callback)
                return
        callback()

    def result(self) -> bool:
        """The outcome of a settled ticket, raised if it is an error."""
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


class Driver(Protocol):
    """Whatever settles tickets: the committer."""

    def drive(self, ticket: Ticket) -> None:
        """Settle the ticket now, on this thread."""
        ...

    def nudge(self) -> None:
        """See that waiting tickets are settled soon, without blocking this thread for long."""
        ...


class Ports(Protocol):
    """What the rest of the program may ask of the outside world."""

    def now(self) -> int:
        """Microseconds since 1970. Only ever shown or compared with leases: no order depends on it."""
        ...

    def entropy(self, count: int) -> bytes:
        """Random bytes."""
        ...

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work without blocking the caller's world."""
        ...

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Wait for a ticket. A cancelled wait does not cancel the write."""
        ...

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a user's function, plain or (in the awaitable world) async."""
        ...

    def close(self) -> None:
        """Let go of threads."""
        ...


class _SystemPorts:
    """Clock and randomness of this machine."""

    @staticmethod
    def now() -> int:
        return time.time_ns() // 1000

    @staticmethod
    def entropy(count: int) -> bytes:
        return os.urandom(count)


class BlockingPorts(_SystemPorts):
    """Everything inline: no event loop, no thread."""

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it."""
        return function(*args, **kwargs)

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Commit it here and now, with whatever else waits."""
        driver.drive(ticket)
        return ticket.result()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it; an awaitable in return is an error that names the other world."""
        result = function(*args)
        if isinstance(result, Awaitable):
            if isinstance(result, Coroutine):
                result.close()
            name = getattr(function, "__qualname__", repr(function))
            raise ConfigurationError(
                f"{name} is async; holdfast.sync takes plain functions (use holdfast for async ones)"
            )
        return result

    def close(self) -> None:
        """Nothing is held."""


class AsyncPorts(_SystemPorts):
    """Blocking work goes to threads that the store owns; waiting never blocks the event loop."""

    THREADS = 4

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._process = 0
        self._waker: _Waker | None = None

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it on one of the store's own threads, never on the shared default pool."""
        from asyncio import get_running_loop
        from functools import partial

        return await get_running_loop().run_in_executor(self._threads(), partial(function, *args, **kwargs))

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Let the other tasks of this turn of the loop add their writes, then commit all of them together."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        waker = self._waker
        if waker is None or waker.loop is not loop:
            waker = self._waker = _Waker(loop)
        done = loop.create_future()
        waker.nudge_soon(driver)
        ticket.when_settled(lambda: waker.wake(done))
        await done
        return ticket.result()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it, and await what it returns if that is awaitable."""
        result = function(*args)
        return await result if isinstance(result, Awaitable) else result

    def close(self) -> None:
        """End the threads once they are idle."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def _threads(self) -> "ThreadPoolExecutor":
        # A forked child has its parent's executor but none of its threads.
        if self._executor is None or self._process != os.getpid():
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self.THREADS, thread_name_prefix="holdfast")
            self._process = os.getpid()
        return self._executor


class _Waker:
    """Wakes the tasks of one event loop: once for a whole batch of settled tickets, not once for each."""

    def __init__(self, loop: "AbstractEventLoop") -> None:
        self.loop = loop
        self._thread = get_ident()
        self._ready: deque[Future[None]] = deque()
        self._nudging: set[Driver] = set()
        self._lock = Lock()

    def nudge_soon(self, driver: Driver) -> None:
        """Nudge the driver at the end of this turn of the loop, however many ask for it."""
        if driver not in self._nudging:
            self._nudging.add(driver)
            self.loop.call_soon(self._nudge, driver)

    def _nudge(self, driver: Driver) -> None:
        self._nudging.discard(driver)
        driver.nudge()

    def wake(self, done: "Future[None]") -> None:
        """Resolve a future, from any thread. The loop may be gone, if its tasks are: then nobody waits."""
        if get_ident() == self._thread:
            _resolve(done)
            return
        with self._lock:
            self._ready.append(done)
            is_first = len(self._ready) == 1
        if is_first and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        with self._lock:
            ready, self._ready = self._ready, deque()
        for done in ready:
            _resolve(done)


def _resolve(done: "Future[None]") -> None:
    if not done.done():
        done.set_result(None)


class Signal:
    """A wake-up for a waiting thread: `wait` returns True once `set` was called, False when time is up."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        """Wake the waiter."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait for `set`."""
        return self._event.wait(seconds)


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Step a coroutine over `BlockingPorts` to its end. It never waits, so one step is all it takes."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise ConfigurationError("this call awaited something that needs an event loop; use the awaitable API of holdfast")
