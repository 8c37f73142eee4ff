"""Threads in one SQLite file: the default store. A swap is one transaction; many processes may share the file."""

import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

import msgspec

from holdfast.history.tuning import Tuning
from holdfast.ports import logger
from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.head import LOST_HEAD, Head, decode_head
from holdfast.records.identity import shown_id_of
from holdfast.records.reports import Guarantee
from holdfast.records.rows import KEEP_ALL, Drop, Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Listing, readable_head, replaces_lost_head
from holdfast.stores.sql import statements
from holdfast.stores.sqlite_file import MEMORY, ODDITIES, SQLiteFile, roll_back, translated

SEQ_BITS = 28
NUMBER_BITS = 28
WINDOW = 16
LARGEST_SEQ = (1 << SEQ_BITS) - 1
"""That of no row: there must be room for the head behind the last one."""
NO_HEAD_YET = b"\0"
"""In the place of the head, where only messages were left so far."""
NUMBERS_KEPT = 65536
LATEST_BIRTH = (1 << 63) - 1
"""What SQLite can compare with."""


class Found(NamedTuple):
    """A thread in the file: its number, the seq under which its head stands, the head, and the columns of its index."""

    number: int
    place: int
    head: bytes
    labels: object
    status: object


class SQLiteBackend:
    """The interface of `Backend` over a SQLite file; `:memory:` is private to this object."""

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
        self._numbers: OrderedDict[bytes, int] = OrderedDict()

    def open(self) -> None:
        """See `Backend.open`."""
        self._file.open()

    def close(self) -> None:
        """See `Backend.close`."""
        self._file.close()

    def guarantee(self) -> Guarantee:
        """The level, with the settings SQLite reports."""
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
        """See `Backend.check`: SQLite's own check of tables and indexes, and every head against its columns."""
        try:
            with self._reading() as connection:
                self._file.check_length()
                found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
                heads = list(filter(None, map(_problem, connection.execute(self._sql["read_all_heads"]))))
        except StoreError as error:
            return [str(error)]
        return heads if found == ["ok"] else found + heads

    # Writing

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`: one transaction for all."""
        file, size = self._file, None
        connection = file.enter(wait=wait)
        try:
            outcomes = self._transaction(connection, swaps)
            size = sum(swap.size for swap in swaps)
            if any(swap.drop is not KEEP_ALL for swap in swaps):
                self._give_back(connection, swaps)
            return outcomes
        finally:
            file.leave(size)

    def _transaction(self, connection: sqlite3.Connection, swaps: Sequence[Swap]) -> list[bool]:
        writing = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._swap_in(connection, swap) for swap in swaps]
            writing = True
            connection.execute("COMMIT")
        except (sqlite3.Error, *ODDITIES) as error:
            roll_back(connection)
            raise translated(error, writing=writing) from error
        except BaseException:
            # Also a KeyboardInterrupt: a transaction left open would swallow what is written next.
            roll_back(connection)
            raise
        return outcomes

    def _swap_in(self, connection: sqlite3.Connection, swap: Swap) -> bool:
        """The first new row takes the place of the old head, and the new head follows the last row."""
        found = self._locate(connection, swap.thread, also_lost=replaces_lost_head(swap))
        if (found.head if found else b"") != swap.expected:
            return False
        number = found.number if found else self._create(connection, swap.thread, swap.head)
        if found:
            self._update_thread(connection, found, swap)
        if swap.drop is not KEEP_ALL or swap.consumed:
            self._drop(connection, number, swap.drop, swap.consumed)
        place = found.place if found and not swap.drop.everything else 1
        if swap.rows:
            if found and swap.rows[0].seq > place:
                connection.execute(self._sql["drop_row"], (number << SEQ_BITS | place,))
            place = max(place, swap.rows[-1].seq + 1)
        for row in swap.rows:
            self._put(connection, number, row)
        for blob, data in swap.blobs.items():
            connection.execute(self._sql["insert_blob"], (number, blob, data))
        self._put(connection, number, Row(place, 0, b"", swap.replacement, b""))
        return True

    def _put(self, connection: sqlite3.Connection, number: int, row: Row) -> None:
        """Put a row, or a head as a row without digest and body."""
        if row.seq > LARGEST_SEQ:
            raise StoreError(f"a thread in SQLite has at most {LARGEST_SEQ - 1} rows; fork it, and continue there")
        values = (number << SEQ_BITS | row.seq, row.seq - row.base, row.digest, row.header, row.body)
        connection.execute(self._sql["put_row"], values)

    def _create(self, connection: sqlite3.Connection, thread: bytes, head: Head) -> int:
        """A thread, found under the first free number from its hash on. It still needs its head."""
        number = self._free_number(connection, thread)
        connection.execute(self._sql["insert_thread"], (number, thread, _packed(head.labels), head.listed_as))
        connection.executemany(self._sql["insert_label"], [(token, number) for token in head.labels])
        self._remember(thread, number)
        return number

    def _update_thread(self, connection: sqlite3.Connection, found: "Found", swap: Swap) -> None:
        number, labels, status = found.number, _packed(swap.head.labels), swap.head.listed_as
        if labels != found.labels or swap.drop.everything:
            self._drop_labels(connection, number, found.labels, readable_head(swap.thread, swap.expected) or Head())
            connection.executemany(self._sql["insert_label"], [(token, number) for token in swap.head.labels])
        if (labels, status) != (found.labels, found.status):
            connection.execute(self._sql["update_thread"], (labels, status, number))
        if swap.drop.everything:
            connection.execute(self._sql["mend_birth"], (number,))

    def _drop_labels(self, connection: sqlite3.Connection, number: int, known: object, head: Head) -> None:
        """Drop a thread's labels from the index. If its column differs from its head, search the whole index."""
        if known == _packed(head.labels):
            connection.executemany(self._sql["drop_label"], [(token, number) for token in head.labels])
        else:
            connection.execute(self._sql["drop_labels"], (number,))

    def _drop(self, connection: sqlite3.Connection, number: int, drop: Drop, consumed: tuple[str, ...]) -> None:
        connection.executemany(self._sql["drop_post"], [(number, key) for key in consumed])
        ranges = [(0, LARGEST_SEQ + 1)] if drop.everything else drop.rows
        bounds = [(number << SEQ_BITS | start, (number << SEQ_BITS) + stop) for start, stop in ranges]
        connection.executemany(self._sql["drop_rows"], bounds)
        connection.executemany(self._sql["drop_blob"], [(number, blob) for blob in drop.blobs])
        if drop.everything:
            connection.execute(self._sql["drop_blobs"], (number,))
            connection.execute(self._sql["drop_posts"], (number,))

    def _give_back(self, connection: sqlite3.Connection, swaps: Sequence[Swap]) -> None:
        """Return free pages to the file system; after a secure drop, leave nothing of it in the log either.

        What was dropped is gone already, so a failure here is only logged, unless it was to be secure.
        """
        is_secure = any(swap.drop.secure for swap in swaps)
        try:
            # A script is stepped to its end; `execute` would free a single page.
            connection.executescript("PRAGMA incremental_vacuum")
            is_empty = self._file.checkpoint("TRUNCATE" if is_secure else "PASSIVE")
        except sqlite3.Error as error:
            logger().warning("SQLite could not give back pages: %s", error)
            is_empty = False
        if is_secure and not is_empty:
            raise StoreUnavailable("the past is dropped, but a reader kept SQLite from emptying its log; erase again")

    def drop_misplaced(self, thread: bytes) -> None:
        """See `Misplacing.drop_misplaced`: every entry under another number than the one `heads` finds."""
        with self._writing() as connection:
            found = self._locate(connection, thread)
            number = None if found is None else found.number
            for (misplaced,) in connection.execute(self._sql["find_misplaced"], (thread, number)).fetchall():
                self._drop_thread(connection, misplaced)

    def _drop_thread(self, connection: sqlite3.Connection, number: int) -> None:
        if 0 <= number < 1 << NUMBER_BITS:  # shifted, another number would be that of other rows
            self._drop(connection, number, Drop(everything=True), ())
            connection.execute(self._sql["drop_rows"], (number << SEQ_BITS, (number + 1) << SEQ_BITS))
        connection.execute(self._sql["drop_labels"], (number,))
        connection.execute(self._sql["drop_thread"], (number,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self._file.writing() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except (sqlite3.Error, *ODDITIES) as error:
                roll_back(connection)
                raise translated(error, writing=True) from error
            except BaseException:
                roll_back(connection)
                raise

    # Threads and their numbers

    def _locate(self, connection: sqlite3.Connection, thread: bytes, *, also_lost: bool = False) -> "Found | None":
        """Where a thread is, and its head; None if it is not there.

        A head that was lost is `Corrupt`, or empty if it is sought too.
        """
        for row in connection.execute(self._sql["find_thread"], (_first_number(thread),)):
            number, key, head_id, head, labels, status = row
            place = (head_id or 1) & LARGEST_SEQ
            if also_lost and key == thread and _is_empty(head):
                return Found(number, place, b"", labels, status)
            if key == thread and head is not None:
                self._remember(thread, number)
                return Found(number, place, _whole(head, number, place), labels, status)
            if key == thread or not _is_near(number, key):
                name = shown_id_of(key)
                raise Corrupt(
                    f"the SQLite file is damaged: thread {name!r} is without a head, or under a wrong number",
                    record=f"head of {name!r}",
                )
        orphan = connection.execute(self._sql["find_orphan"], (_first_number(thread),)).fetchone()
        if orphan:
            raise Corrupt("the SQLite file is damaged: rows without a head", record=f"head {orphan[0]}")
        return None

    def _remember(self, thread: bytes, number: int) -> None:
        self._numbers[thread] = number
        if len(self._numbers) > NUMBERS_KEPT:
            self._numbers.popitem(last=False)

    def _free_number(self, connection: sqlite3.Connection, thread: bytes) -> int:
        """A number that no thread has yet."""
        first = _first_number(thread)
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
        """The id below all row ids of a thread; None if the thread is not there."""
        number = self._numbers.get(thread)
        if number is None:
            found = self._locate(connection, thread)
            number = None if found is None else found.number
        return None if number is None else number << SEQ_BITS

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
        sql, parameters = _listing_query(prefix, statuses, labels, cursor, limit)
        with self._reading() as connection:
            found = connection.execute(sql, parameters).fetchall()
        page = found[:limit]
        heads = [(columns[1], _listed_head(*columns)) for _, _, *columns in page]
        return Listing(heads, _cursor(*page[-1][:2]) if len(found) > limit else None)

    def counts(self, prefix: bytes) -> dict[str, int]:
        """See `Counting.counts`: one pass over the table of threads, which holds no heads."""
        with self._reading() as connection:
            return dict(connection.execute(self._sql["count_threads"], (len(prefix), prefix)).fetchall())

    # Posts

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`."""
        with self._writing() as connection:
            found = self._locate(connection, thread)
            number = found.number if found else self._create(connection, thread, Head())
            if not found:
                self._put(connection, number, Row(1, 0, b"", NO_HEAD_YET, b""))
            count = connection.execute(self._sql["insert_post"], (number, key, value)).rowcount
        return count == 1

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`."""
        with self._reading() as connection:
            first = self._first_id(connection, thread)
            if first is None:
                return {}
            found = connection.execute(self._sql["read_posts"], (first >> SEQ_BITS,)).fetchall()
        for key, value in found:
            if type(key) is not str or type(value) is not bytes:
                name = f"message {key!r} of {shown_id_of(thread)!r}"
                raise Corrupt(f"{name} is damaged: it has another type than was stored", record=name)
        return dict(found)


