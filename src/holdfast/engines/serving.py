"""The worker of an engine: it runs segments, and pokes the engine for threads that are overdue."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.engines.engine import ServingEngine, Work
from holdfast.engines.segment import Segments
from holdfast.engines.urls import engine_at
from holdfast.records.errors import ConfigurationError, HoldfastError
from holdfast.records.identity import thread_id_of
from holdfast.runs.durable import registry, service_of
from holdfast.runs.queues import DEFAULT_QUEUE
from holdfast.runs.store import attach, tools_of
from holdfast.runs.submitting import Served
from holdfast.runs.worker import Worker
from holdfast.stores.agenda import Due
from holdfast.stores.backend import readable_head
from holdfast.stores.bindings import Bindings

if TYPE_CHECKING:
    from holdfast.runs.store import Store

OVERDUE_SECONDS: float = 60
LOOK_SECONDS: float = 20
"""How often to look for overdue threads; longer than a look hides them."""
MOST = 1000
"""How many overdue threads are poked after one look."""


async def serve(
    url: str,
    store: "Store",
    functions: Sequence[Served] | None = None,
    *,
    stopped: asyncio.Event,
    concurrency: int = 10,
    lease: float = 30,
    grace: float = 30,
) -> None:
    """Run the threads of a store for an engine until `stopped`. What they submit goes to the same engine."""
    served = list(registry.values()) if functions is None else functions
    check_limits(served)
    engine = engine_at(url)
    attach(store, engine)
    overdue = Overdue(store, engine, served)
    segments, ready = Segments(store, served, engine.place.tag, lease), asyncio.Event()
    await tools_of(store).open()
    keeper = await Worker(store, functions=served, lease=lease)._keeper(store)  # noqa: SLF001  not for users
    looking = asyncio.create_task(overdue.keep_poking(ready))
    try:
        async with keeper:
            await engine.serve(Work(segments, concurrency, grace, ready, stopped))
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


def check_limits(functions: Sequence[Served]) -> None:
    """Raise `ConfigurationError` for limits that no engine keeps: they count what all workers run together."""
    for function in functions:
        queue = service_of(function).queue
        refused = [name for name in ("concurrency", "each", "rate") if getattr(queue, name) is not None]
        if refused:
            raise ConfigurationError(
                f"{function.name}: an engine has no limit for a queue over all workers; remove `{refused[0]}` from its"
                " queue, or run it with workers that have no engine"
            )


class Overdue:
    """Finds threads that are due for a while: the engine was away when they were submitted, or a poke was lost."""

    def __init__(self, store: "Store", engine: ServingEngine, functions: Sequence[Served]) -> None:
        self._tools = tools_of(store)
        self._engine = engine
        self._served = routes_by_queue(self._tools.reader.bindings, functions)
        self._agenda = self._tools.reader.agenda
        self._since: dict[bytes, int] = {}
        """Since when the threads of the last look are due: a look hides them for a moment, and moves their entries."""

    async def keep_poking(self, ready: asyncio.Event) -> None:
        """Poke for all that is due once the engine knows this worker, then every 20 s for what is overdue."""
        await ready.wait()
        seconds = 0.0
        while True:
            with suppress(HoldfastError):  # the store is away: look again later
                await self._tools.open()
                await self._tools.ports.perform(self.poke, seconds)
                seconds = OVERDUE_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    def poke(self, seconds: float) -> None:
        """Poke the engine for threads that are due for this long. Blocking."""
        for due in self._taken(seconds):
            self._engine.poke(thread_id_of(due.thread), due.entry.priority)

    def _taken(self, seconds: float) -> Iterator[Due]:
        """Yield the threads that are overdue and that no run holds."""
        agenda, prefix = self._agenda, self._tools.reader.bindings.prefix
        now, before, self._since = agenda.now(), self._since, {}
        for queue, routes in self._served.items():
            for due in agenda.take(prefix, queue, routes, MOST).entries:
                since = self._since[due.thread] = before.get(due.thread, due.entry.due)
                head = readable_head(due.thread, due.head)
                is_held = head is not None and head.held(now)
                if not is_held and since <= now - seconds * 1e6:
                    yield due


def routes_by_queue(bindings: Bindings, functions: Sequence[Served]) -> dict[str, set[bytes]]:
    """Return the routes of the threads that these functions serve, for each queue that a worker looks at."""
    routes = {
        route
        for function in functions
        for version in (0, *service_of(function).versions)
        for route in bindings.routes(function.name, version)
    }
    return dict.fromkeys((DEFAULT_QUEUE, *(service_of(function).queue.name for function in functions)), routes)
