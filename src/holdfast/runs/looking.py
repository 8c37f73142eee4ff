"""Looking for due threads: which queues, how often, and what wakes a worker in between. Its methods block."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.ports import logger
from holdfast.runs.queues import Queue
from holdfast.stores.agenda import (
    NO_LIMITS,
    PARKED,
    Agenda,
    Announcing,
    Due,
    Listener,
    OneHost,
    QueueLimits,
    Sweeping,
    Taken,
)
from holdfast.stores.backend import readable_head
from holdfast.stores.claim import dead_owner
from holdfast.stores.decisions import may_run
from holdfast.stores.listed_agenda import ListedAgenda
from holdfast.stores.reader import Seen
from holdfast.stores.waking import wake_threads_of_the_dead

if TYPE_CHECKING:
    from holdfast.runs.block import Tools
    from holdfast.runs.submitting import Served

POLL_SECONDS = 1.0
LISTING_SECONDS = {"s3": 10.0}
OTHER_LISTING_SECONDS = 2.0
"""How often to look in a store without an agenda: each look lists its open threads."""
SHORTEST_PAUSE = 0.01
COMPLETE_SECONDS = 5
"""How often to look for everything that is due, also for what was due before the last look."""
SWEEP_SECONDS = 600
LATE_SECONDS = 1
"""By how much an entry may appear after the time at which it is due."""
LISTEN_SECONDS = 1.0


class Found(NamedTuple):
    """What a look found: threads to run, how many seconds to wait for the next look, and whether nothing is due."""

    threads: list[tuple[bytes, Seen]]
    pause: float
    is_idle: bool


class _Looked(msgspec.Struct):
    """What is known of a queue from earlier looks."""

    lane: bytes = b""
    """The lane that was served last."""
    low: int = 0
    """Nothing that was due before this time waits."""
    complete_at: int = 0
    """When everything that is due was last looked for."""


class Search:
    """Looks for due threads of some functions on some queues.

    Both may change between looks, so they are asked for. `longest_pause` is for stores that announce what is due.
    """

    def __init__(
        self,
        tools: "Tools",
        functions: "Callable[[], list[Served]]",
        queues: Callable[[], list[Queue]],
        longest_pause: float,
    ) -> None:
        self._tools = tools
        self._functions = functions
        self._queues = queues
        self._announced_seconds = longest_pause
        self._agenda: Agenda = tools.reader.agenda
        self._backend = tools.reader.backend
        self._prefix = tools.reader.bindings.prefix
        self._looked: dict[str, _Looked] = {}
        self._routes: dict[tuple[str, int], list[bytes]] = {}
        self._turn = 0
        self._buried_at = 0
        self._swept_at = self._agenda.now()
        self.listener = self._backend.listener(self._prefix) if isinstance(self._backend, Announcing) else None

    def look(self, free: int) -> Found:
        """Take up to `free` threads to run. Queues take turns to be the first."""
        self._look_after_the_agenda()
        while True:
            found, next_due, has_more = self._taken(free)
            chosen, is_full = self._judged(found), len(found) >= free
            if chosen or not is_full:
                break
        if is_full:
            return Found(chosen, 0.0, is_idle=False)
        left = (next_due - self._agenda.now()) / 1e6
        pause = min(max(left, SHORTEST_PAUSE), self._longest_pause())
        return Found(chosen, pause, is_idle=not found and not has_more)

    def _longest_pause(self) -> float:
        """Return after how many seconds to look again, even if nothing is announced, and nothing known to be due."""
        if isinstance(self._agenda, ListedAgenda):
            return LISTING_SECONDS.get(self._backend.kind, OTHER_LISTING_SECONDS)
        if isinstance(self._backend, OneHost) or self.listener is None or not self.listener.is_connected:
            return POLL_SECONDS
        return self._announced_seconds

    def _taken(self, free: int) -> tuple[list[Due], int, bool]:
        """Take up to `free` due threads; return them, when the next one is due, and whether due ones are left."""
        found, next_due, has_more = list[Due](), PARKED, False
        queues, routes = self._queues(), self._served_routes()
        self._turn += 1
        for index in range(len(queues)):
            taken = self._take(queues[(self._turn + index) % len(queues)], routes, free - len(found))
            next_due, has_more = min(next_due, taken.next_due), has_more or taken.has_more
            found += taken.entries
            if len(found) >= free:
                break
        return found, next_due, has_more

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
        """Take what is due in a queue. When nothing due is left there, the next looks begin at about this time."""
        now, looked = self._agenda.now(), self._looked.setdefault(queue.name, _Looked())
        is_complete = now - looked.complete_at >= COMPLETE_SECONDS * 1e6
        low = 0 if is_complete else looked.low
        taken = self._agenda.take(self._prefix, queue.name, routes, most, looked.lane, self._limits(queue), low)
        looked.lane = taken.last_lane
        looked.low = low if taken.has_more else now - LATE_SECONDS * 1_000_000
        looked.complete_at = now if is_complete else looked.complete_at
        return taken

    def _limits(self, queue: Queue) -> QueueLimits:
        if not queue.has_limits:
            return NO_LIMITS
        return queue.limits(self._tools.reader.bindings, [function.name for function in self._functions()])

    def _served_routes(self) -> list[bytes]:
        """Return the routes of all threads that can be run here."""
        bindings = self._tools.reader.bindings
        keys = [(each.name, version) for each in self._functions() for version in (0, *each._service.versions)]
        self._routes = {key: self._routes.get(key) or bindings.routes(*key) for key in keys}
        return [route for routes in self._routes.values() for route in routes]

    def _look_after_the_agenda(self) -> None:
        """Look once a second for threads of processes that are certainly dead; repair the agenda now and then."""
        now = self._agenda.now()
        if now - self._buried_at >= POLL_SECONDS * 1e6:
            self._buried_at = now
            wake_threads_of_the_dead(self._backend, self._agenda, self._prefix, self._tools.ports)
        if isinstance(self._agenda, Sweeping) and now - self._swept_at >= SWEEP_SECONDS * 1e6:
            self._swept_at = now
            self._agenda.sweep(self._prefix)


class Ears:
    """Wakes a worker when something is announced. `tick` runs on a thread of its own."""

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
