"""Threads in one SQLite file: the default store. A swap is one transaction; many processes may share the file."""

import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import NamedTuple

from holdfast.history.tuning import Tuning
from holdfast.ports import logger
from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.head import LOST_HEAD, Head
from holdfast.records.identity import shown_id_of
from holdfast.records.reports import Guarantee
from holdfast.records.rows import KEEP_ALL, Drop, Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.agenda import NO_LIMITS, Depth, Entry, QueueLimits, Taken, entry_after, entry_of, place_of
from holdfast.stores.backend import Listing, readable_head, replaces_lost_head
from holdfast.stores.choosing import Look
from holdfast.stores.sql import statements
from holdfast.stores.sqlite_agenda import SQLiteAgenda, SQLiteListener, Taking
from holdfast.stores.sqlite_file import MEMORY, ODDITIES, SQLiteFile, transact, translated
from holdfast.stores.sqlite_index import (
    NO_HEAD_YET,
    NUMBER_BITS,
    WINDOW,
    cursor_after,
    first_number,
    is_near,
    label_problems,
    listed_head,
    listing_query,
    pack_tokens,
    problem,
)

SEQ_BITS = 28
LARGEST_SEQ = (1 << SEQ_BITS) - 1
"""Never the seq of a row: the head needs a place after the last row."""
LOCATIONS_KEPT = 16384


class Location(NamedTuple):
    """Where a thread is in the file: its number, the seq that its head is stored under, the head, its index columns."""

    number: int
    place: int
    head: bytes
    labels: object
    status: object


