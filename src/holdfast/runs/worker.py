"""`Worker`: takes due threads from the agenda of its store, and runs their functions, until it is stopped."""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from holdfast.ports import Signal, awaitable_ports, logger
from holdfast.records.arguments import whole_number
from holdfast.records.errors import ConfigurationError, StoreClosed, StoreError
from holdfast.records.identity import thread_id_of
from holdfast.runs.block import Terms
from holdfast.runs.durable import registry
from holdfast.runs.kinds import twin
from holdfast.runs.looking import POLL_SECONDS, Ears, Found, Search
from holdfast.runs.options import seconds
from holdfast.runs.queues import DEFAULT_QUEUE, Queue, queue_of
from holdfast.runs.resuming import MAX_ATTEMPTS, Resumer
from holdfast.runs.store import Store
from holdfast.runs.submitting import Served
from holdfast.runs.threads import store_finder
from holdfast.stores.reader import Seen

ANNOUNCED_SECONDS, KEEPER_SECONDS = 2.0, 5.0
"""How often to look, for work and for schedules, where a listener hears of what is due."""
GATHER_SECONDS = 0.02
"""How long to wait for more runs to end, where more is due: one look then replaces all of them."""
OUTAGE_SECONDS = (0.2, 5.0)
CANCEL_SECONDS = 0.1
"""How often to cancel runs that did not end in time: each waits for the steps of its branches."""


class Worker:
    """Runs what is due: threads that were submitted, answered, woken by a timer, or abandoned by a dead process.

    Start as many as you like, in as many processes as you like: each thread is run by one of them. A worker serves its
    `functions` (by default all durable functions of the program), on its `queues` (by default those of its functions,
    and `default`), up to `concurrency` threads at once. If its process dies, others take its threads over after
    `lease` seconds, or at once where they can see that it is dead.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        functions: Collection[Any] | None = None,
        queues: Collection[Queue | str] | None = None,
        concurrency: int = 10,
        lease: timedelta | float = 30,
        grace: timedelta | float = 30,
    ) -> None:
        if isinstance(queues, str):
            raise ConfigurationError(f"`queues` must be a list of names, got {queues!r}")
        self._find_store = store_finder(store)
        self._functions = None if functions is None else list(map(served_by, functions))
        self._queues = None if queues is None else {queue.name: queue for queue in map(queue_of, queues)}
        self._concurrency = whole_number(concurrency, "concurrency", 1)
        self._terms = Terms(lease, wait=0, keyed=True)
        self._grace = seconds(grace, "grace")
        self._keeps_schedules = True
        self._announced_seconds = min(ANNOUNCED_SECONDS, seconds(lease, "lease") + POLL_SECONDS / 2)
        """Less than the lease + 1 s: what a dead worker held is found in time."""
        self._max_attempts = MAX_ATTEMPTS
        self._shift: _Shift | None = None
        self._stops = 0
        """How often `stop` was called."""
        self._task: Any = None
        self._on_look: Callable[[], object] = lambda: None
        """Called after each look at the store that worked: a probe that the worker is alive."""

    async def run(self, *, once: bool = False) -> None:
        """Run what is due until `stop`; with `once` until nothing is due, and nothing runs.

        Raises `StoreError` if the store cannot be opened. A later outage is logged, and the worker looks again.
        """
        if self._shift is not None:
            raise ConfigurationError("this worker is running already; make another one")
        store = self._find_store()
        store = twin(store, awaitable_ports()) if store._ports.blocking else store
        await store._open()
        keeper = await self._keeper(store) if self._keeps_schedules else None
        if keeper is not None and once:
            await keeper.run(once=True)
        self._shift = _Shift(self, store)
        try:
            async with nullcontext() if keeper is None or once else keeper:
                await self._shift.work(once=once)
        finally:
            self._shift, self._stops = None, 0

    async def _keeper(self, store: Store) -> "Worker":
        """Create the schedules that the program declares; return the worker that keeps all of the store's."""
        from holdfast.runs import schedules

        await schedules.put_declared(store, self._served())
        keeper = Worker(schedules.beside(store), functions=schedules.keepers_of(store), lease=self._terms.lease)
        keeper._keeps_schedules, keeper._announced_seconds = False, KEEPER_SECONDS
        keeper._max_attempts = schedules.TRIES
        return keeper

    def stop(self) -> None:
        """Take nothing more, and hand over every run at its next step; `run` returns when all are handed over.

        A step in flight may finish for `grace` seconds, then it is cancelled; called a second time, at once. For any
        thread, and for signal handlers.
        """
        self._stops += 1
        if self._shift is not None:
            self._shift.wake()

    async def __aenter__(self) -> Self:
        from holdfast.ports.crew import beside

        self._task = beside(self.run())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()
        await self._task

    def _search(self, store: Store) -> Search:
        return Search(store._tools, self._served, self._watched, self._announced_seconds)

    def _served(self) -> list[Served]:
        """Return the functions that it serves."""
        return list(registry.values()) if self._functions is None else self._functions

    def _watched(self) -> list[Queue]:
        """Return the queues that it looks at, with their limits."""
        found = {DEFAULT_QUEUE: queue_of(None)}
        for function in self._served():
            queue = function._service.queue
            if queue.has_limits or queue.name not in found:
                found[queue.name] = queue
        if self._queues is None:
            return list(found.values())
        return [given if given.has_limits else found.get(name, given) for name, given in self._queues.items()]


