"""The awaitable world: blocking work goes to threads, and waiting never blocks the event loop."""

import asyncio
import inspect
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from threading import Lock, get_ident
from typing import Any, ParamSpec, TypeVar

from holdfast.ports import tasks
from holdfast.ports.blocking import BlockingPorts, stepping
from holdfast.ports.carried import other_work
from holdfast.ports.contract import Ports
from holdfast.ports.tickets import Driver, Helper, Ticket, late

T = TypeVar("T")
P = ParamSpec("P")


class Waker:
    """Wakes the tasks of one event loop: once for a whole batch of settled tickets, not once for each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._thread = get_ident()
        self._ready: deque[asyncio.Future[None]] = deque()
        self._nudging: set[Driver] = set()
        self._lock = Lock()

    def nudge_soon(self, driver: Driver) -> None:
        """Nudge the driver once at the end of this iteration of the loop."""
        if driver not in self._nudging:
            self._nudging.add(driver)
            self.loop.call_soon(self._nudge, driver)

    def _nudge(self, driver: Driver) -> None:
        self._nudging.discard(driver)
        driver.nudge()

    def settled(self, ticket: Ticket) -> asyncio.Future[None]:
        """Return a future that is resolved once the ticket is settled."""
        done: asyncio.Future[None] = self.loop.create_future()
        ticket.when_settled(lambda: self._wake(done))
        return done

    def _wake(self, done: asyncio.Future[None]) -> None:
        """Resolve a future from any thread. If the loop is closed, no task waits."""
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


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class AsyncPorts(Ports):
    """Blocking work goes to threads that the store owns; waiting never blocks the event loop."""

    blocking = False
    THREADS = 4
    STEP_THREADS = 64
    """For plain functions of users, which may block for minutes."""
    AT_ONCE = 16

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._step_executor: ThreadPoolExecutor | None = None
        self._process = 0
        self._waker: Waker | None = None

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it on one of the store's own threads, never on the shared default pool."""
        return await asyncio.get_running_loop().run_in_executor(self._threads(), partial(function, *args, **kwargs))

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Let other tasks in this iteration of the loop add their writes, then commit all of them together."""
        waker = self._current_waker()
        waker.nudge_soon(driver)
        await waker.settled(ticket)
        return ticket.result()

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """Commit it with the other writes of this iteration of the loop."""
        try:
            self._current_waker().nudge_soon(driver)
        except RuntimeError:  # a plain function, on a thread without a loop
            driver.nudge()

    async def wait(self, ticket: Ticket) -> None:
        """Wait until the ticket is settled, which wakes this task."""
        await self._current_waker().settled(ticket)

    def _last_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of this thread; on a thread without one, that of the last task seen here."""
        try:
            return self._current_waker().loop
        except RuntimeError:
            if self._waker is None:
                raise
            return self._waker.loop

    def _current_waker(self) -> Waker:
        loop = asyncio.get_running_loop()
        waker = self._waker
        if waker is None or waker.loop is not loop:
            waker = self._waker = Waker(loop)
        return waker

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Await it; a plain function runs on a worker thread, in a copy of the context."""
        if seconds is None:
            return await self._invoke(function, args, named)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._invoke_abandonable(function, args, named)
        except TimeoutError:
            if limit.expired():
                raise late(seconds) from None
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
        """Sleep without blocking the loop."""
        await asyncio.sleep(seconds)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run them concurrently, up to `AT_ONCE` at a time."""
        limit = asyncio.Semaphore(self.AT_ONCE)

        async def limited(coroutine: Coroutine[Any, Any, T]) -> T:
            async with limit:
                return await coroutine

        try:
            return await asyncio.gather(*map(limited, coroutines))
        finally:
            for coroutine in coroutines:
                if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:  # cancelled before it started
                    coroutine.close()

    async def side_by_side(self, branches: Sequence[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
        """Run each branch in a task."""
        running = [asyncio.ensure_future(branch) for branch in branches]
        pending = set(running)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in filter(done.__contains__, running):
                    yield task.result()
        finally:
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.gather(*pending, return_exceptions=True)

    def branch(self) -> int:
        """Return the id of the task; outside of tasks, of the thread."""
        try:
            return id(asyncio.current_task())
        except RuntimeError:
            return get_ident()

    def others(self, belongs: Callable[[Context], bool]) -> Collection[object]:
        """Return the other tasks of the event loop, and the work in our pools."""
        return [*tasks.other_tasks(self._last_loop(), belongs), *other_work(belongs)]

    def for_plain_code(self) -> Ports:
        """Return blocking ports: code that cannot await has a thread to block."""
        plain = BlockingPorts()
        plain.clock = self.clock
        return plain

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it, and await what it returns if that is awaitable."""
        result = function(*args)
        return await result if isinstance(result, Awaitable) else result

    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Call it. A plain step of an awaitable run emits events too, and cannot await: the loop runs the listener."""
        result = listener(event)
        if not isinstance(result, Awaitable):
            return
        if get_ident() in stepping:
            self._last_loop().call_soon_threadsafe(asyncio.ensure_future, result)
        else:
            await tasks.heard(result)

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await it in a separate task, which is not cancelled."""
        return await tasks.shielded(coroutine)

    def is_cancelled_by(self, error: BaseException | None) -> bool:
        """True for a `CancelledError` of the current task, and not of a task it waited for."""
        return tasks.is_cancelled_by(error)

    def is_raised_cancellation(self, error: BaseException) -> bool:
        """True for a `CancelledError` while the current task is not being cancelled."""
        return isinstance(error, asyncio.CancelledError) and not self.is_cancelled_by(error)

    def close(self) -> None:
        """End the threads once they are idle."""
        for executor in (self._executor, self._step_executor):
            if executor is not None:
                executor.shutdown(wait=False)
        self._executor = self._step_executor = None

    def _threads(self) -> ThreadPoolExecutor:
        self._forget_parents_threads()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.THREADS, "holdfast")
        return self._executor

    def _step_threads(self) -> ThreadPoolExecutor:
        self._forget_parents_threads()
        if self._step_executor is None:
            self._step_executor = ThreadPoolExecutor(self.STEP_THREADS, "holdfast-step")
        return self._step_executor

    def _forget_parents_threads(self) -> None:
        # A forked child has its parent's executors but none of their threads.
        if self._process != os.getpid():
            self._executor = self._step_executor = None
            self._process = os.getpid()


def _without_stop_iteration(function: Callable[[], T]) -> T:
    """Call it. A StopIteration becomes a RuntimeError, as in any coroutine: no future can raise it."""
    try:
        return function()
    except StopIteration as stop:
        raise RuntimeError("the function raised StopIteration") from stop


def _is_async(function: Callable[..., Any]) -> bool:
    """True for what must be called on the event loop: async functions, wrapped or with an async __call__."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
