"""The chunks of a user's stream, in both worlds: a plain iterator, or in the awaitable world also an async one."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import GeneratorType
from typing import Any

from holdfast.ports import Ports
from holdfast.records.errors import ConfigurationError, StepTimeout
from holdfast.runs.scope import Frame, current_frame

END = object()


class Source:
    """A stream that was begun. Its code belongs to the turn's frame whenever it runs, and never while it rests."""

    def __init__(self, ports: Ports, frame: Frame, timeout: float | None) -> None:
        self._ports = ports
        self._frame = frame
        self._give_up_at = None if timeout is None else ports.now() + round(timeout * 1e6)
        self._stream: Any = None

    async def begin(self, function: Callable[[], Any]) -> None:
        """Call the function that returns the stream."""
        with_frame = current_frame.set(self._frame)
        try:
            stream = await self._ports.invoke(function, (), {}, self._seconds_left())
        finally:
            current_frame.reset(with_frame)
        if isinstance(stream, AsyncIterator) and not self._ports.blocking:
            self._stream = stream
        elif isinstance(stream, Iterable) and not isinstance(stream, str | bytes):
            self._stream = iter(stream)
        else:
            raise ConfigurationError(
                f"a stream's function returns an iterator of chunks, not {type(stream).__name__}"
                " (holdfast.sync takes plain iterators, holdfast async ones too)"
            )

    async def chunk(self) -> Any:
        """The next chunk, or END."""
        with_frame = current_frame.set(self._frame)
        try:
            return await self._pulled()
        finally:
            current_frame.reset(with_frame)

    async def _pulled(self) -> Any:
        stream, seconds = self._stream, self._seconds_left()
        if isinstance(stream, AsyncIterator):

            async def pull() -> Any:
                return await anext(stream, END)

            return await (self._ports.call(pull) if seconds is None else self._ports.invoke(pull, (), {}, seconds))
        if self._ports.blocking and seconds is None:
            return next(stream, END)
        return await self._ports.invoke(next, (stream, END), {}, seconds)

    def _seconds_left(self) -> float | None:
        if self._give_up_at is None:
            return None
        left = (self._give_up_at - self._ports.now()) / 1e6
        if left <= 0:
            raise StepTimeout("the stream did not end in time", type="StepTimeout")
        return left

    async def close(self) -> None:
        """Let the stream's own code clean up; not if it still runs, abandoned, on a thread of its own."""
        if isinstance(self._stream, AsyncGenerator):
            await self._stream.aclose()
        elif isinstance(self._stream, GeneratorType) and not self._stream.gi_running:
            self._stream.close()


@asynccontextmanager
async def opened(ports: Ports, frame: Frame, timeout: float | None) -> AsyncIterator[Source]:  # noqa: ASYNC109  the stream's
    """A source that is closed however it is left."""
    source = Source(ports, frame, timeout)
    try:
        yield source
    finally:
        await source.close()
