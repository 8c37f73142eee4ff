"""Agents that yield: what is theirs between two items, and what belongs to whoever consumes them."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import isasyncgen
from types import TracebackType
from typing import Any, Self

from holdfast.ports import Ports
from holdfast.runs.block import RunBlock
from holdfast.runs.run import Run
from holdfast.runs.scope import current_frame
from holdfast.runtimes.agent.hands import current_hands

_END = object()


class Items:
    """A run whose code pauses: meanwhile the consumer is in no run of ours."""

    def __init__(self, block: RunBlock) -> None:
        self._block = block
        self._outer = current_frame.get(), current_hands.get()
        """Where the consumer is, as of when it last asked for an item."""
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
            _set(*self._outer)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While an item is with the consumer."""
        inner = current_frame.get(), current_hands.get()
        _set(*self._outer)
        try:
            yield
        finally:
            self._outer = current_frame.get(), current_hands.get()
            _set(*inner)


def _set(frame: Any, hands: Any) -> None:
    current_frame.set(frame)
    current_hands.set(hands)


async def items_of(
    ports: Ports, function: Callable[..., Any], task: Any, named: Mapping[str, Any]
) -> AsyncIterator[Any]:
    """What a generator function yields, async or plain."""
    made = function(task, **named)
    if isasyncgen(made):
        try:
            async for item in made:
                yield item
        finally:
            await made.aclose()
        return
    try:
        while (item := await ports.invoke(next, (made, _END), {}, None)) is not _END:
            yield item
    finally:
        made.close()
