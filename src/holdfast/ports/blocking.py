"""The blocking world: everything runs inline, and coroutines are stepped to their end without an event loop."""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from contextvars import Context
from functools import partial
from threading import Event, current_thread, get_ident
from threading import enumerate as enumerate_threads
from typing import Any, ParamSpec, TypeVar

from holdfast.ports.carried import other_work
from holdfast.ports.contract import Ports
from holdfast.ports.tickets import Driver, Helper, Ticket, late
from holdfast.records.errors import ConfigurationError
from holdfast.records.tracebacks import hide_our_frames

T = TypeVar("T")
P = ParamSpec("P")

OUR_THREADS = "holdfast"
"""The prefix of the names of our threads."""


class BlockingPorts(Ports):
    """Runs everything inline: no event loop, and no threads except for branches."""

    blocking = True
    MOST_THREADS = 64

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it."""
        return function(*args, **kwargs)

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Commit it now, with all other waiting writes."""
        driver.drive(ticket)
        return ticket.result()

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """Commit it now."""
        driver.drive(ticket)

    async def wait(self, ticket: Ticket) -> None:
        """Block until another thread settles it."""
        settled = Event()
        ticket.when_settled(settled.set)
        settled.wait()

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Call it here; with a timeout, on a helper thread that is abandoned when time is up."""
        if seconds is None:
            result = function(*args, **named)
            return result if type(result) in _PLAIN else _plain_result(result, function)
        helper, settled = Helper(partial(function, *args, **named)), Event()
        helper.when_settled(settled.set)
        if not settled.wait(seconds):
            raise late(seconds)
        return _plain_result(helper.returned(), function)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251  there is no loop

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run them one after the other."""
        try:
            return [await coroutine for coroutine in coroutines]
        finally:
            for coroutine in coroutines:
                coroutine.close()

    async def side_by_side(self, branches: Sequence[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
        """Run each branch on a thread, in a copy of the caller's context; a single one on this thread."""
        if len(branches) < 2:
            for branch in branches:
                yield await branch
            return
        from concurrent.futures import as_completed

        from holdfast.ports.pool import pool

        threads = pool(min(len(branches), self.MOST_THREADS))
        try:
            for ended in as_completed([threads.submit(run_blocking, branch) for branch in branches]):
                yield ended.result()
        finally:
            threads.shutdown(cancel_futures=True)
            for branch in branches:
                branch.close()

    def branch(self) -> int:
        """Return the id of the thread."""
        return get_ident()

    def others(self, belongs: Callable[[Context], bool]) -> Collection[object]:
        """Return the work in our pools, and all threads that are not ours: their contexts are not accessible."""
        current = current_thread()
        others = [each for each in enumerate_threads() if not each.name.startswith(OUR_THREADS)]
        return [*other_work(belongs), *(each for each in others if each is not current)]

    def for_plain_code(self) -> Ports:
        """Return self: these ports already block."""
        return self

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it. If it returns an awaitable, raise an error that names the awaitable API."""
        return _plain_result(function(*args), function)

    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Call it."""
        await self.call(listener, event)

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await it: nothing can be cancelled here."""
        return await coroutine

    def is_cancelled_by(self, error: BaseException | None) -> bool:
        """Return False: nothing can be cancelled here."""
        return False

    def is_raised_cancellation(self, error: BaseException) -> bool:
        """Return False: `CancelledError` has no meaning here."""
        return False

    def close(self) -> None:
        """Do nothing: there are no threads."""


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})
"""The types that most functions return."""


def _plain_result(result: Any, function: Callable[..., Any]) -> Any:
    """Return the result of a plain function; raise ConfigurationError if it was async."""
    if getattr(type(result), "__await__", None) is None:
        return result
    named: Any = getattr(function, "func", function)
    if isinstance(result, Coroutine):
        result.close()
        named = result  # it may belong to a function that the given one called
    name = getattr(named, "__qualname__", repr(function))
    raise ConfigurationError(f"{name} is async; holdfast.sync takes plain functions (use holdfast for async ones)")


stepping: set[int] = set()
"""The threads that step a coroutine without an event loop."""


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Step a coroutine over `BlockingPorts` to its end. It never waits, so one step is all it takes."""
    thread = get_ident()
    is_outermost = thread not in stepping
    stepping.add(thread)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except Exception as error:
        hide_our_frames(error)
        raise
    finally:
        if is_outermost:
            stepping.discard(thread)
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
