"""A process that dies on demand: it counts what it does to the world, and ends at the n-th point.

There is a point before and after every effect: a write of the backend, a call of a user's function, a sleep. Reads are
no effects: a death between two of them leaves the same world as one before them. Nothing waits for real, and nothing
runs on another thread, so that the same program has the same points each time.
"""

from asyncio import AbstractEventLoop, all_tasks, get_running_loop, new_event_loop
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, ParamSpec, Protocol, TypeVar

from holdfast.ports import BlockingPorts, Driver, Ports, Signal, Ticket
from holdfast.ports.awaitable import AsyncPorts
from holdfast.records.head import Head, decode_head
from holdfast.records.rows import Swap
from holdfast.runs.scope import Frame, current_frame
from holdfast.stores.backend import Backend
from holdfast.testing.clock import Clock
from holdfast.testing.faults import WRITES, Crash, FaultyBackend

P = ParamSpec("P")
T = TypeVar("T")


class Died(Crash, KeyboardInterrupt):
    """The process is dead.

    A KeyboardInterrupt, because asyncio ends its loop at once for nothing else: no other task gets one more turn.
    """


class Witness(Protocol):
    """Records which steps a life executes."""

    def executes(self, frame: Frame) -> None:
        """The function of a step is about to be called."""
        ...

    def failed(self, frame: Frame) -> None:
        """The function of a step raised an error."""
        ...


class Life:
    """One process: what it did so far, and at which point it is to die (0: at none)."""

    def __init__(self, number: int, clock: Clock, crash_at: int = 0) -> None:
        self.number = number
        self.clock = clock
        self.points: list[str] = []
        self.dead = False
        self._crash_at = crash_at
        self._owners = 0

    def check(self) -> None:
        """A dead process does nothing more."""
        if self.dead:
            raise Died(f"life {self.number} is over")

    def point(self, what: str) -> None:
        """Pass one point, or die there."""
        self.check()
        self.points.append(what)
        if len(self.points) == self._crash_at:
            self.dead = True
            raise Died(what)

    @contextmanager
    def effect(self, what: str) -> Iterator[None]:
        """A point before what is done within, and one after it."""
        self.point(f"before {what}")
        try:
            yield
        except Exception:
            self.point(f"after {what} failed")
            raise
        self.point(f"after {what}")

    def new_owner(self) -> str:
        """A name for a new claim of this process."""
        self._owners += 1
        return f"life-{self.number}:{self._owners}"

    def outlives(self, owner: str) -> bool:
        """True if that claim was made by an earlier life. Lives follow each other, so that one is over."""
        kind, _, number = owner.partition(":")[0].rpartition("-")
        return kind == "life" and int(number) < self.number