def served_by(given: Any) -> Served:
    """Return what a durable function, an agent or a workflow runs under its name."""
    found = getattr(getattr(given, "_core", given), "runnable", getattr(given, "_runnable", given))
    if not hasattr(found, "_serves"):
        raise ConfigurationError(f"`functions` must be durable functions, agents or workflows, got {given!r}")
    served: Served = found
    return served


class _Shift:
    """One call of `Worker.run`."""

    def __init__(self, worker: Worker, store: Store) -> None:
        from holdfast.ports.crew import Crew  # it loads asyncio

        self._worker = worker
        self._tools = store._tools
        self._crew = Crew()
        self._resumer = Resumer(store, worker._served, worker._terms, worker._max_attempts)
        self._search = worker._search(store)
        self.wake = self._crew.wake
        self._outage = 0.0

    async def work(self, *, once: bool) -> None:
        """Look and run until stopped; then hand over."""
        ears = Ears(self._search.listener, self._crew.wake)
        self._tools.ports.beat(ears.tick, Signal())
        try:
            while not self._worker._stops:
                free = self._worker._concurrency - len(self._crew)
                found = await self._look(free) if free > 0 else self._wait()
                if once and found.is_idle and not len(self._crew):
                    return
                await self._crew.rest(found.pause)
                if free <= 0:
                    await self._crew.join(GATHER_SECONDS)
        finally:
            ears.close()
            await self._hand_over()

    def _wait(self) -> Found:
        """Wait for the end of a run. A worker without a free place is alive too."""
        self._worker._on_look()
        return Found([], POLL_SECONDS, is_idle=False)

    async def _look(self, free: int) -> Found:
        """Look for what is due, and start it."""
        try:
            found = await self._tools.ports.perform(self._search.look, free)
        except StoreClosed:
            raise
        except StoreError as error:
            self._outage = min(max(self._outage * 2, OUTAGE_SECONDS[0]), OUTAGE_SECONDS[1])
            logger().warning("a worker could not look for work; next look in %.1f s: %s", self._outage, error)
            return Found([], self._outage, is_idle=False)
        self._outage = 0.0
        self._worker._on_look()
        for thread, seen in found.threads:
            self._crew.start(self._run(thread, seen))
        return found

    async def _run(self, thread: bytes, seen: Seen) -> None:
        """Run a thread. Its error is recorded with it; what could not be recorded is logged."""
        thread_id = thread_id_of(thread)
        try:
            await self._resumer.resume(thread_id, known=seen)
        except StoreError as error:
            logger().warning("the run of %r was lost: %s", thread_id, error)
        except Exception as error:  # noqa: BLE001  the thread has failed with it
            logger().debug("the run of %r failed: %s", thread_id, error)

    async def _hand_over(self) -> None:
        """Hand all runs over: each at its next step, or by cancelling it when the time of grace is over."""
        self._resumer.hand_over()
        now = self._tools.ports.now
        end = now() + round(self._worker._grace * 1e6)
        while self._worker._stops < 2 and (left := (end - now()) / 1e6) > 0 and len(self._crew):
            await self._crew.rest(left)
        while len(self._crew):
            self._crew.cancel()
            await self._crew.join(CANCEL_SECONDS)
