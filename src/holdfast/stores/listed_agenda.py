"""An agenda for backends that keep none: it lists the open threads at each call."""

from collections.abc import Collection, Mapping
from time import time_ns

from msgspec.structs import replace

from holdfast.records.errors import ConfigurationError
from holdfast.stores.agenda import (
    HIDE,
    NO_LIMITS,
    OPEN,
    PARKED,
    Agenda,
    Depth,
    Due,
    Entry,
    Limits,
    Taken,
    earlier,
    entry_of,
)
from holdfast.stores.backend import Backend, all_heads, readable_head
from holdfast.stores.choosing import Look, choose, depth_of, last_lane_of


class ListedAgenda:
    """An agenda for a backend without one: it lists the open threads at each call.

    What it gives and hides is known to this object alone: two processes may be given the same thread, and the claim of
    one of them is refused.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._hidden: dict[bytes, int] = {}
        self._poked: dict[bytes, int] = {}

    def take(
        self,
        prefix: bytes,
        queue: str,
        routes: Collection[bytes],
        most: int,
        after: bytes = b"",
        limits: Limits = NO_LIMITS,
        low: int = 0,
    ) -> Taken:
        """See `Agenda.take`."""
        if limits != NO_LIMITS:
            raise self._unlimited()
        now, heads = self.now(), self._heads(prefix)
        self._hidden = {thread: until for thread, until in self._hidden.items() if until > now}
        entries = self._entries(heads)
        picked, next_due = choose(entries.items(), Look(queue, routes, most, after, limits, now))
        for thread, _ in picked:
            self._hidden[thread] = now + HIDE
            self._poked.pop(thread, None)
        last_lane = last_lane_of([entry for _, entry in picked], after)
        return Taken([Due(thread, entry, heads[thread]) for thread, entry in picked], next_due, last_lane)

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        self._hidden.pop(thread, None)
        self._poked[thread] = due

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        return depth_of(self.entries(prefix).values(), queue, self.now())

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        return self._entries(self._heads(prefix))

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """Refuse: see `Agenda.spend`."""
        raise self._unlimited()

    def _unlimited(self) -> ConfigurationError:
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
            if entry is not None:
                entry = earlier(entry, self._poked.get(thread, PARKED))
                until = self._hidden.get(thread)
                found[thread] = entry if until is None else replace(entry, held=True, due=until)
        return found


def agenda_of(backend: Backend) -> Agenda:
    """Return the agenda of a backend: its own, or one that lists its threads."""
    return backend if isinstance(backend, Agenda) else ListedAgenda(backend)
