"""One SQLite database file: its connections, pragmas, schema version, and the gate all writers pass through.

SQLite 3.7.0 to 3.51.2 can lose the write-ahead log when two connections write or checkpoint at the same moment (fixed
in 3.51.3, 3.50.7 and 3.44.6). Another process on the same file may use any version, so every write, checkpoint and
close happens under our own flock, and SQLite's automatic checkpoints are off. That costs a microsecond.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TypeVar

from holdfast.ports import hold_during_fork, logger, reset_after_fork
from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    OutcomeUnknown,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.words import Durability
from holdfast.stores.backend import Busy
from holdfast.stores.file_locks import lock_file, try_to_lock, unlock
from holdfast.stores.pool import Pool
from holdfast.stores.private_files import create, open_regular, refuse_irregular, sync_directory
from holdfast.stores.sql import migrations
from holdfast.stores.sqlite_pages import has_log, is_cut_short, size_of
from holdfast.stores.sqlite_schema import FIRST, check_kinds, check_schema

T = TypeVar("T")
APPLICATION_ID = 0x484F4C44
SYNCHRONOUS = {Durability.NONE: 0, Durability.PROCESS: 1, Durability.DURABLE: 2}
CHECKPOINT_PAGES = 64
"""Pages in the log before it is moved into the database. A commit that makes the log longer waits longer for the disk
than one that overwrites it (`python -m benchmarks.versions`), so the log stays short."""
PAGE_BYTES = 4096
MEMORY = ":memory:"
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT}


_inherited: list[object] = []
"""Connections of a parent process, kept referenced so that the child never closes them."""
_not_ours: set[str] = set()
"""Files that a parent process was using while it forked: this process cannot lock them."""
REST_SECONDS = 10
SUFFIXES = ("", "-lock", "-wal", "-shm", "-journal")
"""The files of a database."""
NOT_OURS = "name another, or restore a backup"
ODDITIES = (UnicodeDecodeError, MemoryError, OverflowError, TypeError, ValueError)
"""What a damaged file can make Python's sqlite3 raise besides its own errors: impossible text, types and lengths."""


