"""Read the chunks of a user's stream: a plain iterator, or in the awaitable world also an async one."""

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
    """A started stream. Its code runs in the frame of its turn; between two chunks that frame is not active."""

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
                f"the function of a stream must return an iterator of chunks, got {type(stream).__name__}"
                " (holdfast.sync takes plain iterators, holdfast also async ones)"
            )

    async def chunk(self) -> Any:
        """Return the next chunk, or END."""
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
        """Close the stream so that its code can clean up, unless it still runs on an abandoned thread."""
        if isinstance(self._stream, AsyncGenerator):
            await self._stream.aclose()
        elif isinstance(self._stream, GeneratorType) and not self._stream.gi_running:
            self._stream.close()


class OpenStreams:
    """The open streams of a session: started, not read to the end, not closed."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {}
        """The turns being streamed, each by one reader."""
        self._streams: WeakSet[AsyncGenerator[Any, None]] = WeakSet()

    def refuse(self, shown: str) -> NoReturn:
        """Refuse a turn that is being streamed: waiting for it could deadlock, as the caller may be its reader."""
        raise ConfigurationError(f"turn {shown!r} is being streamed; read that stream to the end or close it first")

    @contextmanager
    def opened(self, name: str, shown: str) -> Iterator[None]:
        """Mark a turn as being streamed."""
        mine = object()
        if self.names.setdefault(name, mine) is not mine:
            self.refuse(shown)
        try:
            yield
        finally:
            del self.names[name]

    def add(self, stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Track a stream while it is referenced."""
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Close the streams that have no active reader."""
        for stream in tuple(self._streams):
            if isinstance(stream, AsyncGeneratorType) and not stream.ag_running:
                await stream.aclose()


@asynccontextmanager
async def opened(ports: Ports, frame: Frame, timeout: float | None) -> AsyncIterator[Source]:  # noqa: ASYNC109  the stream's
    """Open a source, and close it on every way out."""
    source = Source(ports, frame, timeout)
    try:
        yield source
    finally:
        await source.close()