class SQLiteBackend:
    """Implement `Backend` over a SQLite file; `:memory:` is private to this object."""

    kind = "sqlite"
    tuning = Tuning()
    inline = True

    def __init__(self, path: str, durability: Durability | None = None) -> None:
        level = durability or (Durability.NONE if path == MEMORY else Durability.DURABLE)
        if level == Durability.REPLICATED:
            raise ConfigurationError(
                "one SQLite file cannot be replicated; use durability='durable', or a server store"
            )
        if (level == Durability.NONE) != (path == MEMORY):
            raise ConfigurationError(f"SQLite at {path!r} cannot be {level}; files are 'process' or 'durable'")
        self._file = SQLiteFile(path, level)
        self._sql = statements("sqlite")
        self._agenda = SQLiteAgenda(self._sql)
        self._seen: OrderedDict[bytes, Location] = OrderedDict()

    def open(self) -> None:
        """See `Backend.open`."""
        self._file.open()

    def close(self) -> None:
        """See `Backend.close`."""
        self._file.close()

    def guarantee(self) -> Guarantee:
        """See `Backend.guarantee`: the level, with the settings that SQLite reports."""
        with self._file.reading() as connection:
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
            level = connection.execute("PRAGMA synchronous").fetchone()[0]
        details = {
            "sqlite": sqlite3.sqlite_version,
            "journal_mode": mode,
            "synchronous": ("off", "normal", "full", "extra")[level],
            "writers": "one at a time, under flock; checkpoints by holdfast",
        }
        return Guarantee(level=self._file.durability, store=self.kind, details=details)

    def check(self) -> list[str]:
        """See `Backend.check`: SQLite's own check of tables and indexes, and every head against columns and labels."""
        try:
            with self._reading() as connection:
                self._file.check_length()
                found = [row[0] for row in connection.execute("PRAGMA integrity_check") if row != ("ok",)]
                heads = connection.execute(self._sql["read_all_heads"]).fetchall()
                indexed = set(connection.execute(self._sql["read_labels"]))
        except StoreError as error:
            return [str(error)]
        return [*found, *filter(None, map(problem, heads)), *label_problems(heads, indexed)]

    # Writing

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`: one transaction for all."""
        connection = self._file.enter(wait=wait)
        try:
            located = self._transact(connection, swaps)
            for swap, location in zip(swaps, located, strict=True):
                if location is not None:
                    self._remember(swap.thread, location)
            if any(swap.drop is not KEEP_ALL for swap in swaps):
                self._return_pages(connection, swaps)
            return [location is not None for location in located]
        finally:
            self._file.leave(sum(swap.size for swap in swaps))

    def _transact(self, connection: sqlite3.Connection, swaps: Sequence[Swap]) -> list[Location | None]:
        """Make the swaps in one transaction."""
        try:
            return transact(connection, lambda: [self._swap(connection, swap) for swap in swaps])
        except StoreError as error:
            if len(swaps) > 1 and not isinstance(error, OutcomeUnknown):
                raise StoreUnavailable(f"none of these writes was made: {error}") from error
            raise

    def _swap(self, connection: sqlite3.Connection, swap: Swap) -> Location | None:
        """Make one swap and return where the thread is now; None if its head is not the expected one.

        The thread is searched only if its head is not where this process saw it last.
        """
        rows, drop = swap.rows, swap.drop
        at = self._seen.get(swap.thread)
        is_replaced = at is not None and self._replace_head(connection, at, swap)
        if not is_replaced:
            at = self._locate(connection, swap.thread, also_lost=replaces_lost_head(swap))
            if (at.head if at else b"") != swap.expected:
                return None
        at = at or self._create(connection, swap.thread, swap.head)
        labels = self._update_thread(connection, at, swap)
        if drop is not KEEP_ALL or swap.consumed:
            self._drop(connection, at, drop, swap.consumed)
        if swap.moves:
            self._move(connection, at.number, swap)
        place = 1 if drop.everything else at.place
        if rows:
            place = max(place, rows[-1].seq + 1)
        if is_replaced:
            self._put(connection, at.number, (*rows[1:], _head_row(place, swap)) if rows else (), "insert_row")
        else:
            if rows and rows[0].seq > at.place:
                connection.execute(self._sql["drop_row"], (at.number << SEQ_BITS | at.place,))
            self._put(connection, at.number, (*rows, _head_row(place, swap)), "put_row")
        for blob, data in swap.blobs.items():
            connection.execute(self._sql["insert_blob"], (at.number, blob, data))
        return Location(at.number, place, swap.replacement, labels, swap.head.listed_as)

    def _move(self, connection: sqlite3.Connection, number: int, swap: Swap) -> None:
        """Change the thread's entry in the agenda."""
        messages = () if swap.heard is None else [key for key, _ in self._posts(connection, number) if type(key) is str]
        self._agenda.put(connection, number, swap.thread, entry_after(swap, messages))

    def _replace_head(self, connection: sqlite3.Connection, at: Location, swap: Swap) -> bool:
        """Put the first row of a swap, or its head if it has none, where the expected head is; False if it is not."""
        if at.head != swap.expected or swap.drop.everything or (swap.rows and swap.rows[0].seq != at.place):
            return False
        row_id, *columns = _columns(at.number, swap.rows[0] if swap.rows else _head_row(at.place, swap))
        values = (*columns, row_id, swap.expected or NO_HEAD_YET)
        return connection.execute(self._sql["replace_head"], values).rowcount == 1

    def _put(self, connection: sqlite3.Connection, number: int, rows: Iterable[Row], statement: str) -> None:
        for row in rows:
            connection.execute(self._sql[statement], _columns(number, row))

    def _create(self, connection: sqlite3.Connection, thread: bytes, head: Head) -> Location:
        """Create a thread under the first free number from its hash on. It still needs its head."""
        number, labels = self._free_number(connection, thread), pack_tokens(head.labels)
        connection.execute(self._sql["insert_thread"], (number, thread, labels, head.listed_as))
        connection.executemany(self._sql["insert_label"], [(token, number) for token in head.labels])
        return Location(number, 1, b"", labels, head.listed_as)

    def _update_thread(self, connection: sqlite3.Connection, at: Location, swap: Swap) -> bytes:
        """Update what a thread is listed by, where the new head says something else; return its packed labels."""
        number, labels, status = at.number, pack_tokens(swap.head.labels), swap.head.listed_as
        if labels != at.labels or swap.drop.everything:
            self._drop_labels(connection, at, readable_head(swap.thread, swap.expected) or Head())
            connection.executemany(self._sql["insert_label"], [(token, number) for token in swap.head.labels])
        if (labels, status) != (at.labels, at.status):
            connection.execute(self._sql["update_thread"], (labels, status, number))
        if swap.drop.everything:
            connection.execute(self._sql["mend_birth"], (number,))
        return labels

    def _drop_labels(self, connection: sqlite3.Connection, at: Location, head: Head) -> None:
        """Drop a thread's labels from the index. If its column differs from its head, search the whole index."""
        if at.labels == pack_tokens(head.labels):
            connection.executemany(self._sql["drop_label"], [(token, at.number) for token in head.labels])
        else:
            connection.execute(self._sql["drop_labels"], (at.number,))

    def _drop(self, connection: sqlite3.Connection, at: Location, drop: Drop, consumed: tuple[str, ...]) -> None:
        number = at.number
        connection.executemany(self._sql["drop_post"], [(number, key) for key in consumed])
        # Up to the old head only: the first new row is already in its place.
        ranges = [(0, LARGEST_SEQ + 1)] if drop.everything else [(low, min(high, at.place)) for low, high in drop.rows]
        bounds = [(number << SEQ_BITS | start, (number << SEQ_BITS) + stop) for start, stop in ranges]
        connection.executemany(self._sql["drop_rows"], bounds)
        connection.executemany(self._sql["drop_blob"], [(number, blob) for blob in drop.blobs])
        if drop.everything:
            connection.execute(self._sql["drop_blobs"], (number,))
            connection.execute(self._sql["drop_posts"], (number,))

    def _return_pages(self, connection: sqlite3.Connection, swaps: Sequence[Swap]) -> None:
        """Return free pages to the file system; after a secure drop, also empty the log.

        The drop is already committed, so a failure here is only logged, unless the drop had to be secure.
        """
        is_secure = any(swap.drop.secure for swap in swaps)
        try:
            # A script runs to its end; `execute` would free a single page.
            connection.executescript("PRAGMA incremental_vacuum")
            is_empty = self._file.checkpoint("TRUNCATE" if is_secure else "PASSIVE")
        except sqlite3.Error as error:
            logger().warning("SQLite could not return free pages to the file system: %s", error)
            is_empty = False
        if is_secure and not is_empty:
            raise StoreUnavailable("the data is dropped, but a reader kept SQLite from emptying its log; erase again")

    def drop_misplaced(self, thread: bytes) -> None:
        """See `Misplacing.drop_misplaced`: drop every entry under another number than the one `heads` finds."""
        with self._file.writing() as connection:
            transact(connection, lambda: self._drop_misplaced(connection, thread))

    def _drop_misplaced(self, connection: sqlite3.Connection, thread: bytes) -> None:
        found = self._locate(connection, thread)
        number = None if found is None else found.number
        for (misplaced,) in connection.execute(self._sql["find_misplaced"], (thread, number)).fetchall():
            if 0 <= misplaced < 1 << NUMBER_BITS:  # any other number, shifted, would name the rows of other threads
                self._drop(connection, Location(misplaced, 1, b"", b"", ""), Drop(everything=True), ())
            connection.execute(self._sql["drop_labels"], (misplaced,))
            connection.execute(self._sql["drop_entry"], (misplaced,))
            connection.execute(self._sql["drop_thread"], (misplaced,))

    # Threads and their numbers

    def _locate(self, connection: sqlite3.Connection, thread: bytes, *, also_lost: bool = False) -> Location | None:
        """Find a thread; None if it is not in the file.

        Raise `Corrupt` if its head is lost; with `also_lost`, return it with an empty head.
        """
        for row in connection.execute(self._sql["find_thread"], (first_number(thread),)):
            number, key, head_id, head, labels, status = row
            place = (head_id or 1) & LARGEST_SEQ
            if also_lost and key == thread and _is_empty(head):
                return Location(number, place, b"", labels, status)
            if key == thread and head is not None:
                found = Location(number, place, _whole(head, number, place), labels, status)
                self._remember(thread, found)
                return found
            if key == thread or not is_near(number, key):
                name = shown_id_of(key)
                raise Corrupt(
                    f"the SQLite file is damaged: thread {name!r} has no head, or a wrong number",
                    record=f"head of {name!r}",
                )
        orphan = connection.execute(self._sql["find_orphan"], (first_number(thread),)).fetchone()
        if orphan:
            raise Corrupt("the SQLite file is damaged: rows without a head", record=f"head {orphan[0]}")
        return None

    def _remember(self, thread: bytes, location: Location) -> None:
        self._seen[thread] = location
        if len(self._seen) > LOCATIONS_KEPT:
            self._seen.popitem(last=False)

    def _free_number(self, connection: sqlite3.Connection, thread: bytes) -> int:
        first = first_number(thread)
        taken = {number for number, *_ in connection.execute(self._sql["find_thread"], (first,))}
        number = next((number for number in range(first, first + WINDOW) if number not in taken), None)
        if number is None:
            raise StoreError("this SQLite file has too many threads near one number; use another file")
        return number

    # Reading

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._file.reading() as connection:
                yield connection
        except (sqlite3.Error, *ODDITIES) as error:
            raise translated(error) from error

    def _first_id(self, connection: sqlite3.Connection, thread: bytes) -> int | None:
        """Return the id below all row ids of a thread; None if the thread is not in the file."""
        found = self._seen.get(thread) or self._locate(connection, thread)
        return None if found is None else found.number << SEQ_BITS

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`."""
        with self._reading() as connection:
            located = [self._locate(connection, thread) for thread in threads]
        return [found.head or None if found else None for found in located]

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`: one range of the table."""
        with self._reading() as connection:
            first = self._first_id(connection, thread)
            if first is None or not 0 < seq < LARGEST_SEQ:
                return []
            return _rows(first, connection.execute(self._sql["read_rows"], (first | seq,)))

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`."""
        above = LARGEST_SEQ if before is None else min(max(before, 0), LARGEST_SEQ)
        with self._reading() as connection:
            first = self._first_id(connection, thread)
            if first is None:
                return []
            bounds = (first, first + above, -1 if limit is None else limit)
            return _rows(first, connection.execute(self._sql["read_index"], bounds))

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`."""
        with self._reading() as connection:
            first = self._first_id(connection, thread)
            if first is None:
                return {}
            number, sql = first >> SEQ_BITS, self._sql["read_blob"]
            found = ((blob, connection.execute(sql, (number, blob)).fetchone()) for blob in ids)
            return {blob: row[0] for blob, row in found if row is not None}

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`: newest created first."""
        sql, parameters = listing_query(prefix, statuses, labels, cursor, limit)
        with self._reading() as connection:
            found = connection.execute(sql, parameters).fetchall()
        page = found[:limit]
        heads = [(columns[1], listed_head(*columns)) for _, _, *columns in page]
        return Listing(heads, cursor_after(*page[-1][:2]) if len(found) > limit else None)

    def counts(self, prefix: bytes) -> dict[str, int]:
        """See `Counting.counts`: one pass over the table of threads, which holds no heads."""
        with self._reading() as connection:
            return dict(connection.execute(self._sql["count_threads"], (len(prefix), prefix)).fetchall())

    # The agenda

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
        """See `Agenda.take`. If nothing is due, nothing is written."""
        look = Look(queue, routes, most, after, limits, low, self.now())
        with self._reading() as connection:
            next_due = Taking(connection, self._sql, prefix, look).next_due(low)
        if next_due > look.now:
            return Taken([], next_due, after)
        with self._file.writing() as connection:
            return transact(connection, Taking(connection, self._sql, prefix, look).take)

    def look_again(self, thread: bytes, due: int) -> None:
        """See `Agenda.look_again`."""
        with self._file.writing() as connection:
            transact(connection, lambda: self._look_again(connection, thread, due))

    def _look_again(self, connection: sqlite3.Connection, thread: bytes, due: int) -> None:
        found = self._locate(connection, thread)
        if found is not None:
            wanted = entry_of(readable_head(thread, found.head) or Head())
            self._agenda.look_again(connection, found.number, thread, wanted, due, self.now())

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Agenda.call`: one transaction."""

        def call() -> bool:
            is_new = self._insert_post(connection, thread, key, value)
            self._look_again(connection, thread, self.now())
            return is_new

        with self._file.writing() as connection:
            return transact(connection, call)

    def depth(self, prefix: bytes, queue: str) -> Depth:
        """See `Agenda.depth`."""
        with self._reading() as connection:
            return self._agenda.depth(connection, place_of(prefix, queue), self.now())

    def entries(self, prefix: bytes) -> dict[bytes, Entry]:
        """See `Agenda.entries`."""
        with self._reading() as connection:
            return self._agenda.entries(connection, prefix)

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        """See `Agenda.spend`."""
        with self._file.writing() as connection:
            return transact(connection, lambda: self._agenda.spend(connection, bucket, cost, burst, self.now()))

    def now(self) -> int:
        """See `Agenda.now`: the clock of this host."""
        return time_ns() // 1000

    def held(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """See `OneHost.held`."""
        with self._reading() as connection:
            found = connection.execute(self._sql["read_held"], (len(prefix), prefix)).fetchall()
        return [(thread, LOST_HEAD if head is None else head) for thread, head in found]

    def announce(self, prefix: bytes) -> None:
        """Do nothing: listeners see by the version of the file that something was committed."""

    def listener(self, prefix: bytes) -> "SQLiteListener":
        """See `Announcing.listener`."""
        return SQLiteListener(self._file)

    # Posts

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`."""
        with self._file.writing() as connection:
            return transact(connection, lambda: self._insert_post(connection, thread, key, value))

    def _insert_post(self, connection: sqlite3.Connection, thread: bytes, key: str, value: bytes) -> bool:
        found = self._locate(connection, thread)
        if found is None:
            found = self._create(connection, thread, Head())
            self._put(connection, found.number, [Row(1, 0, b"", NO_HEAD_YET, b"")], "put_row")
        return connection.execute(self._sql["insert_post"], (found.number, key, value)).rowcount == 1

    def _posts(self, connection: sqlite3.Connection, number: int) -> list[tuple[str, bytes]]:
        return connection.execute(self._sql["read_posts"], (number,)).fetchall()

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`."""
        with self._reading() as connection:
            first = self._first_id(connection, thread)
            if first is None:
                return {}
            found = self._posts(connection, first >> SEQ_BITS)
        for key, value in found:
            if type(key) is not str or type(value) is not bytes:
                name = f"message {key!r} of {shown_id_of(thread)!r}"
                raise Corrupt(f"{name} is damaged: its type has changed", record=name)
        return dict(found)