def translated(error: Exception, *, writing: bool = False) -> StoreError:
    """Translate an error of SQLite into one of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return Corrupt(f"this is not a SQLite file, or it is damaged; {NOT_OURS}", record="sqlite")
    if code in _DAMAGE or not isinstance(error, sqlite3.OperationalError) or not hasattr(error, "sqlite_errorcode"):
        return Corrupt(f"the SQLite file is damaged: {error}; restore a backup", record="sqlite")
    if code == sqlite3.SQLITE_IOERR and writing:
        return OutcomeUnknown(f"SQLite failed while it committed, so the write may or may not be stored: {error}")
    return StoreUnavailable(f"SQLite: {error}")


class SQLiteFile:
    """Manage the connections to one database. `:memory:` has a single one, private to this object."""

    def __init__(self, path: str, durability: Durability) -> None:
        # Resolved once: a later chdir, or a changed link, must not lead to another file or gate.
        self.path = path if path == MEMORY else os.path.realpath(path)
        self.durability = durability
        self._lock = RLock()
        self._readers = Pool(self._connect_reader)
        self._writer: sqlite3.Connection | None = None
        self._gate = -1
        self._is_open = False
        self._pages = 0
        self._writing = 0
        self._at_rest = True
        self._closed = False
        reset_after_fork(self)
        hold_during_fork(self)

    def acquire(self) -> bool:
        """Before a fork, wait for reads and writes, then close every connection. Both processes open the file again.

        SQLite keeps track of a process's locks in memory. A child would believe that it holds its parent's locks: it
        would deadlock with itself, or others would truncate the log while it writes.
        """
        self._at_rest = False
        try:
            is_quiet = self._readers.pause(REST_SECONDS)
            self._lock.acquire()
        except BaseException:
            self._readers.resume()
            raise
        if not self.in_memory:
            self._at_rest = is_quiet and not self._writing and self._disconnect()
            if not self._at_rest:
                logger().warning("%s is in use while this process forks; the child cannot use it", self.path)
        return True

    def _disconnect(self) -> bool:
        try:
            with self._passing():
                self._close_all()
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            logger().warning("SQLite could not close %s: %s", self.path, error)
            return False
        self._close_gate()
        self._is_open = False
        return True

    def release(self) -> None:
        """After a fork, let the parent use the file again."""
        self._lock.release()
        self._readers.resume()

    def after_fork(self) -> None:
        """In a forked child, start without connections. The parent's must neither be used nor closed."""
        self._lock = RLock()
        if self.in_memory:
            return
        if not self._at_rest:
            _inherited.append((self._readers, self._writer))
            _not_ours.add(self.path)
        self._readers, self._writer, self._is_open = Pool(self._connect_reader), None, False
        self._close_gate()

    @property
    def in_memory(self) -> bool:
        """True if nothing is on disk."""
        return self.path == MEMORY

    def open(self) -> None:
        """Connect, set and check the pragmas, and bring the schema up to date."""
        with self._lock:
            self._check_open()
            if self._is_open:
                return
            if self.path in _not_ours:
                raise StoreUnavailable(
                    f"{self.path} was being read or written while this process was forked, so it cannot be locked here;"
                    " fork while no call is in progress, or spawn the process instead"
                )
            try:
                self._create()
            except (sqlite3.Error, *ODDITIES) as error:
                raise translated(error) from error
            except OSError as error:
                raise StoreUnavailable(f"cannot open {self.path}: {error}") from error
            self._is_open = True

    def _create(self) -> None:
        if not self.in_memory:
            self._check_place()
            self._gate = _open_gate(self.path)
        try:
            with self._passing():
                self._writer = self._prepare()
        except BaseException:
            self._close_gate()
            raise

    def _check_place(self) -> None:
        """Refuse a path that can never hold a database, before any file is created next to it.

        SQLite would follow a symbolic link in place of one of its files, and block on a named pipe.
        """
        if os.path.isdir(self.path):
            raise ConfigurationError(f"{self.path} is a directory; name a file in it, or use file:{self.path}")
        directory = os.path.dirname(self.path)
        if not os.path.isdir(directory):
            raise ConfigurationError(f"{self.path}: the directory {directory} does not exist; create it first")
        for suffix in SUFFIXES:
            refuse_irregular(self.path + suffix)
        if size_of(self.path):
            self._check_start()

    def _check_start(self) -> None:
        """Refuse a file that does not begin like a database.

        SQLite reads it, without locks and without other files: if we opened and closed the file, other connections of
        this process would lose their locks on it. Other problems are found later, under the gate: this read may happen
        in the middle of a checkpoint.
        """
        connection = sqlite3.connect(f"file://{_quoted(self.path)}?mode=ro&immutable=1", uri=True)
        try:
            _ask(connection, "schema_version")
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise Corrupt(
                    f"{self.path} is not a SQLite file, or it is damaged; {NOT_OURS}", record="sqlite"
                ) from error
        finally:
            connection.close()

    def _prepare(self) -> sqlite3.Connection:
        if not self.in_memory:
            if create(self.path):  # SQLite would make it readable by everyone
                sync_directory(os.path.dirname(self.path))
            else:
                self._look()
        connection = self._connect()
        try:
            migrate(connection, migrations("sqlite"), self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def _look(self) -> None:
        """Refuse a foreign or incomplete file, on a connection that changes nothing, not even when it closes."""
        if os.path.exists(f"{self.path}-journal"):
            return  # its creation was interrupted: SQLite must roll that back first
        if has_log(self.path) and not size_of(self.path):
            raise Corrupt(f"{self.path} was emptied; restore a backup", record="sqlite")
        connection = sqlite3.connect(f"file://{_quoted(self.path)}?mode=ro", uri=True)
        try:
            self._check_length(connection)
            refuse_foreign(connection, self.path)
        finally:
            connection.close()

    def _check_length(self, connection: sqlite3.Connection) -> None:
        if is_cut_short(self.path, _ask(connection, "page_count"), _ask(connection, "page_size")):
            raise Corrupt(f"{self.path} was cut short: its end is missing; restore a backup", record="sqlite")

    def check_length(self) -> None:
        """Refuse a file that was cut short while it was open."""
        if not self.in_memory:
            with self.writing() as connection:
                self._check_length(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=30
        )
        if not self.in_memory:
            self._set_pragmas(connection)
        return connection

    def _set_pragmas(self, connection: sqlite3.Connection) -> None:
        level = SYNCHRONOUS[self.durability]
        if not _ask(connection, "page_count"):
            # Set later, they would have no effect, but be a write, which a reader must not make. A commit writes whole
            # pages, so larger ones cost more than they save; incremental vacuum lets a prune return free pages.
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA secure_delete = ON")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        connection.execute(f"PRAGMA synchronous = {level}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cache_size = -16384")
        found = _ask(connection, "synchronous")
        if mode != "wal" or found != level:
            raise ConfigurationError(
                f"{self.path}: journal_mode={mode}, synchronous={found}; {self.durability} needs wal and {level}."
                " Is the file on a file system without shared memory or locks?"
            )

    def enter(self, *, wait: bool = True) -> sqlite3.Connection:
        """Return the one writing connection; no other thread or process writes until `leave`."""
        if not self._lock.acquire(wait):
            raise Busy
        try:
            if not self._is_open or self._closed:
                self.open()
            self._pass(wait=wait)
            self._writing += 1
        except BaseException:
            self._lock.release()
            raise
        assert self._writer is not None  # noqa: S101  open() made it
        return self._writer

    def leave(self, size: int) -> None:
        """Let the next writer in, after a commit of `size` bytes.

        A failed checkpoint is only logged: the commit is durable in the log.
        """
        try:
            self._pages += 1 + size // PAGE_BYTES
            if self._pages >= CHECKPOINT_PAGES:
                self._pages = 0
                self.checkpoint("PASSIVE")
        except sqlite3.Error as error:
            logger().warning("SQLite could not checkpoint: %s; will retry later", error)
        finally:
            self._writing -= 1
            if self._gate >= 0:
                unlock(self._gate)
            self._lock.release()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Enter, and leave after the block, which counts as a commit of one page."""
        connection = self.enter()
        try:
            yield connection
        finally:
            self.leave(0)

    def _pass(self, *, wait: bool) -> None:
        if self._gate < 0 or try_to_lock(self._gate):
            return
        if not wait:
            raise Busy
        lock_file(self._gate, f"{self.path}-lock")

    @contextmanager
    def _passing(self) -> Iterator[None]:
        self._pass(wait=True)
        try:
            yield
        finally:
            if self._gate >= 0:
                unlock(self._gate)

    def checkpoint(self, mode: str) -> bool:
        """Move the write-ahead log into the database; True if all of it was moved. Call only while `writing`."""
        if self._writer is None or self.in_memory:
            return True
        busy: int = self._writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0]
        return not busy

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for reads. In memory it is the writing one."""
        if self.in_memory:
            with self.writing() as connection:
                yield connection
            return
        connection = self._readers.take()
        try:
            yield connection
        finally:
            self._readers.give(connection)

    def _connect_reader(self) -> sqlite3.Connection:
        # Checked first, because `open` takes the writer's lock, and a reader must not wait for a writer.
        if not self._is_open or self._closed:
            self.open()
        connection = self._connect()
        connection.execute("PRAGMA query_only = 1")
        return connection

    def close(self) -> None:
        """Close every connection, under the gate. The last one of all processes moves the log into the file."""
        with self._lock:
            if self._is_open and not self._closed:
                with self._passing():
                    self._close_all()
            self._close_gate()
            self._closed = True

    def _close_all(self) -> None:
        for connection in self._readers.drain():
            connection.close()
        if self._writer is not None:
            # On a damaged file or a full disk the log stays next to the file, and the next open reads it.
            self._writer.close()
            self._writer = None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store {self.path} was closed")


def transact(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Return what `work` returns, run as one transaction. Call only while `writing`."""
    is_committing = False
    try:
        connection.execute("BEGIN IMMEDIATE")
        result = work()
        is_committing = True
        connection.execute("COMMIT")
    except (sqlite3.Error, *ODDITIES) as error:
        _roll_back(connection)
        raise translated(error, writing=is_committing) from error
    except BaseException:
        # Also a KeyboardInterrupt: the next write would join a transaction that is left open.
        _roll_back(connection)
        raise
    return result


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _ask(connection: sqlite3.Connection, pragma: str) -> int:
    number: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return number


def refuse_foreign(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database that another program made."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if _ask(connection, "application_id") != APPLICATION_ID and tables:
        raise ConfigurationError(f"{path} is a SQLite database of another program; name another file for Holdfast")


def migrate(connection: sqlite3.Connection, scripts: list[str], path: str) -> None:
    """Run the scripts that a file lacks, each in one transaction; refuse a newer or foreign file."""
    refuse_foreign(connection, path)
    version, last = _ask(connection, "user_version"), FIRST + len(scripts) - 1
    if version > last:
        raise IncompatibleCheckpoint(
            f"{path} was written by a newer Holdfast (schema {version}, here it is {last}): upgrade holdfast"
        )
    check_kinds(connection, scripts, version, path)
    for number, script in enumerate(scripts, FIRST):
        if number <= version:
            continue
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script}\nPRAGMA application_id = {APPLICATION_ID};\n"
            f"PRAGMA user_version = {number};\nCOMMIT;"
        )
    check_schema(connection, scripts, path)


def _quoted(path: str) -> str:
    """Quote a path for a URI of SQLite."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _open_gate(path: str) -> int:
    """Open the lock file of a database. A new one can be locked by everyone who may write the database."""
    gate = f"{path}-lock"
    try:
        writable = os.stat(path).st_mode & 0o222
    except FileNotFoundError:
        writable = 0o200
    create(gate, writable | writable << 1)
    return open_regular(gate, os.O_RDWR)
