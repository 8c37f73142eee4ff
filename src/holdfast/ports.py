"""The only door to the event loop, threads, the clock and randomness.

What is written once as `async def` over `Ports` runs in both worlds: `AsyncPorts` awaits, `BlockingPorts` calls inline
and `run_blocking` steps the coroutine to its end without an event loop.
"""

import os
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Event, Lock, Thread, get_ident, local
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from holdfast import processes
from holdfast.records.errors import ConfigurationError, StepTimeout

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
_forking = Lock()
"""One fork at a time: the guards in hand are those of one."""


def hold_during_fork(guard: Guard) -> None:
    """Take this lock before any fork and give it back after it: what it guards is at rest when the child is made."""
    _guards.add(guard)


def _before_fork() -> None:
    _forking.acquire()
    for guard in list(_guards):
        guard.acquire()
        _guarding.append(guard)


def _after_fork_in_parent() -> None:
    while _guarding:
        _guarding.pop().release()
    _forking.release()


def _after_fork() -> None:
    global _settling, _forking  # the child must not wait for locks that nobody will release
    _settling, _forking = Lock(), Lock()
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
        self._callbacks: tuple[Callable[[], None], ...] = ()

    def settle(self, outcome: bool | BaseException) -> None:
        """Fix the outcome and call whoever waits."""
        with _settling:
            self._outcome = outcome
            self.settled = True
        for callback in self._callbacks:
            callback()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once settled, at once if it is already; from whichever thread settles it."""
        with _settling:
            if not self.settled:
                self._callbacks += (callback,)
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

    blocking: bool
    """True if there is no event loop, so that no async function can be called."""

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

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """See that a ticket is settled though nobody waits for it: soon, or in the blocking world at once."""
        ...

    async def wait(self, ticket: Ticket) -> None:
        """Wait until somebody else has settled a ticket."""
        ...

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a user's function, plain or (in the awaitable world) async."""
        ...

    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Call a listener and wait for it; where plain code cannot wait for an async one, leave it to the loop."""
        ...

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Call a user's function that may take long, plain or async. `StepTimeout` after so many seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run all to their end: at the same time where the world allows it, in their order elsewhere."""
        ...

    def owner(self) -> str:
        """A name for a new claim of this process, which no other claim ever has."""
        ...

    def is_certainly_dead(self, owner: str) -> bool:
        """True if the process behind a claim's name surely does not run any more."""
        ...

    def process(self) -> int:
        """The number of this process."""
        ...

    def branch(self) -> int:
        """The task or thread that asks."""
        ...

    def beat(self, tick: Callable[[], float | None], woken: "Signal") -> None:
        """Call `tick` from a thread of its own, again after as many seconds as it returns, until it returns None.

        Sooner if it is woken, by the signal.
        """
        ...

    def tell(self, text: str) -> None:
        """Say something to the person at the terminal, if there is one."""
        ...

    def for_plain_code(self) -> "Ports":
        """Ports to the same world for code that cannot await: blocking ones."""
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

    @staticmethod
    def owner() -> str:
        return f"{processes.identity()}:{os.urandom(4).hex()}"

    @staticmethod
    def is_certainly_dead(owner: str) -> bool:
        return processes.is_certainly_dead(owner)

    @staticmethod
    def process() -> int:
        return os.getpid()

    @staticmethod
    def beat(tick: Callable[[], float | None], woken: "Signal") -> None:
        Thread(target=_beat, args=(tick, woken), name="holdfast-heartbeat", daemon=True).start()

    @staticmethod
    def tell(text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")


def _beat(tick: Callable[[], float | None], woken: "Signal") -> None:
    while (seconds := tick()) is not None:
        if woken.wait(seconds):
            woken.clear()


class BlockingPorts(_SystemPorts):
    """Everything inline: no event loop, no thread."""

    blocking = True

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it."""
        return function(*args, **kwargs)

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Commit it here and now, with whatever else waits."""
        driver.drive(ticket)
        return ticket.result()

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """Commit it here and now."""
        driver.drive(ticket)

    async def wait(self, ticket: Ticket) -> None:
        """Another thread settles it."""
        settled = Event()
        ticket.when_settled(settled.set)
        settled.wait()

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Call it here; with a timeout on a helper thread, which is abandoned when time is up."""
        bound = partial(function, *args, **named)
        if seconds is None:
            return await self.call(bound)
        helper, settled = Helper(bound), Event()
        helper.when_settled(settled.set)
        if not settled.wait(seconds):
            raise _late(seconds)
        return _plain_result(helper.returned(), function)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251  there is no loop

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """One after the other."""
        try:
            return [await coroutine for coroutine in coroutines]
        finally:
            for coroutine in coroutines:
                coroutine.close()

    def branch(self) -> int:
        """The thread."""
        return get_ident()

    def for_plain_code(self) -> Ports:
        """These."""
        return self

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it; an awaitable in return is an error that names the other world."""
        return _plain_result(function(*args), function)

    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Call it."""
        await self.call(listener, event)

    def close(self) -> None:
        """Nothing is held."""


def _plain_result(result: Any, function: Callable[..., Any]) -> Any:
    """What a plain function returned; a clear refusal if it was not one."""
    if not isinstance(result, Awaitable):
        return result
    if isinstance(result, Coroutine):
        result.close()
    name = getattr(getattr(function, "func", function), "__qualname__", repr(function))
    raise ConfigurationError(f"{name} is async; holdfast.sync takes plain functions (use holdfast for async ones)")


class Helper(Ticket):
    """A call on a thread of its own, which can be abandoned: it keeps neither its caller nor the program's end."""

    __slots__ = ("_value",)

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._value: Any = None
        context = copy_context()
        Thread(target=lambda: context.run(self._call, function), name="holdfast-step", daemon=True).start()

    def _call(self, function: Callable[[], Any]) -> None:
        try:
            self._value = function()
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            self.settle(error)
        else:
            self.settle(True)

    def returned(self) -> Any:
        """What the settled call returned, or raise what it raised."""
        self.result()
        return self._value


def _late(seconds: float) -> StepTimeout:
    return StepTimeout(f"no result within {seconds:g} s", type="StepTimeout")


class AsyncPorts(_SystemPorts):
    """Blocking work goes to threads that the store owns; waiting never blocks the event loop."""

    blocking = False
    THREADS = 4
    STEP_THREADS = 64
    """For the plain functions of users, which may block for minutes."""
    AT_ONCE = 16

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._step_executor: ThreadPoolExecutor | None = None
        self._process = 0
        self._waker: _Waker | None = None

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it on one of the store's own threads, never on the shared default pool."""
        from asyncio import get_running_loop

        return await get_running_loop().run_in_executor(self._threads(), partial(function, *args, **kwargs))

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Let the other tasks of this turn of the loop add their writes, then commit all of them together."""
        waker = self._current_waker()
        waker.nudge_soon(driver)
        await waker.settled(ticket)
        return ticket.result()

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """Commit it with the others of this turn of the loop."""
        try:
            self._current_waker().nudge_soon(driver)
        except RuntimeError:  # a plain function, on a thread without a loop
            driver.nudge()

    async def wait(self, ticket: Ticket) -> None:
        """Whoever settles it wakes this task."""
        await self._current_waker().settled(ticket)

    def _last_loop(self) -> "AbstractEventLoop":
        """The event loop of this thread; on a thread without one, that of the last task seen here."""
        try:
            return self._current_waker().loop
        except RuntimeError:
            if self._waker is None:
                raise
            return self._waker.loop

    def _current_waker(self) -> "_Waker":
        from asyncio import get_running_loop

        loop = get_running_loop()
        waker = self._waker
        if waker is None or waker.loop is not loop:
            waker = self._waker = _Waker(loop)
        return waker

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Await it; a plain function runs on a thread of its own, in a copy of the context."""
        from asyncio import timeout

        if seconds is None:
            return await self._invoke(function, args, named)
        try:
            async with timeout(seconds) as limit:
                return await self._invoke_abandonable(function, args, named)
        except TimeoutError:
            if limit.expired():
                raise _late(seconds) from None
            raise

    async def _invoke(self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if _is_async(function):
            return await function(*args, **named)
        inner = partial(copy_context().run, _without_stop_iteration, partial(function, *args, **named))
        result = await self._current_waker().loop.run_in_executor(self._step_threads(), inner)
        return await result if isinstance(result, Awaitable) else result

    async def _invoke_abandonable(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        if _is_async(function):
            return await function(*args, **named)
        helper = Helper(partial(function, *args, **named))
        await self.wait(helper)
        result = helper.returned()
        return await result if isinstance(result, Awaitable) else result

    async def sleep(self, seconds: float) -> None:
        """Let others work."""
        from asyncio import sleep

        await sleep(seconds)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """At the same time, but not all of a great many."""
        from asyncio import Semaphore, gather

        limit = Semaphore(self.AT_ONCE)

        async def limited(coroutine: Coroutine[Any, Any, T]) -> T:
            async with limit:
                return await coroutine

        return await gather(*map(limited, coroutines))

    def branch(self) -> int:
        """The task, outside of any the thread."""
        from asyncio import current_task

        try:
            return id(current_task())
        except RuntimeError:
            return get_ident()

    def for_plain_code(self) -> Ports:
        """Blocking ports: whoever cannot await has a thread to block."""
        return BlockingPorts()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it, and await what it returns if that is awaitable."""
        result = function(*args)
        return await result if isinstance(result, Awaitable) else result

    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Call it. A plain step of an awaitable run emits events too, and stands in nobody's coroutine."""
        from asyncio import ensure_future

        result = listener(event)
        if not isinstance(result, Awaitable):
            return
        if _stepping.depth:
            self._last_loop().call_soon_threadsafe(ensure_future, result)
        else:
            await result

    def close(self) -> None:
        """End the threads once they are idle."""
        for executor in (self._executor, self._step_executor):
            if executor is not None:
                executor.shutdown(wait=False)
        self._executor = self._step_executor = None

    def _threads(self) -> "ThreadPoolExecutor":
        self._forget_parents_threads()
        if self._executor is None:
            self._executor = _pool(self.THREADS, "holdfast")
        return self._executor

    def _step_threads(self) -> "ThreadPoolExecutor":
        self._forget_parents_threads()
        if self._step_executor is None:
            self._step_executor = _pool(self.STEP_THREADS, "holdfast-step")
        return self._step_executor

    def _forget_parents_threads(self) -> None:
        # A forked child has its parent's executors but none of their threads.
        if self._process != os.getpid():
            self._executor = self._step_executor = None
            self._process = os.getpid()


def _without_stop_iteration(function: Callable[[], T]) -> T:
    """Call it. A StopIteration becomes an error, as in any coroutine: a future refuses it, and who waits would hang."""
    try:
        return function()
    except StopIteration as stop:
        raise RuntimeError("the function raised StopIteration") from stop


def _pool(size: int, name: str) -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(size, thread_name_prefix=name)


def _is_async(function: Callable[..., Any]) -> bool:
    """True for what must be called on the event loop: async functions, wrapped or with an async __call__."""
    from inspect import iscoroutinefunction

    while isinstance(function, partial):
        function = function.func
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


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

    def settled(self, ticket: Ticket) -> "Future[None]":
        """A future that is resolved once the ticket is settled."""
        done: Future[None] = self.loop.create_future()
        ticket.when_settled(lambda: self._wake(done))
        return done

    def _wake(self, done: "Future[None]") -> None:
        """Resolve a future, from any thread. The loop may be gone, if its tasks are: then nobody waits."""
        if get_ident() == self._thread:
            _resolve(done)
            return
        with self._lock:
            self._ready.append(done)
            is_first = len(self._ready) == 1
        if is_first:
            with suppress(RuntimeError):
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

    def clear(self) -> None:
        """Be ready to wake it again."""
        self._event.clear()

    def wait(self, seconds: float) -> bool:
        """Wait for `set`."""
        return self._event.wait(seconds)


class _Stepping(local):
    """How many coroutines the thread steps without an event loop."""

    depth = 0


_stepping = _Stepping()


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Step a coroutine over `BlockingPorts` to its end. It never waits, so one step is all it takes."""
    _stepping.depth += 1
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        _stepping.depth -= 1
    coroutine.close()
    raise ConfigurationError("this call awaited something that needs an event loop; use the awaitable API of holdfast")


def iterate_blocking(stream: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Step an async generator over `BlockingPorts` from item to item. Leaving it early closes it."""
    try:
        while True:
            try:
                item = run_blocking(_following(stream))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run_blocking(stream.aclose())


async def _following(stream: AsyncGenerator[T, None]) -> T:
    return await anext(stream)
