"""Agents of both worlds for scenarios that are written once."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from inspect import isasyncgenfunction
from typing import Any

import holdfast
from holdfast import sync
from holdfast.ports import run_blocking
from runs.worlds import Calls, World, plain


def agent(world: World, function: Callable[..., Any], store: Any = None, **options: Any) -> Any:
    """An agent over the world's store (or another of its handles) whose calls are awaited."""
    store = world.store if store is None else store
    if world.name == "awaitable":
        return holdfast.Agent(function, store=store, **options)
    given = {name: plain(value) for name, value in options.items()}
    if "compensators" in options:
        given["compensators"] = {name: plain(value) for name, value in options["compensators"].items()}
    return Calls(sync.Agent(blocking(function), store=store._inner, **given))


def doomed_store(world: World) -> Any:
    """The store of a process that is dead once `world.die_at_next_write` was called."""
    store = world.open()
    world._doomed = world.faults[-1]
    return store


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """An `async def`, also one that yields, as a plain function."""
    if not isasyncgenfunction(function):
        plainly: Callable[..., Any] = plain(function)
        return plainly

    @wraps(function)
    def items(*args: Any, **named: Any) -> Iterator[Any]:
        made = function(*args, **named)
        try:
            while True:
                try:
                    yield run_blocking(_next(made))
                except StopAsyncIteration:
                    return
        finally:
            run_blocking(made.aclose())

    return items


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items)


async def stored(receipt: Any) -> None:
    """Wait for a receipt of either world."""
    if isinstance(receipt, sync.Receipt):
        receipt.wait()
    else:
        await receipt


async def streamed(made: Any, *args: Any, **named: Any) -> AsyncIterator[Any]:
    """What an agent of either world streams."""
    if isinstance(made, Calls):
        items = made._inner.stream(*args, **named)
        try:
            for item in items:
                yield item
        finally:
            items.close()
    else:
        stream = made.stream(*args, **named)
        try:
            async for item in stream:
                yield item
        finally:
            await stream.aclose()
