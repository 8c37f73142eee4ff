"""An agenda for backends that keep none: it lists the open threads at each call."""

from collections.abc import Collection, Mapping
from time import time_ns

from msgspec.structs import replace

from holdfast.records.errors import ConfigurationError
from holdfast.records.head import Head
from holdfast.records.words import Status
from holdfast.stores.agenda import (
    HIDE,
    NO_LIMITS,
    OPEN,
    PARKED,
    Agenda,
    Depth,
    Due,
    Entry,
    QueueLimits,
    Taken,
    earlier,
    entry_of,
)
from holdfast.stores.backend import Backend, all_heads, readable_head
from holdfast.stores.choosing import Look, choose, depth_of, last_lane_of


class ListedAgenda:
    """An agenda for a backend without one: it lists the open threads at each call.

    What it gives and hides is known to this object alone: two processes may be given the same thread, and the claim of
    one of them is refused. A thread that waits for an answer is due once there are messages that it was not given with.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._hidden: dict[bytes, int] = {}
        self._poked: dict[bytes, int] = {}
        self._messages: dict[bytes, set[str]] = {}
        """The messages that each waiting thread has had when it was last given."""

    def take(
        self,
        prefix: bytes,
        queue: str,
        routes: Collection[bytes],
        most: int,
        after: bytes = b"",
        limits: QueueLimits = NO_LIMITS,
        low: int = 0,
    ) -> Taken:
        """See `Agenda.take`."""
        if limits != NO_LIMITS:
            raise self.unlimited()
        now, heads = self.now(), self._heads(prefix)
        self._forget(prefix, heads, now)
        entries = self._entries(heads)
        picked, next_due, has_more = choose(entries.items(), Look(queue, routes, most, after, limits, 0, now))
        for thread, _ in picked:
            self._hidden[thread] = now + HIDE
            self._poked.pop(thread, None)
            self._messages[thread] = set(self._backend.inbox(thread))
        last_lane = last_lane_of([entry for _, entry in picked], after)
        return Taken([Due(thread, entry, heads[thread]) for thread, entry in picked], next_due, last_lane, has_more)

    def _forget(self, prefix: bytes, heads: Mapping[bytes, bytes], now: int) -> None:
        """Forget what is over: threads that are not open any more, and those that were hidden long enough."""
        self._hidden = {thread: until for thread, until in self._hidden.items() if until > now}
        for known in (self._poked, self._messages):
            for thread in [each for each in known if each.startswith(prefix) and each not in heads]:
                del known[thread]

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        self._hidden.pop(thread, None)
        self._poked[thread] = due

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Agenda.call`: a look of any process finds the message."""
        is_new = self._backend.post(thread, key, value)
        self.look_again(thread, self.now())
        return is_new

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        return depth_of(self.entries(prefix).values(), queue, self.now())

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        return self._entries(self._heads(prefix))

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """Refuse: see `Agenda.spend`."""
        raise self.unlimited()

    def unlimited(self) -> ConfigurationError:
        """Return the error of a limit."""
        return ConfigurationError(
            f"a {self._backend.kind} store cannot limit a queue or a rate among processes;"
            " use a SQLite, PostgreSQL or Redis store"
        )

    def now(self) -> int:
        """See `Agenda.now`: the clock of this host."""
        return time_ns() // 1000

    def _heads(self, prefix: bytes) -> dict[bytes, bytes]:
        return dict(all_heads(self._backend, prefix, OPEN))

    def _entries(self, heads: Mapping[bytes, bytes]) -> dict[bytes, Entry]:
        """Return the entries of these threads. One that was poked is due earlier, one that was taken is hidden."""
        found: dict[bytes, Entry] = {}
        for thread, encoded in heads.items():
            head = readable_head(thread, encoded)
            entry = None if head is None else entry_of(head)
            if head is not None and entry is not None:
                called_at = head.updated_at if self._is_called(thread, head) else PARKED
                entry = earlier(entry, min(called_at, self._poked.get(thread, PARKED)))
                until = self._hidden.get(thread)
                found[thread] = entry if until is None else replace(entry, held=True, due=until)
        return found

    def _is_called(self, thread: bytes, head: Head) -> bool:
        """True if a waiting thread has new messages."""
        if head.status != Status.INPUT_REQUIRED.value:
            return False
        return not self._messages.get(thread, set()).issuperset(self._backend.inbox(thread))


def agenda_of(backend: Backend) -> Agenda:
    """Return the agenda of a backend: its own, or one that lists its threads."""
    return backend if isinstance(backend, Agenda) else ListedAgenda(backend)
