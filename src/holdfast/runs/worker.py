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
from holdfast.runs.options import seconds
from holdfast.runs.queues import DEFAULT_QUEUE, Queue, queue_of
from holdfast.runs.resuming import MAX_ATTEMPTS, Resumer
from holdfast.runs.store import Store
from holdfast.runs.submitting import Served
from holdfast.runs.threads import store_finder
from holdfast.stores.agenda import (
    NO_LIMITS,
    PARKED,
    Agenda,
    Announcing,
    Due,
    Limits,
    Listener,
    OneHost,
    Sweeping,
    Taken,
)
from holdfast.stores.backend import readable_head
from holdfast.stores.claim import dead_owner
from holdfast.stores.decisions import may_run
from holdfast.stores.listed_agenda import ListedAgenda
from holdfast.stores.reader import Seen
from holdfast.stores.waking import wake_threads_of_the_dead

POLL_SECONDS = 1.0
ANNOUNCED_SECONDS, KEEPER_SECONDS = 2.0, 5.0
"""How often to look, for work and for schedules, where a listener hears of what is due."""
LISTING_SECONDS = {"s3": 10.0}
OTHER_LISTING_SECONDS = 2.0
"""How often to look in a store without an agenda: each look lists its open threads."""
SHORTEST_PAUSE = 0.01
GATHER_SECONDS = 0.02
"""How long to wait for more runs to end, where more is due: one look then replaces all of them."""
COMPLETE_SECONDS = 5
"""How often to look for everything that is due, also for what was due before the last look."""
SWEEP_SECONDS = 600
LATE_SECONDS = 1
"""By how much an entry may appear after the time at which it is due."""
OUTAGE_SECONDS = (0.2, 5.0)
LISTEN_SECONDS = 1.0
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
        keeper = Worker(schedules.beside(store), functions=[schedules.keeper_of(store)], lease=self._terms.lease)
        keeper._keeps_schedules, keeper._announced_seconds = False, KEEPER_SECONDS
        keeper._keeps_schedules, keeper._max_attempts = False, schedules.TRIES
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
        self._search = _Search(store, worker)
        self.wake = self._crew.wake
        self._outage = 0.0

    async def work(self, *, once: bool) -> None:
        """Look and run until stopped; then hand over."""
        ears = _Ears(self._search.listener, self._crew.wake)
        self._tools.ports.beat(ears.tick, Signal())
        try:
            while not self._worker._stops:
                free = self._worker._concurrency - len(self._crew)
                pause = await self._look(free) if free > 0 else self._wait()
                if once and not len(self._crew) and pause:
                    return
                await self._crew.rest(pause)
                if free <= 0:
                    await self._crew.join(GATHER_SECONDS)
        finally:
            ears.close()
            await self._hand_over()

    def _wait(self) -> float:
        """Return how many seconds to wait for the end of a run. A worker without a free place is alive too."""
        self._worker._on_look()
        return POLL_SECONDS

    async def _look(self, free: int) -> float:
        """Start what is due; return how many seconds to wait for more, 0 if there is more."""
        try:
            found, pause = await self._tools.ports.perform(self._search.look, free)
        except StoreClosed:
            raise
        except StoreError as error:
            self._outage = min(max(self._outage * 2, OUTAGE_SECONDS[0]), OUTAGE_SECONDS[1])
            logger().warning("a worker could not look for work; next look in %.1f s: %s", self._outage, error)
            return self._outage
        self._outage = 0.0
        self._worker._on_look()
        for thread, seen in found:
            self._crew.start(self._run(thread, seen))
        return pause

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


class _Seen:
    """What a worker knows of a queue from its looks."""

    def __init__(self) -> None:
        self.lane = b""
        """The lane that it served last."""
        self.low = 0
        """Nothing that was due before this time waits."""
        self.complete_at = 0
        """When it last looked for everything that is due."""


