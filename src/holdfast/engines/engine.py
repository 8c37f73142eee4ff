"""What all engines share: a poke that never raises, and the worker of an engine."""

import asyncio
from abc import ABC, abstractmethod
from time import monotonic

import msgspec

from holdfast.engines.segment import Segments
from holdfast.engines.urls import Place
from holdfast.ports import logger

POKE_SECONDS = 5.0
PAUSE = 5
"""An engine that could not be reached is left alone for this many times as long as the attempt took."""


class Work(msgspec.Struct, frozen=True):
    """How a process serves an engine."""

    segments: Segments
    concurrency: int
    grace: float
    ready: asyncio.Event
    """Set once the engine knows the worker."""
    stopped: asyncio.Event

    async def until_stopped(self) -> None:
        """Wait for the end of the work; then hand every thread over at its next step."""
        await self.stopped.wait()
        self.segments.hand_over()


class ServingEngine(ABC):
    """An engine as a store and a worker see it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._away_until = 0.0

    def poke(self, thread_id: str, priority: int = 0) -> None:
        """Let the engine look at a thread soon. Blocking; never raises."""
        began = monotonic()
        if began < self._away_until:
            return
        try:
            self.send(thread_id, priority)
        except Exception as error:  # noqa: BLE001  the agenda has the thread: a worker pokes again
            self._away_until = monotonic() + PAUSE * (monotonic() - began)
            where = f"{self.place.kind} at {self.place.host}"
            logger().warning("cannot reach %s (%s); threads are kept, and poked later", where, type(error).__name__)

    @abstractmethod
    def send(self, thread_id: str, priority: int) -> None:
        """Poke a thread; raises if the engine cannot be reached. Blocking."""

    @abstractmethod
    async def serve(self, work: Work) -> None:
        """Run segments for the engine until `work.stopped`; then let those under way finish for `work.grace`."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection."""
