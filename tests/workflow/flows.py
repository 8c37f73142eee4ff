"""Workflows for scenarios: executors are written once, as async code, and are played in either world."""

from collections.abc import AsyncIterator, Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import holdfast
from holdfast import Executor, sync
from holdfast.ports import run_blocking
from holdfast.runtimes.workflow.executors import FunctionExecutor, WorkflowExecutor
from runs.worlds import World


class AwaitedContext:
    """A blocking context whose calls are awaited."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send_message(self, *args: Any, **named: Any) -> None:
        self._inner.send_message(*args, **named)

    async def yield_output(self, output: Any) -> None:
        self._inner.yield_output(output)

    async def request_info(self, *args: Any) -> None:
        self._inner.request_info(*args)

    async def step(self, name: str, function: Any, *args: Any, **policy: Any) -> Any:
        return self._inner.step(name, plain(function), *args, **policy)


def plain(function: Any) -> Any:
    """An async function as a plain one, whose context is awaited."""
    if not iscoroutinefunction(function):
        return function

    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        given = [AwaitedContext(each) if isinstance(each, sync.WorkflowContext) else each for each in args]
        return run_blocking(function(*given, **named))

    return called


def of_world(world: World, executor: Any) -> Any:
    """The executor as the world takes it."""
    if world.name == "awaitable" or not isinstance(executor, Executor):
        return executor
    known: dict[int, Any] = world.__dict__.setdefault("executors", {})
    if id(executor) not in known:
        known[id(executor)] = (_plain_twin(executor), executor)
    return known[id(executor)][0]


def _plain_twin(executor: Executor) -> Executor:
    if isinstance(executor, WorkflowExecutor):
        return executor
    if isinstance(executor, FunctionExecutor):
        return FunctionExecutor(plain(executor.function), executor.id)
    kind = type(executor)
    methods = {name: plain(value) for name in dir(kind) if iscoroutinefunction(value := getattr(kind, name))}
    plain_kind: Any = type(kind.__name__, (kind,), methods)
    twin: Executor = object.__new__(plain_kind)
    twin.__dict__ = executor.__dict__
    return twin


class Builder:
    """A builder of the world: what it is given is made to fit."""

    def __init__(self, world: World, start: Any, **options: Any) -> None:
        self._world = world
        store = options.pop("store", world.store)
        kind: Any = holdfast.WorkflowBuilder if world.name == "awaitable" else sync.WorkflowBuilder
        inner = store if world.name == "awaitable" else store._inner
        self._builder = kind(of_world(world, start), inner, **options)

    def __getattr__(self, name: str) -> Callable[..., "Builder"]:
        def call(*args: Any, **named: Any) -> Builder:
            getattr(self._builder, name)(*map(self._fitted, args), **{k: self._fitted(v) for k, v in named.items()})
            return self

        return call

    def _fitted(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return type(given)(map(self._fitted, given))
        if isinstance(given, Executor):
            return of_world(self._world, given)
        return plain(given) if self._world.name == "blocking" else given

    def build(self) -> "Flow":
        return Flow(self._world, self._builder.build())


class Flow:
    """A workflow of either world, awaited."""

    def __init__(self, world: World, inner: Any) -> None:
        self._world = world
        self.inner = inner
        self.name = inner.name
        self.graph = inner.graph

    async def run(self, *args: Any, **named: Any) -> holdfast.WorkflowResult:
        result = self.inner.run(*args, **named)
        return await result if self._world.name == "awaitable" else result  # type: ignore[no-any-return]

    async def stream(self, *args: Any, **named: Any) -> AsyncIterator[holdfast.WorkflowEvent]:
        events = self.inner.run(*args, **named, stream=True)
        if self._world.name == "awaitable":
            async for event in await events:
                yield event
        else:
            for event in events:
                yield event

    async def latest(self) -> Any:
        found = self.inner.latest()
        return await found if self._world.name == "awaitable" else found

    async def checkpoints(self, thread_id: str | None = None) -> Any:
        found = self.inner.checkpoints(thread_id)
        return await found if self._world.name == "awaitable" else found


def types_of(events: list[Any], *but: str) -> list[str]:
    """The types of events, without some."""
    return [event.type for event in events if event.type not in but]