def _first_number(thread: bytes) -> int:
    """Where the number of a thread is looked for first: its hash, folded into the numbers there are."""
    return int.from_bytes(sha256(thread).digest()[:5], "big") % ((1 << NUMBER_BITS) - WINDOW)


def _is_near(number: int, thread: bytes) -> bool:
    """True if a thread can have that number."""
    return 0 <= number - _first_number(thread) < WINDOW


def _rows(first: int, found: Iterable[tuple[int, int, bytes, bytes, bytes]]) -> list[Row]:
    return [
        Row(row_id - first, row_id - first - back, digest, header, body) for row_id, back, digest, header, body in found
    ]


def _listing_query(
    prefix: bytes, statuses: Collection[str], labels: Sequence[Collection[bytes]], cursor: str | None, limit: int
) -> tuple[str, list[object]]:
    """One more than `limit` is asked for, to know whether there is a next page."""
    older, births = _older_than(cursor)
    conditions = [older, "substr(thread, 1, ?) = ?"]
    parameters: list[object] = [*births, len(prefix), prefix]
    if statuses:
        conditions.append(f"status IN ({_marks(statuses)})")
        parameters += statuses
    else:
        conditions.append("status <> ''")
    for choices in labels:
        conditions.append(f"number IN (SELECT number FROM labels WHERE token IN ({_marks(choices)}))")  # noqa: S608
        parameters += choices
    where = " AND ".join(conditions)
    chosen = f"SELECT number FROM threads WHERE {where} ORDER BY birth DESC LIMIT ?"  # noqa: S608
    columns = f"typeof (birth), {BIRTH}, number, thread, head, status, labels, {IS_DATED}"
    sql = f"SELECT {columns} FROM heads WHERE number IN ({chosen}) ORDER BY birth DESC"  # noqa: S608
    return sql, [*parameters, limit + 1]


