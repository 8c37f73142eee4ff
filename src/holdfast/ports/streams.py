"""Async generators inside async generators: the event loop must close only the outermost."""

import sys
from collections.abc import AsyncGenerator, Awaitable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


def _left_alone(_stream: object) -> None:
    """Do nothing with a generator that its outer one did not close: its event loop is already closed."""


class nested(Generic[T]):  # noqa: N801  used as a verb: `async with nested(stream) as items`
    """Closes a generator inside a generator, as `contextlib.aclosing` does.

    An event loop closes all remaining generators at once when it ends. It would close the inner one while the outer one
    does, which is an error.
    """

    def __init__(self, stream: AsyncGenerator[T, None]) -> None:
        self._stream = stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[T]:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, _left_alone)
        try:
            return anext(self._stream)
        finally:
            sys.set_asyncgen_hooks(*hooks)
