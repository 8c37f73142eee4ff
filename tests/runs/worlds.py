"""Both worlds under one set of tests: what is written once as `async def` is awaited in one, and called in the other.

A scenario uses the names of `holdfast` and awaits everything. In the blocking world each of these calls is one of
`holdfast.sync`, made when it is awaited, and no event loop runs. Functions that a scenario hands over (of steps,
durable functions, handlers) become plain ones there.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial, wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, TypeVar, cast

import holdfast
from holdfast import sync
from holdfast.ports import BlockingPorts, Ports, run_blocking
from holdfast.ports.awaitable import AsyncPorts
from holdfast.runs.store import Store
from holdfast.stores.backend import Backend
from holdfast.testing.clock import Clock
from holdfast.testing.faults import Crash, Fault, FaultyBackend
from holdfast.testing.handles import blocking_store
from holdfast.testing.places import Place

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
SWAPS = frozenset({"swap"})


class World:
    """One world over one place, with a clock that only a test and sleeps move, and stores that can be made to fail."""

    name: str
    api: Any
    """`holdfast`, or its blocking twin with calls to be awaited."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.clock = Clock()
        self.slept: list[float] = []
        self.dies_asleep = False
        self._doomed: FaultyBackend | None = None
        self.faults: list[FaultyBackend] = []
        self._stores: list[Any] = []
        self._store: holdfast.Store | None = None

    @property
    def store(self) -> holdfast.Store:
        """The store that most of a scenario uses."""
        if self._store is None:
            self._store = self.open()
        return self._store

    def open(self, wrap: Callable[[Backend], FaultyBackend] = FaultyBackend, **options: Any) -> holdfast.Store:
        """Another handle on the place, as another process would have. `wrap` may break its backend on purpose."""
        self.faults.append(wrap(self.place.open()))
        store = self._open(self.faults[-1], **options)
        self._stores.append(store)
        return cast("holdfast.Store", store)

    def die_at_next_write(self) -> None:
        """The next write of the doomed run does not happen any more: its process is dead by then."""
        assert self._doomed is not None
        self._doomed.plan = Fault(1, "crash before", SWAPS)

    @asynccontextmanager
    async def doomed(self, thread_id: str, **terms: Any) -> AsyncIterator[holdfast.Run]:
        """A run in a process that is dead at the end of the block at the latest; then its lease expires."""
        store = self.open()
        self._doomed = self.faults[-1]
        try:
            async with store.run(thread_id, **terms) as run:
                yield run
                self.die_at_next_write()
        except Crash:
            self.clock.advance(60)

    def play(self, scenario: Coroutine[Any, Any, T]) -> T:
        """The scenario's end; the stores are closed with it."""
        raise NotImplementedError

    async def gather(self, *branches: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run branches at the same time, as tasks or threads of the run they are in. The first error is raised."""
        raise NotImplementedError

    def step(self, **policy: Any) -> Callable[[F], F]:
        """The decorator for steps, for an `async def` of the scenario."""
        raise NotImplementedError

    def durable(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """The decorator for durable functions, for an `async def` of the scenario."""
        raise NotImplementedError

    def _open(self, backend: Backend, **options: Any) -> Any:
        raise NotImplementedError


class AwaitableWorld(World):
    """`holdfast`, on an event loop."""

    name = "awaitable"
    api = holdfast

    def _open(self, backend: Backend, **options: Any) -> Store:
        return Store(backend, ports=_AwaitablePorts(self), on_close=_nothing, **options)

    def play(self, scenario: Coroutine[Any, Any, T]) -> T:
        async def whole() -> T:
            try:
                return await scenario
            finally:
                for store in self._stores:
                    await store.close()

        return asyncio.run(whole())

    async def gather(self, *branches: Coroutine[Any, Any, Any]) -> list[Any]:
        return list(await asyncio.gather(*branches))

    def step(self, **policy: Any) -> Callable[[F], F]:
        return cast("Callable[[F], F]", holdfast.step(**policy))

    def durable(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        return holdfast.durable(**{"store": self.store, **options})


class BlockingWorld(World):
    """`holdfast.sync`, without an event loop."""

    name = "blocking"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.api = Calls(sync)

    def _open(self, backend: Backend, **options: Any) -> "Calls":
        return Calls(blocking_store(backend, ports=_PlainPorts(self), closes=False, **options))

    def play(self, scenario: Coroutine[Any, Any, T]) -> T:
        try:
            return run_blocking(scenario)
        finally:
            for store in self._stores:
                run_blocking(store.close())

    async def gather(self, *branches: Coroutine[Any, Any, Any]) -> list[Any]:
        with ThreadPoolExecutor(len(branches)) as pool:
            futures = [pool.submit(copy_context().run, run_blocking, branch) for branch in branches]
        return [future.result() for future in futures]

    def step(self, **policy: Any) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            return cast("F", _awaitable(sync.step(**policy)(plain(function))))

        return decorate

    def durable(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        store = options.pop("store", self.store)._inner
        decorate = sync.durable(store=store, **options)
        return lambda function: Calls(decorate(plain(function)))


EVERY_WORLD: dict[str, type[World]] = {"awaitable": AwaitableWorld, "blocking": BlockingWorld}


def _nothing() -> None:
    """The place outlives its handles."""


# Ports


class _PlainPorts(BlockingPorts):
    """Real ports, but for time: a sleep moves the clock and ends."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> int:
        return self._world.clock.now

    async def sleep(self, seconds: float) -> None:
        _sleep(self._world, seconds)


class _AwaitablePorts(AsyncPorts):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def now(self) -> int:
        return self._world.clock.now

    async def sleep(self, seconds: float) -> None:
        _sleep(self._world, seconds)
        await asyncio.sleep(0)

    def for_plain_code(self) -> Ports:
        return _PlainPorts(self._world)


def _sleep(world: World, seconds: float) -> None:
    if world.dies_asleep:
        world.dies_asleep = False
        world.die_at_next_write()
        raise Crash("asleep")
    world.slept.append(seconds)
    world.clock.advance(seconds)


# The blocking world, awaited


class Calls:
    """A blocking object whose methods are awaited: each is called at once, and has its result by then."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name in {"current", "on_event", "record", "in_doubt", "idempotency_key"}:
            return lambda *args, **named: facade(value(*args, **named))
        if name == "run" and isinstance(self._inner, sync.Store):
            return lambda *args, **named: _Block(value(*args, **named))
        return _awaitable(value) if callable(value) and not isinstance(value, type) else value

    def __repr__(self) -> str:
        return repr(self._inner)

    def __await__(self) -> Generator[Any, None, Any]:
        return _called(self._inner.wait).__await__()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return _called(self._inner, *args, **named)


class _Block:
    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> Calls:
        return Calls(self._block.__enter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.__exit__(kind, error, trace)


def facade(value: Any) -> Any:
    """What a scenario sees of a blocking object."""
    return Calls(value) if isinstance(value, sync.Run | sync.Receipt) else value


def plain(function: Any) -> Any:
    """An `async def` as a plain function; anything else as it is."""
    if not iscoroutinefunction(function):
        return function

    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        return run_blocking(function(*map(facade, args), **named))

    return called


async def _called(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return function(*map(plain, args), **{name: plain(value) for name, value in named.items()})


def _awaitable(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    return partial(_called, function)