BIRTH = "CASE typeof (birth) WHEN 'text' THEN CAST (birth AS BLOB) ELSE birth END"
"""As it is stored, also if it is text that Python cannot decode."""
IS_DATED = "typeof (birth) = 'integer' AND birth < 4611686018427387904"


def _cursor(kind: str, birth: float | bytes) -> str:
    """The place behind a thread in a listing. Births are numbers; one that somebody changed has its type before it."""
    return str(birth) if kind == "integer" else f"{kind}:{birth.hex() if isinstance(birth, bytes) else birth}"


def _older_than(cursor: str | None) -> tuple[str, list[object]]:
    """The condition for threads behind that place, and its parameters; `ValueError` if it is none."""
    if cursor is None:
        return "true", []
    kind, colon, birth = cursor.rpartition(":")
    if not colon:
        return "birth < ?", [min(int(cursor), LATEST_BIRTH)]
    if kind == "real":
        return "birth < ?", [float(birth)]
    if kind not in {"text", "blob"}:
        raise ValueError(cursor)
    return f"birth < CAST (? AS {kind})", [bytes.fromhex(birth)]


def _listed_head(
    number: int, thread: bytes, encoded: bytes | None, status: str, packed: bytes, is_dated: bool
) -> bytes:
    """The head of a thread; `LOST_HEAD` if the columns that the thread is found by differ from what it says."""
    if encoded is None or not is_dated or not _is_near(number, thread):
        return LOST_HEAD
    head = Head() if encoded == NO_HEAD_YET else readable_head(thread, encoded)
    agrees = head is None or (head.listed_as, _packed(head.labels)) == (status, packed)
    return encoded if agrees else LOST_HEAD


def _problem(columns: tuple[int, bytes, bytes | None, str, bytes, bool]) -> str:
    """What is wrong with the head of a thread, or with its columns; empty if nothing is."""
    number, thread, *_ = columns
    if type(thread) is not bytes:
        return f"thread number {number} is damaged: its key is of the type {type(thread).__name__}"
    encoded = _listed_head(*columns)
    try:
        if encoded != NO_HEAD_YET:
            decode_head(thread, encoded)
    except (Corrupt, IncompatibleCheckpoint) as error:
        return str(error)
    return ""


def _is_empty(head: bytes | None) -> bool:
    """True if there is nothing in the place of a head, or only the byte that says that there is none yet."""
    return head is None or not head.strip(NO_HEAD_YET)


def _whole(head: bytes, number: int, place: int) -> bytes:
    """The head; empty if there is none yet, and so no row before its place."""
    if head == NO_HEAD_YET and place == 1:
        return b""
    if _is_empty(head):
        raise Corrupt("the SQLite file is damaged: a head is empty", record=f"head {number}")
    return head


def _packed(tokens: tuple[bytes, ...]) -> bytes:
    """The tokens of a head's labels as one value; empty for none, as most threads have."""
    return msgspec.msgpack.encode(tokens) if tokens else b""


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
