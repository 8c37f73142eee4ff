"""Sessions in both worlds: a scenario awaits them, and in the blocking world each call is one of `holdfast.sync`."""

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import holdfast
from holdfast import ModelPricing, sync
from runs.worlds import BlockingWorld, Calls, World, plain

PRICES = {"model-a": ModelPricing(input_per_million=3, output_per_million=15)}


class Model:
    """What is paid for: counts its calls."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str = "?") -> str:
        self.prompts.append(prompt)
        return f"answer {len(self.prompts)} to {prompt}"

    def asked(self, prompt: str) -> Callable[[], str]:
        """A turn's function."""
        return lambda: self(prompt)


def orchestrator(world: World, *, store: Any = None, **options: Any) -> Any:
    """An orchestrator of that world; each one is another process's."""
    options = {"role": "writer", "phase": "draft", "pricing": PRICES, **options}
    store = world.store if store is None else store
    if isinstance(world, BlockingWorld):
        return _Orchestrator(sync.Orchestrator(store=store._inner, **options))
    return holdfast.Orchestrator(store=store, **options)


class _Orchestrator(Calls):
    def session(self, *args: Any, **named: Any) -> "_Block":
        return _Block(self._inner.session(*args, **named))


class _Block:
    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> "_Session":
        return _Session(self._block.__enter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.__exit__(kind, error, trace)


class _Session(Calls):
    def summary(self) -> holdfast.SessionSummary:
        return self._inner.summary()  # type: ignore[no-any-return]

    async def run_turn_stream(self, function: Any, **named: Any) -> AsyncIterator[Any]:
        stream = self._inner.run_turn_stream(plain(function), **named)
        try:
            for chunk in stream:
                yield chunk
        finally:
            stream.close()


async def collected(stream: AsyncIterator[Any], into: list[Any] | None = None) -> list[Any]:
    """The chunks of a stream; `into` a list that has them also if the stream ends with an error."""
    chunks = [] if into is None else into
    async for chunk in stream:
        chunks.append(chunk)
    return chunks