class CrashPorts(Ports):
    """The ports of one life, over blocking or awaitable ones. Its clock goes on only by its sleeps."""

    def __init__(self, inner: Ports, life: Life, witness: Witness, seed: int = 0) -> None:
        self.blocking = inner.blocking
        self._inner = inner
        self._life = life
        self._witness = witness
        self._random = Random(f"{seed}/{life.number}")  # noqa: S311  the same each time, and no secret

    def now(self) -> int:
        """The time of the case's clock."""
        return self._life.clock.now

    def entropy(self, count: int) -> bytes:
        """The same bytes for the same seed and life."""
        return self._random.randbytes(count)

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The backend passes the points within."""
        self._life.check()
        return await self._inner.perform(function, *args, **kwargs)

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """The backend passes the points of the commit."""
        self._life.check()
        return await self._inner.settle(ticket, driver)

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """As `settle`."""
        self._life.check()
        self._inner.dispatch(ticket, driver)

    async def wait(self, ticket: Ticket) -> None:
        """The thread that settles the ticket passes the points."""
        self._life.check()
        await self._inner.wait(ticket)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """A user's function."""
        self._life.check()
        return await self._inner.call(function, *args)

    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Listeners hear of what is done; a death there is one right after it."""
        self._life.check()
        await self._inner.notify(listener, event)

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """A point before the user's function and one after it; of a step, the witness hears."""
        frame = current_frame.get()
        if frame is None or not frame.idempotency_key or function is next:  # the next chunk of a stream that was begun
            with self._life.effect(_name_of(function)):
                return await self._inner.invoke(function, args, named, seconds)
        with self._life.effect(f"step {frame.scope.prefix.removesuffix('/')!r}"), self._witnessed(frame):
            return await self._inner.invoke(function, args, named, seconds)

    @contextmanager
    def _witnessed(self, frame: Frame) -> Iterator[None]:
        self._witness.executes(frame)
        try:
            yield
        except Exception:
            self._witness.failed(frame)
            raise

    async def sleep(self, seconds: float) -> None:
        """Nobody waits: the clock is put forward. Sleeps side by side take as long as the longest."""
        due = self.now() + round(seconds * 1_000_000)
        with self._life.effect(f"a sleep of {seconds:g} s"):
            await self._inner.sleep(0)
            self._life.clock.now = max(self._life.clock.now, due)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """As the world does it."""
        return await self._inner.gather(coroutines)

    async def side_by_side(self, branches: Sequence[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
        """In the blocking world one after the other, without threads: their order is always the same."""
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

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """As the world does it."""
        return await self._inner.shielded(coroutine)

    def is_cancelled_by(self, error: BaseException | None) -> bool:
        """As the world sees it."""
        return self._inner.is_cancelled_by(error)

    def is_raised_cancellation(self, error: BaseException) -> bool:
        """As the world sees it."""
        return self._inner.is_raised_cancellation(error)

    def owner(self) -> str:
        """Names this life."""
        return self._life.new_owner()

    def is_certainly_dead(self, owner: str) -> bool:
        """True for the claims of earlier lives."""
        return self._life.outlives(owner)

    def lock(self) -> AbstractContextManager[Any]:
        """One of the inner world."""
        return self._inner.lock()

    def branch(self) -> int:
        """The task or thread."""
        return self._inner.branch()

    def others(self, belongs: Callable[[Context], bool]) -> Collection[object]:
        """As the world sees them."""
        return self._inner.others(belongs)

    def beat(self, tick: Callable[[], float | None], woken: Signal) -> None:
        """Time stands still between sleeps, so no lease needs to be renewed."""

    def tell(self, text: str) -> None:
        """There is nobody at the terminal."""

    def for_plain_code(self) -> "CrashPorts":
        """The same life, blocking."""
        if self.blocking:
            return self
        twin = CrashPorts(self._inner.for_plain_code(), self._life, self._witness)
        twin._random = self._random  # one source for both
        return twin

    def close(self) -> None:
        """Nothing is held."""


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return f"{getattr(function, '__name__', type(function).__name__)}()"


class PromptPorts(AsyncPorts):
    """Awaitable ports without threads: what would go to one is done on the loop, so that its order is always the same.

    Writes are still committed together with the others of the same turn of the loop.
    """

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Let the others of this turn add their writes, then commit."""
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
    """Calls what it is given, here and now."""

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """A future that is done."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  raised where the future is awaited
            future.set_exception(error)
        return future


@contextmanager
def mortal_loop() -> Iterator[AbstractEventLoop]:
    """An event loop of its own. The tasks that a death leaves in it get no further turn, and no warning."""
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
    """Ports for one life in either world."""
    return CrashPorts(PromptPorts() if awaitable else BlockingPorts(), life, witness, seed)


class MortalBackend(FaultyBackend):
    """A backend as one life sees it: a point before and after each write, and nothing at all once it is dead."""

    def __init__(self, inner: Backend, life: Life) -> None:
        super().__init__(inner)
        self._life = life

    def _do(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._life.check()
        if name not in WRITES:
            return function(*args, **kwargs)
        with self._life.effect(_message_of(args) if name == "post" else _write_of(args)):
            return function(*args, **kwargs)

    def close(self) -> None:
        """Leave it open, as a killed process does: the maker of the backend closes it."""


def _message_of(args: Sequence[Any]) -> str:
    return f"message {args[1]!r}"


def _write_of(args: Sequence[Any]) -> str:
    return ", ".join(_described(swap) for swap in args[0])


def _described(swap: Swap) -> str:
    if swap.rows:
        return " and ".join(f"row {row.seq}" for row in swap.rows)
    old, new = decode_head(swap.thread, swap.expected) if swap.expected else Head(), swap.head
    if new.deleted:
        return "the tombstone"
    if new.owner and new.token != old.token:
        return f"claim {new.token}"
    return f"the release as {new.status}" if old.owner and not new.owner else "a change of the head"
