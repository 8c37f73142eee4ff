"""The agenda in a SQLite file: a table of entries, whose index has the entries of a queue in the order of taking."""

import sqlite3
from collections.abc import Collection, Mapping
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.records.head import LOST_HEAD, Head
from holdfast.stores.agenda import HIDE, PARKED, Depth, Due, Entry, Taken, earlier, entry_of, in_turn, last_lane_of
from holdfast.stores.sqlite_file import SQLiteFile

LISTEN_SECONDS = 0.05
PRIORITIES = (2, 1, 0, -1, -2)
COLUMNS = "agenda.number, thread, head, queue, route, priority, lane, held, due"


class Looking(NamedTuple):
    """Which entries a process looks for."""

    prefix: bytes
    queue: str
    routes: Collection[bytes]

    @property
    def where(self) -> str:
        """The condition for them: parameters are those of `parameters`."""
        marks = ", ".join("?" * len(self.routes))
        return f"queue = ? AND route IN ({marks}) AND substr(thread, 1, ?) = ?"

    @property
    def parameters(self) -> list[object]:
        """The parameters of `where`."""
        return [self.queue, *self.routes, len(self.prefix), self.prefix]


class SQLiteAgenda:
    """The statements of the agenda. Each method runs in a transaction of the caller."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql

    def put(self, connection: sqlite3.Connection, number: int, head: Head, due: int = PARKED) -> None:
        """Make the entry of a thread what its head says, or due at `due` if that is earlier."""
        entry = entry_of(head)
        if entry is None:
            connection.execute(self._sql["drop_entry"], (number,))
        else:
            self._write(connection, number, earlier(entry, due))

    def _write(self, connection: sqlite3.Connection, number: int, entry: Entry) -> None:
        values = (number, entry.queue, entry.route, entry.priority, entry.lane, entry.held, entry.due)
        connection.execute(self._sql["put_entry"], values)

    def next_due(self, connection: sqlite3.Connection, looking: Looking) -> int:
        """Return when the next entry is due; `PARKED` if none is. The index has one place for each priority to look."""
        found = PARKED
        sql = f"""SELECT due FROM agenda JOIN threads USING (number) WHERE {looking.where} AND held = ? AND priority = ?
                  ORDER BY due LIMIT 1"""  # noqa: S608
        for place in ((held, priority) for held in (0, 1) for priority in PRIORITIES):
            row = connection.execute(sql, [*looking.parameters, *place]).fetchone()
            found = found if row is None else min(found, row[0])
        return found

    def take(self, connection: sqlite3.Connection, looking: Looking, most: int, after: bytes, now: int) -> Taken:
        """Mark the entries that `Agenda.take` gives, and return them."""
        picked = self._due(connection, looking, held=True, most=most, now=now)
        picked += self._free(connection, looking, most - len(picked), after, now)
        for number, due in picked:
            self._write(connection, number, replace(due.entry, held=True, due=now + HIDE))
        entries = [due.entry for _, due in picked]
        next_due = self.next_due(connection, looking)
        return Taken([due for _, due in picked], next_due, last_lane_of(entries, after))

    def _free(
        self, connection: sqlite3.Connection, looking: Looking, most: int, after: bytes, now: int
    ) -> list[tuple[int, Due]]:
        """Return due entries that nobody holds. Only if not all of them fit do lanes take turns."""
        found = self._due(connection, looking, held=False, most=most + 1, now=now)
        if len(found) > most and connection.execute(self._sql["has_lanes"], (looking.queue,)).fetchone():
            return self._by_lane(connection, looking, most, after, now)
        numbers = {due.thread: (number, due) for number, due in found[:most]}
        ordered = in_turn([(due.thread, due.entry) for _, due in found[:most]], after)
        return [numbers[thread] for thread, _ in ordered]

    def _due(
        self, connection: sqlite3.Connection, looking: Looking, *, held: bool, most: int, now: int
    ) -> list[tuple[int, Due]]:
        sql = f"""SELECT {COLUMNS} FROM agenda JOIN heads USING (number)
                   WHERE {looking.where} AND held = ? AND due <= ?
                   ORDER BY priority DESC, due, thread LIMIT ?"""  # noqa: S608
        return [_taken(row) for row in connection.execute(sql, [*looking.parameters, held, now, max(most, 0)])]

    def _by_lane(
        self, connection: sqlite3.Connection, looking: Looking, most: int, after: bytes, now: int
    ) -> list[tuple[int, Due]]:
        ranked = f"""SELECT number, row_number() OVER (PARTITION BY priority, lane ORDER BY due, thread) AS turn
                       FROM agenda JOIN threads USING (number)
                      WHERE {looking.where} AND held = 0 AND due <= ?"""  # noqa: S608
        sql = f"""SELECT {COLUMNS} FROM ({ranked}) AS ranked JOIN agenda USING (number) JOIN heads USING (number)
                   ORDER BY priority DESC, turn, lane <= ?, lane LIMIT ?"""  # noqa: S608
        return [_taken(row) for row in connection.execute(sql, [*looking.parameters, now, after, most])]

    def depth(self, connection: sqlite3.Connection, prefix: bytes, queue: str, now: int) -> Depth:
        """See `Agenda.depth`."""
        return Depth(*connection.execute(self._sql["measure_queue"], (now, queue, len(prefix), prefix)).fetchone())

    def entries(self, connection: sqlite3.Connection, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        found = connection.execute(self._sql["read_entries"], (len(prefix), prefix))
        return {thread: _entry(*columns) for thread, *columns in found}


def _entry(queue: str, route: bytes, priority: int, lane: bytes, held: int, due: int) -> Entry:
    return Entry(queue, route, priority, lane, bool(held), due)


def _taken(row: tuple[Any, ...]) -> tuple[int, Due]:
    number, thread, head, *columns = row
    return number, Due(thread, _entry(*columns), LOST_HEAD if head is None else head)


class SQLiteListener:
    """See `Listener`: looks every 50 ms whether another connection has written to the file."""

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