def _columns(number: int, row: Row) -> tuple[int, int, bytes, bytes, bytes]:
    """Return the columns of a row, or of a head: a row without digest and body."""
    if row.seq > LARGEST_SEQ:
        raise StoreError(
            f"a thread in SQLite has at most {LARGEST_SEQ - 1} rows, and this one has them; fork it and continue there"
        )
    return number << SEQ_BITS | row.seq, row.seq - row.base, row.digest, row.header, row.body


def _head_row(place: int, swap: Swap) -> Row:
    return Row(place, 0, b"", swap.replacement, b"")


def _rows(first: int, found: Iterable[tuple[int, int, bytes, bytes, bytes]]) -> list[Row]:
    return [
        Row(row_id - first, row_id - first - back, digest, header, body) for row_id, back, digest, header, body in found
    ]


def _is_empty(head: bytes | None) -> bool:
    """True if no head is stored, or only `NO_HEAD_YET`."""
    return head is None or not head.strip(NO_HEAD_YET)


def _whole(head: bytes, number: int, place: int) -> bytes:
    """Return the head; empty if the thread has no head yet, and so no rows."""
    if head == NO_HEAD_YET and place == 1:
        return b""
    if _is_empty(head):
        raise Corrupt("the SQLite file is damaged: a head is empty", record=f"head {number}")
    return head
