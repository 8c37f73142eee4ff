"""A life that ends on demand, within this process: an exception stops it at the chosen crash point.

Beside the writes and steps of `crash_effects.py`, other calls of a user's functions and sleeps are effects too. Nothing
waits for real, and nothing runs on another thread, so that the same program has the same points each time.
"""

from asyncio import AbstractEventLoop, all_tasks, get_running_loop, new_event_loop
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any, TypeVar

from holdfast.ports import BlockingPorts, Driver, Ports, Signal, Ticket
from holdfast.ports.awaitable import AsyncPorts
from holdfast.records.head import Head, decode_head
from holdfast.records.rows import Swap
from holdfast.testing.clock import Clock
from holdfast.testing.crash_effects import Died, EffectCounter, EffectPorts, Witness

T = TypeVar("T")


class Life(EffectCounter):
    """One process: its crash points so far, and the number of the point at which it dies (0: at none)."""

    def __init__(self, number: int, clock: Clock, crash_at: int = 0) -> None:
        super().__init__(crash_at)
        self.number = number
        self.clock = clock
        self._owners = 0

    def name_step(self, key: str) -> str:
        """Return the name of a step's call."""
        return f"step {key!r}"

    def name_call(self, function: Callable[..., Any]) -> str:
        """Return the name of a user's function that is no step's."""
        while isinstance(function, partial):
            function = function.func
        return f"{getattr(function, '__name__', type(function).__name__)}()"

    def name_write(self, call: str, args: Sequence[Any]) -> str:
        """Return the name of a write."""
        return f"message {args[1]!r}" if call == "post" else ", ".join(map(_described, args[0]))

    def new_owner(self) -> str:
        """Return a name for a new claim of this process."""
        self._owners += 1
        return f"life-{self.number}:{self._owners}"

    def outlives(self, owner: str) -> bool:
        """True if an earlier life made that claim. Lives follow each other, so that one is over."""
        kind, _, number = owner.partition(":")[0].rpartition("-")
        return kind == "life" and int(number) < self.number


def _described(swap: Swap) -> str:
    if swap.rows:
        return " and ".join(f"row {row.seq}" for row in swap.rows)
    old, new = decode_head(swap.thread, swap.expected) if swap.expected else Head(), swap.head
    if new.deleted:
        return "the tombstone"
    if new.owner and new.token != old.token:
        return f"claim {new.token}"
    return f"the release as {new.status}" if old.owner and not new.owner else "a change of the head"


class CrashPorts(EffectPorts):
    """The ports of one life, over blocking or awaitable ones. Only sleeping moves its clock."""

    _life: Life

    def __init__(self, inner: Ports, life: Life, witness: Witness, seed: int = 0) -> None:
        super().__init__(inner, life, witness)
        self._random = Random(f"{seed}/{life.number}")  # noqa: S311  the same each time, and no secret

    def now(self) -> int:
        """Return the time of the trial's clock."""
        return self._life.clock.now

    def entropy(self, count: int) -> bytes:
        """Return the same bytes for the same seed and life."""
        return self._random.randbytes(count)

    async def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting. Parallel sleeps take as long as the longest."""
        due = self.now() + round(seconds * 1_000_000)
        with self._life.effect(f"a sleep of {seconds:g} s"):
            await self._inner.sleep(0)
            self._life.clock.now = max(self._life.clock.now, due)

    async def side_by_side(self, branches: Sequence[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
        """Run blocking branches one after the other, without threads: their order is always the same."""
        if not self.blocking:
            async for result in self._inner.side_by_side(branches):
                yield result
            return
        try:
            for branch in branches:
                yield await branch
        finally:
            for branch in branches:
                branch.close()

    def owner(self, tag: str = "") -> str:
        """Return a claim name with the number of this life."""
        return self._life.new_owner()

    def is_certainly_dead(self, owner: str) -> bool:
        """True for the claims of earlier lives."""
        return self._life.outlives(owner)

    def beat(self, tick: Callable[[], float | None], woken: Signal) -> None:
        """Do nothing: the clock only moves by sleeping, so no lease needs to be renewed."""

    def tell(self, text: str) -> None:
        """Print nothing."""

    def close(self) -> None:
        """Do nothing: no thread is held."""


class PromptPorts(AsyncPorts):
    """Awaitable ports without threads: all work is done on the loop, so that its order is always the same.

    Writes of the same turn of the loop are still committed together.
    """

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Let other tasks of this turn add their writes, then commit."""
        await self.sleep(0)
        driver.drive(ticket)
        return ticket.result()

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """Commit at the end of this turn."""
        get_running_loop().call_soon(driver.drive, ticket)

    def _threads(self) -> Any:
        return _AtOnce()

    def _step_threads(self) -> Any:
        return _AtOnce()


class _AtOnce(Executor):
    """Calls each function at once, on this thread."""

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Return a future that is done."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  raised where the future is awaited
            future.set_exception(error)
        return future


@contextmanager
def mortal_loop() -> Iterator[AbstractEventLoop]:
    """Open a new event loop. Tasks that a death leaves in it get no further turn, and no warning."""
    loop = new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    try:
        yield loop
    finally:
        for task in all_tasks(loop):
            coroutine = task.get_coro()
            if coroutine is not None:
                with suppress(BaseException):
                    coroutine.throw(Died("its process is dead"))  # unlike `close`, it reaches an async generator
                with suppress(BaseException):
                    coroutine.close()
        loop.close()


def ports_of(life: Life, witness: Witness, *, awaitable: bool, seed: int = 0) -> CrashPorts:
    """Return the ports of one life in either world."""
    return CrashPorts(PromptPorts() if awaitable else BlockingPorts(), life, witness, seed)
