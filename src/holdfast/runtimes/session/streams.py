"""The chunks of a user's stream, in both worlds: a plain iterator, or in the awaitable world also an async one."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

from holdfast.ports import Ports
from holdfast.records.errors import ConfigurationError, StepTimeout
from holdfast.runs.driver import Frame, within

T = TypeVar("T")

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
        with within(self._frame):
            stream = await self._ports.invoke(function, (), {}, self._seconds_left())
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
        with within(self._frame):
            return await self._pulled()

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


class OpenStreams:
    """The streams of a session that were begun, and are neither read to their end nor closed."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {}
        """The turns that are being streamed, each by one reader."""
        self._streams: WeakSet[AsyncGenerator[Any, None]] = WeakSet()

    def refuse(self, shown: str) -> NoReturn:
        """Not while it is being streamed: the caller that waited for its end might be the one to read it."""
        raise ConfigurationError(f"turn {shown!r} is being streamed; read that stream to its end, or close it")

    @contextmanager
    def opened(self, name: str, shown: str) -> Iterator[None]:
        """A turn is being streamed, by one reader."""
        mine = object()
        if self.names.setdefault(name, mine) is not mine:
            self.refuse(shown)
        try:
            yield
        finally:
            del self.names[name]

    def add(self, stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Remember a stream for as long as anybody has it."""
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Close those that nobody is reading."""
        for stream in tuple(self._streams):
            if isinstance(stream, AsyncGeneratorType) and not stream.ag_running:
                await stream.aclose()


@asynccontextmanager
async def opened(ports: Ports, frame: Frame, timeout: float | None) -> AsyncIterator[Source]:  # noqa: ASYNC109  the stream's
    """A source that is closed however it is left."""
    source = Source(ports, frame, timeout)
    try:
        yield source
    finally:
        await source.close()
