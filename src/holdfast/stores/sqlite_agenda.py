"""The agenda in a SQLite file: a table of entries, whose index has the entries of a queue in the order of taking."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from threading import Event
from time import monotonic
from typing import Any

from holdfast.records.head import LOST_HEAD, Head
from holdfast.stores.agenda import PARKED, Depth, Due, Entry, Taken, after_call, after_taking, entry_of
from holdfast.stores.backend import readable_head
from holdfast.stores.choosing import (
    Look,
    Placed,
    after_limits,
    charged,
    in_turn,
    last_lane_of,
    paid_off_by,
    pick,
    room_of,
)
from holdfast.stores.sqlite_file import SQLiteFile

LISTEN_SECONDS = 0.05
PRIORITIES = (2, 1, 0, -1, -2)
COLUMNS = "agenda.number, thread, head, queue, route, priority, lane, held, due"


class SQLiteAgenda:
    """The statements of the agenda. Each method runs in a transaction of the caller."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql

    def put(self, connection: sqlite3.Connection, number: int, head: Head) -> None:
        """Make the entry of a thread what its head says."""
        self.write(connection, number, entry_of(head))

    def look_again(self, connection: sqlite3.Connection, number: int, head: Head, due: int, now: int) -> None:
        """See `Agenda.look_again`."""
        found = connection.execute(self._sql["read_entry"], (number,)).fetchone()
        self.write(connection, number, after_call(found and _entry(*found), entry_of(head), due, now))

    def write(self, connection: sqlite3.Connection, number: int, entry: Entry | None) -> None:
        """Make this the entry of a thread; None removes it."""
        if entry is None:
            connection.execute(self._sql["drop_entry"], (number,))
            return
        values = (number, entry.queue, entry.route, entry.priority, entry.lane, entry.held, entry.due)
        connection.execute(self._sql["put_entry"], values)

    def depth(self, connection: sqlite3.Connection, prefix: bytes, queue: str, now: int) -> Depth:
        """See `Agenda.depth`."""
        return Depth(*connection.execute(self._sql["measure_queue"], (now, queue, len(prefix), prefix)).fetchone())

    def entries(self, connection: sqlite3.Connection, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        found = connection.execute(self._sql["read_entries"], (len(prefix), prefix))
        return {thread: _entry(*columns) for thread, *columns in found}

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
    """One `take`: the entries of one queue and prefix, in a transaction of the caller."""

    def __init__(self, connection: sqlite3.Connection, sql: Mapping[str, str], prefix: bytes, look: Look) -> None:
        self._connection = connection
        self._sql = sql
        self._agenda = SQLiteAgenda(sql)
        self._prefix = prefix
        self._look = look
        self._found: dict[bytes, tuple[int, Due]] = {}

    def next_due(self, since: int = -1) -> int:
        """Return when the next entry after `since` is due; `PARKED` if none is.

        The index has one place for each priority to look.
        """
        where, parameters = self._where(self._look.routes)
        sql = f"""SELECT due FROM agenda JOIN threads USING (number)
                   WHERE {where} AND held = ? AND priority = ? AND due > ? ORDER BY due LIMIT 1"""  # noqa: S608
        places = ((held, priority, since) for held in (0, 1) for priority in PRIORITIES)
        rows = [self._connection.execute(sql, [*parameters, *place]).fetchone() for place in places]
        return min((row[0] for row in rows if row), default=PARKED)

    def take(self) -> Taken:
        """Mark the entries that `Agenda.take` gives, and return them."""
        pace = self._look.limits.pace
        if pace is not None:
            self._look = self._look._replace(paid_off=self._agenda.paid_off(self._connection, pace.bucket))
        busy = Counter[bytes](dict(self._connection.execute(self._sql["count_held"], self._queue)))
        held = self._due(self._look.routes, held=True, most=self._look.most)
        room = room_of(self._look, len(held), busy.total())
        picked = held + pick(lambda routes, most: self._free(routes, most, busy), self._look, room, busy)
        self._mark(picked)
        next_due = self._next_look(picked)
        due = [self._found[thread][1] for thread, _ in picked]
        return Taken(due, next_due, last_lane_of([entry for _, entry in picked], self._look.after))

    @property
    def _queue(self) -> tuple[str, int, bytes]:
        return self._look.queue, len(self._prefix), self._prefix

    def _where(self, routes: Collection[bytes]) -> tuple[str, list[object]]:
        """Return the condition for entries of these routes, and its parameters."""
        marks = ", ".join("?" * len(routes))
        return f"queue = ? AND substr(thread, 1, ?) = ? AND route IN ({marks})", [*self._queue, *routes]

    def _mark(self, picked: list[Placed]) -> None:
        look, pace = self._look, self._look.limits.pace
        for thread, entry in picked:
            number, due = self._found[thread]
            is_readable = readable_head(thread, due.head) is not None
            self._agenda.write(self._connection, number, after_taking(entry, look.now, is_readable=is_readable))
        if pace is not None:
            self._agenda.pay(self._connection, pace.bucket, paid_off_by(look, picked), look.now)

    def _next_look(self, picked: list[Placed]) -> int:
        look, next_due = self._look, self.next_due()
        if next_due > look.now or len(picked) == look.most:
            return next_due
        (held,) = self._connection.execute(self._sql["next_held"], (*self._queue, look.now)).fetchone()
        return after_limits((self.next_due(look.now), held or PARKED), look, picked)

    def _free(self, routes: Collection[bytes], most: int, busy: Counter[bytes]) -> list[Placed]:
        """Return due entries that nobody holds. Only if not all of them may be taken do lanes take turns."""
        found = self._due(routes, held=False, most=most + 1)
        is_crowded = len(found) > most and self._connection.execute(self._sql["has_lanes"], self._queue[:1]).fetchone()
        if is_crowded or self._look.limits.each is not None:
            return self._by_lane(routes, most, busy)
        return in_turn(found[:most], self._look.after)

    def _due(self, routes: Collection[bytes], *, held: bool, most: int) -> list[Placed]:
        where, parameters = self._where(routes)
        sql = f"""SELECT {COLUMNS} FROM agenda JOIN heads USING (number)
                   WHERE {where} AND held = ? AND due <= ?
                   ORDER BY priority DESC, due, thread LIMIT ?"""  # noqa: S608
        return self._read(sql, [*parameters, held, self._look.now, max(most, 0)])

    def _by_lane(self, routes: Collection[bytes], most: int, busy: Counter[bytes]) -> list[Placed]:
        """Return the first entries in the order of `in_turn`, of each lane not more than may be held."""
        each = PARKED if self._look.limits.each is None else self._look.limits.each
        picked, held = list[Placed](), busy.copy()
        for priority in PRIORITIES:
            turns, passed = Counter[bytes](), set[bytes]()
            for lane in self._lanes(priority):
                if len(picked) >= most or lane in passed:
                    break
                found = self._in_lane(routes, priority, lane, turns[lane]) if held[lane] < each else []
                picked += found
                held[lane] += len(found)
                turns[lane] += len(found)
                passed.clear() if found else passed.add(lane)
        return picked

    def _lanes(self, priority: int) -> Iterator[bytes]:
        """Yield the lanes of entries that nobody holds, again and again, beginning after the lane served last."""
        statement, lane = "next_lane", self._look.after
        while True:
            found = self._connection.execute(self._sql[statement], (self._look.queue, priority, lane)).fetchone()
            if found is None and statement == "first_lane":
                return
            statement, lane = ("first_lane", b"") if found is None else ("next_lane", found[0])
            if found is not None:
                yield lane

    def _in_lane(self, routes: Collection[bytes], priority: int, lane: bytes, turn: int) -> list[Placed]:
        """Return the oldest due entry of a lane but `turn`; nothing if there is none."""
        where, parameters = self._where(routes)
        sql = f"""SELECT {COLUMNS} FROM agenda JOIN heads USING (number)
                   WHERE {where} AND held = 0 AND priority = ? AND lane = ? AND due <= ?
                   ORDER BY due, thread LIMIT 1 OFFSET ?"""  # noqa: S608
        return self._read(sql, [*parameters, priority, lane, self._look.now, turn])

    def _read(self, sql: str, parameters: list[object]) -> list[Placed]:
        """Return the entries that a statement finds, and keep their numbers and heads."""
        placed = []
        for number, thread, head, *columns in self._connection.execute(sql, parameters):
            entry = _entry(*columns)
            self._found[thread] = number, Due(thread, entry, LOST_HEAD if head is None else head)
            placed.append((thread, entry))
        return placed


def _entry(queue: Any, route: bytes, priority: int, lane: bytes, held: int, due: int) -> Entry:
    return Entry(queue, route, priority, lane, bool(held), due)


class SQLiteListener:
    """See `Listener`: looks every 50 ms whether another connection has written to the file."""

    is_connected = True

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file
        self._versions: dict[int, int] = {}
        """The version that each connection saw last: SQLite counts for each of them."""
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
            version: int = connection.execute("PRAGMA data_version").fetchone()[0]
            known, self._versions[id(connection)] = self._versions.get(id(connection)), version
        return known != version

    def close(self) -> None:
        """See `Listener.close`."""
        self._closed.set()
