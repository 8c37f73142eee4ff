"""Agents that yield: switch between the agent's run and the consumer's context at every item."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from inspect import isasyncgen
from types import TracebackType
from typing import Any, Self

from holdfast.ports import Ports
from holdfast.runs.driver import Run, RunBlock, run_context, set_run_context
from holdfast.runtimes.agent.recorder import current_recorder

_END = object()


class Items:
    """A run that pauses at each item; meanwhile the consumer is not inside the run."""

    def __init__(self, block: RunBlock) -> None:
        self._block = block
        self._outer = _current_context()
        """The consumer's context when it last asked for an item."""
        self.run: Run

    async def __aenter__(self) -> Self:
        self.run = await self._block.enter()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            await self._block.leave(error)
        finally:
            _enter_context(self._outer)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the run while the consumer handles an item."""
        inner = _current_context()
        _enter_context(self._outer)
        try:
            yield
        finally:
            self._outer = _current_context()
            _enter_context(inner)


def _current_context() -> Any:
    return run_context(), current_recorder.get()


def _enter_context(context: Any) -> None:
    set_run_context(context[0])
    current_recorder.set(context[1])


async def items_of(
    ports: Ports, function: Callable[..., Any], task: Any, named: Mapping[str, Any]
) -> AsyncIterator[Any]:
    """Iterate over a generator function, async or plain."""
    made = function(task, **named)
    if isasyncgen(made):
        try:
            async for item in made:
                yield item
        finally:
            await made.aclose()
        return
    context = copy_context()  # one for all items, on whichever threads they are made: it is one branch of the run
    try:
        while (item := await ports.invoke(context.run, (next, made, _END), {}, None)) is not _END:
            yield item
    finally:
        made.close()