class _Search:
    """Looks for due threads. Its methods block."""

    def __init__(self, store: Store, worker: Worker) -> None:
        self._tools = store._tools
        self._agenda: Agenda = self._tools.reader.agenda
        self._backend = self._tools.reader.backend
        self._worker = worker
        self._seen: dict[str, _Seen] = {}
        self._routes: dict[tuple[str, int], list[bytes]] = {}
        self._turn = 0
        self._buried_at = 0
        self._swept_at = self._agenda.now()
        prefix = self._tools.reader.bindings.prefix
        self.listener = self._backend.listener(prefix) if isinstance(self._backend, Announcing) else None

    def _longest_pause(self) -> float:
        """Return after how many seconds to look again, even if nothing is announced, and nothing known to be due."""
        if isinstance(self._agenda, ListedAgenda):
            return LISTING_SECONDS.get(self._backend.kind, OTHER_LISTING_SECONDS)
        if isinstance(self._backend, OneHost) or self.listener is None or not self.listener.is_connected:
            return POLL_SECONDS
        return self._worker._announced_seconds

    def look(self, free: int) -> tuple[list[tuple[bytes, Seen]], float]:
        """Return up to `free` threads to run, and how many seconds to wait until the next look; 0 if there is more.

        Queues take turns to be the first.
        """
        self._wake_of_the_dead(self._tools.reader.bindings.prefix)
        self._sweep(self._tools.reader.bindings.prefix)
        while True:
            found, next_due = self._found(free)
            chosen, is_full = self._judged(found), len(found) >= free
            if chosen or not is_full:
                break
        if is_full:
            return chosen, 0.0
        left = (next_due - self._agenda.now()) / 1e6
        return chosen, min(max(left, SHORTEST_PAUSE), self._longest_pause())

    def _found(self, free: int) -> tuple[list[Due], int]:
        """Take up to `free` due threads; return them, and when the next one is due."""
        found, next_due = list[Due](), PARKED
        queues, routes = self._worker._watched(), self._served_routes()
        self._turn += 1
        for index in range(len(queues)):
            queue = queues[(self._turn + index) % len(queues)]
            taken = self._take(queue, routes, free - len(found))
            next_due = min(next_due, taken.next_due)
            found += taken.entries
            if len(found) >= free:
                break
        return found, next_due

    def _judged(self, found: list[Due]) -> list[tuple[bytes, Seen]]:
        """Return those that may run. The entries of the others become what their heads say."""
        chosen, now = [], self._agenda.now()
        for due in found:
            head = readable_head(due.thread, due.head)
            if head is not None and may_run(head, now, dead_owner(self._tools.ports, head)):
                chosen.append((due.thread, Seen(head, due.head)))
            elif head is not None:
                self._agenda.look_again(due.thread, PARKED)
        return chosen

    def _take(self, queue: Queue, routes: list[bytes], most: int) -> Taken:
        """Take what is due in a queue. When nothing is left there, the next looks begin at about this time."""
        name, now, prefix = queue.name, self._agenda.now(), self._tools.reader.bindings.prefix
        seen = self._seen.setdefault(name, _Seen())
        is_complete = now - seen.complete_at >= COMPLETE_SECONDS * 1e6
        low = 0 if is_complete else seen.low
        taken = self._agenda.take(prefix, name, routes, most, seen.lane, self._limits(queue), low)
        if is_complete:
            seen.complete_at = now
        seen.lane = taken.last_lane
        seen.low = now - LATE_SECONDS * 1_000_000 if taken.next_due > now else low
        return taken

    def _limits(self, queue: Queue) -> Limits:
        if not queue.has_limits:
            return NO_LIMITS
        return queue.limits(self._tools.reader.bindings, [function.name for function in self._worker._served()])

    def _served_routes(self) -> list[bytes]:
        """Return the routes of all threads that can be run here."""
        bindings, served = self._tools.reader.bindings, self._worker._served()
        keys = [(each.name, version) for each in served for version in (0, *each._service.versions)]
        self._routes = {key: self._routes.get(key) or bindings.routes(*key) for key in keys}
        return [route for routes in self._routes.values() for route in routes]

    def _sweep(self, prefix: bytes) -> None:
        """Repair and clean the agenda now and then."""
        now = self._agenda.now()
        if isinstance(self._agenda, Sweeping) and now - self._swept_at >= SWEEP_SECONDS * 1e6:
            self._swept_at = now
            self._agenda.sweep(prefix)

    def _wake_of_the_dead(self, prefix: bytes) -> None:
        """Look once a second for threads of processes that are certainly dead."""
        now = self._agenda.now()
        if now - self._buried_at >= POLL_SECONDS * 1e6:
            self._buried_at = now
            wake_threads_of_the_dead(self._backend, self._agenda, prefix, self._tools.ports)


class _Ears:
    """Wakes the worker when something is announced. `tick` runs on a thread of its own."""

    def __init__(self, listener: Listener | None, wake: Callable[[], None]) -> None:
        self._listener = listener
        self._wake = wake
        self._closed = False

    def tick(self) -> float | None:
        """Wait for an announcement; return when to wait again, None to end."""
        if self._listener is None or self._closed:
            return None
        try:
            if self._listener.wait(LISTEN_SECONDS):
                self._wake()
        except Exception as error:  # noqa: BLE001  it is only a hint: the worker also polls
            logger().debug("a worker could not listen: %s", error)
            return LISTEN_SECONDS
        return 0.0

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()
