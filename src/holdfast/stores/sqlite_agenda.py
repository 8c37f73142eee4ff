"""The agenda in a SQLite file: a table of entries, whose indexes begin with their place and route."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from threading import Event
from time import monotonic

from holdfast.records.head import LOST_HEAD
from holdfast.stores.agenda import PARKED, Depth, Due, Entry, Taken, after_call, after_taking, place_of, queue_in
from holdfast.stores.backend import readable_head
from holdfast.stores.choosing import (
    Look,
    Placed,
    charged,
    finder,
    last_lane_of,
    next_look,
    paid_off_by,
    pick,
    room_of,
)
from holdfast.stores.sqlite_file import SQLiteFile

LISTEN_SECONDS = 0.05


class SQLiteAgenda:
    """The statements of the agenda. Each method runs in a transaction of the caller."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql

    def put(self, connection: sqlite3.Connection, number: int, thread: bytes, entry: Entry | None) -> None:
        """Make this the entry of a thread; None removes it."""
        if entry is None:
            connection.execute(self._sql["drop_entry"], (number,))
            return
        columns = (entry.route, entry.priority, entry.lane, entry.held, entry.due)
        connection.execute(self._sql["put_entry"], (number, place_of(thread, entry.queue), *columns))

    def look_again(
        self, connection: sqlite3.Connection, number: int, thread: bytes, wanted: Entry | None, due: int, now: int
    ) -> None:
        """See `Agenda.look_again`: the head wants this entry."""
        found = connection.execute(self._sql["read_entry"], (number,)).fetchone()
        self.put(connection, number, thread, after_call(found and _entry(thread, *found), wanted, due, now))

    def depth(self, connection: sqlite3.Connection, place: bytes, now: int) -> Depth:
        """See `Agenda.depth`."""
        return Depth(*connection.execute(self._sql["measure_queue"], (now, place)).fetchone())

    def entries(self, connection: sqlite3.Connection, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        found = connection.execute(self._sql["read_entries"], (len(prefix), prefix))
        return {thread: _entry(thread, *columns) for thread, *columns in found}

    # Rates

    def spend(self, connection: sqlite3.Connection, bucket: bytes, cost: int, burst: int, now: int) -> int:
        """See `Agenda.spend`."""
        wait, paid_off = charged(self.paid_off(connection, bucket), cost, burst, now)
        if not wait:
            self.pay(connection, bucket, paid_off, now)
        return wait

    def paid_off(self, connection: sqlite3.Connection, bucket: bytes) -> int:
        """Return when a bucket is paid off; 0 if it is not known."""
        found = connection.execute(self._sql["read_bucket"], (bucket,)).fetchone()
        return int(found[0]) if found else 0

    def pay(self, connection: sqlite3.Connection, bucket: bytes, paid_off: int, now: int) -> None:
        """Set when a bucket is paid off, and forget those that are: they are as good as new."""
        connection.execute(self._sql["drop_paid_buckets"], (now,))
        connection.execute(self._sql["put_bucket"], (bucket, paid_off))


class Taking:
    """One `take`: the entries of one place, in a transaction of the caller."""

    def __init__(self, connection: sqlite3.Connection, sql: Mapping[str, str], prefix: bytes, look: Look) -> None:
        self._connection = connection
        self._sql = sql
        self._agenda = SQLiteAgenda(sql)
        self._place = place_of(prefix, look.queue)
        self._look = look
        self._found: dict[bytes, tuple[int, bytes]] = {}
        """The number and the head of each thread that was read."""

    def next_due(self, since: int) -> int:
        """Return when the first entry from `since` on is due; `PARKED` if none is."""
        given = [(self._place, route, since) for route in self._look.routes]
        free = [self._connection.execute(self._sql["next_free"], each).fetchone() or (PARKED,) for each in given]
        held = (due for due, route in self._held_from(since) if route in self._look.routes)
        return min(next(held, PARKED), *(due for (due,) in free), PARKED)

    def _held_from(self, since: int) -> Iterator[tuple[int, bytes]]:
        """Yield when the entries that are held are due, from `since` on, and their routes."""
        yield from self._connection.execute(self._sql["next_held"], (self._place, since))

    def take(self) -> Taken:
        """Mark the entries that `Agenda.take` gives, and return them."""
        look, limits = self._look, self._look.limits
        if limits.pace is not None:
            self._look = look = look._replace(paid_off=self._agenda.paid_off(self._connection, limits.pace.bucket))
        held, busy = self._due_held(), self._busy()
        room = room_of(look, len(held), busy.total())
        free = self._due_free(room + 1)
        first = finder(free) if len(free) <= room else self._first
        picked = [*held, *pick(first, look, room, busy)]
        self._mark(picked)
        has_more = self.next_due(look.low) <= look.now
        next_due = next_look(self._times(has_more=has_more), look, picked, has_more=has_more)
        due = [Due(thread, entry, self._found[thread][1]) for thread, entry in picked]
        return Taken(due, next_due, last_lane_of([entry for _, entry in picked], look.after), has_more)

    def _times(self, *, has_more: bool) -> Iterator[int]:
        """Yield the times after now at which a look can find more, the earliest of each kind."""
        later = self._look.now + 1
        yield self.next_due(later)
        if has_more:  # a place is free when any that is held is due
            yield from (due for due, _ in [next(self._held_from(later), (PARKED, b""))])

    def _mark(self, picked: list[Placed]) -> None:
        look, pace = self._look, self._look.limits.pace
        for thread, entry in picked:
            number, head = self._found[thread]
            taken = after_taking(entry, look.now, is_readable=readable_head(thread, head) is not None)
            self._agenda.put(self._connection, number, thread, taken)
        if pace is not None:
            self._agenda.pay(self._connection, pace.bucket, paid_off_by(look, picked), look.now)

    def _busy(self) -> Counter[bytes]:
        """Count what is held of each lane, if a limit depends on it."""
        limits = self._look.limits
        is_counted = limits.concurrency is not None or limits.each is not None
        return Counter(dict(self._connection.execute(self._sql["count_held"], (self._place,)) if is_counted else ()))

    def _due_held(self) -> list[Placed]:
        look = self._look
        found = self._read(self._sql["due_held"], (self._place, look.low, look.now))
        return list(islice((each for each in found if each[1].route in look.routes), look.most))

    def _due_free(self, most: int) -> list[Placed]:
        """Return due entries that nobody holds, of each route up to `most`."""
        look = self._look
        return [
            placed
            for route in look.routes
            for placed in self._read(self._sql["due_free"], (self._place, route, look.low, look.now, most))
        ]

    def _first(self, priority: int, lane: bytes, routes: Collection[bytes], but: Collection[bytes]) -> Placed | None:
        """See `First`. A lane without a due entry is passed."""
        while (found := self._next_lane(priority, lane, routes)) is not None:
            firsts = (self._first_in(priority, found, route, but) for route in routes)
            due = min(filter(None, firsts), key=lambda each: (each[1].due, each[0]), default=None)
            if due is not None:
                return due
            lane = found + b"\0"
        return None

    def _next_lane(self, priority: int, lane: bytes, routes: Iterable[bytes]) -> bytes | None:
        """Return the first lane from this one on that has an entry which nobody holds."""
        given = [(self._place, route, priority, lane) for route in routes]
        found = [self._connection.execute(self._sql["next_lane"], each).fetchone() for each in given]
        return min((lane for row in found if row for lane in row), default=None)

    def _first_in(self, priority: int, lane: bytes, route: bytes, but: Collection[bytes]) -> Placed | None:
        given = (self._place, route, priority, lane, self._look.low, self._look.now)
        return next((each for each in self._read(self._sql["due_in_lane"], given) if each[0] not in but), None)

    def _read(self, sql: str, parameters: Collection[object]) -> Iterator[Placed]:
        """Yield the entries that a statement finds, and keep their numbers and heads."""
        for number, thread, head, *columns in self._connection.execute(sql, tuple(parameters)):
            self._found[thread] = number, LOST_HEAD if head is None else head
            yield thread, _entry(thread, *columns)


def _entry(thread: bytes, place: bytes, route: bytes, priority: int, lane: bytes, held: int, due: int) -> Entry:
    return Entry(queue_in(place, thread), route, priority, lane, bool(held), due)


class SQLiteListener:
    """See `Listener`: looks every 50 ms whether something was written.

    SQLite counts for each connection what others have written, and what it wrote itself: in memory there is only one.
    """

    is_connected = True

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._versions: dict[int, int] = {}
        """The version that each connection saw last."""
        self._closed = Event()

    def wait(self, timeout: float) -> bool:
        """See `Listener.wait`."""
        end = monotonic() + timeout
        while not (has_changed := self._has_changed()) and (left := end - monotonic()) > 0:
            if self._closed.wait(min(left, LISTEN_SECONDS)):
                return False
        return has_changed

    def _has_changed(self) -> bool:
        with self._file.reading() as connection:
            version: int = connection.execute("PRAGMA data_version").fetchone()[0] + connection.total_changes
            known, self._versions[id(connection)] = self._versions.get(id(connection)), version
        return known != version

    def close(self) -> None:
        """See `Listener.close`."""
        self._closed.set()
