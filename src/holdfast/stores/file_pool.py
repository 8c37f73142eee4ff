"""The files of a file store: which logs are open, who uses them, and the few calls that change a disk.

Nothing here knows what a head or a durability level is. Errors of the operating system pass through untranslated.
"""

import fcntl
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from hashlib import sha256
from pathlib import Path
from threading import Lock
from weakref import WeakSet

from holdfast.records.errors import Corrupt
from holdfast.stores.backend import Busy
from holdfast.stores.file_log import DIGEST_BYTES, Index

MAX_OPEN = 128
"""Files kept open. Far below the usual limits of a process: 1,024 on Linux, 256 on macOS."""
MAX_LOGS = 1024
MAX_INDEXED = 250_000
"""Rows, blobs and posts that all indexes together may hold: about 50 MB."""

OPEN_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class OpenLog:
    """One thread's file and the index over it. Used by one caller at a time: whoever holds `lock`."""

    __slots__ = (
        "__weakref__",
        "fd",
        "identity",
        "index",
        "indexed",
        "lock",
        "owner",
        "path",
        "swept",
        "thread",
        "users",
    )

    def __init__(self, thread: bytes, owner: bytes, path: str) -> None:
        self.thread = thread
        self.owner = owner
        self.path = path
        self.lock = Lock()
        self.users = 0
        self.indexed = 0
        self.fd = -1
        self.identity = (0, 0)
        self.swept = False
        self.forget()

    @property
    def temporary(self) -> Path:
        """Where a log that shall replace this one is written: only ever by the holder of the file's lock."""
        return Path(self.path).with_suffix(".new")

    def forget(self) -> None:
        """Start over: the next reading begins with the first frame."""
        self.index = Index(self.owner, f"log {self.path}")

    def adopt(self, fd: int) -> None:
        """Use this file from now on."""
        status = os.fstat(fd)
        self.shut()
        self.fd, self.identity, self.swept = fd, (status.st_dev, status.st_ino), False

    def shut(self) -> None:
        """Close the file. The index stays: it is checked when the file is opened again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def has_its_name(self) -> bool:
        """False if the file was replaced or removed since it was opened."""
        try:
            status = os.stat(self.path)  # noqa: PTH116  in the path of every swap
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self.identity

    def read(self, offset: int, length: int) -> bytes:
        """The bytes there, fewer at the end of the file. One call reads 2 GB at most, hence the loop."""
        data = piece = os.pread(self.fd, length, offset)
        while piece and len(data) < length:
            piece = os.pread(self.fd, length - len(data), offset + len(data))
            data += piece
        return data

    def catch_up(self, *, locked: bool = False) -> int:
        """Index what was appended, and return the file's size. Damage is believed only under the lock."""
        try:
            return self._catch_up()
        except Corrupt:  # or a reading across a writer that cut a tail off and appended anew
            self.forget()
        if locked:
            return self._catch_up()
        fcntl.flock(self.fd, fcntl.LOCK_SH)
        try:
            return self._catch_up()
        finally:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def _catch_up(self) -> int:
        # A writer whose sync failed cuts its frame off, and the file may have grown anew since, so the digest at the
        # index's end is compared first. Being chained, that one digest stands for all that was read before.
        size = os.fstat(self.fd).st_size
        end = self.index.end
        if not end or self.read(end - DIGEST_BYTES, DIGEST_BYTES) != self.index.digest:
            self.forget()
        if self.index.end < size:
            self.index.catch_up(self.read, size)
        return size

    def lock_file(self, *, wait: bool) -> bool:
        """Lock the open file against other writers; False if it has lost its name meanwhile, and was closed."""
        if not _try_lock(self.fd):
            if not wait:
                raise Busy
            self._wait_for_lock()
        if self.has_its_name():
            return True
        self.shut()
        return False

    def _wait_for_lock(self) -> None:
        """Wait on a file of one's own, so that readers in this process can go on with the other."""
        fd = os.open(self.path, OPEN_FLAGS)
        try:
            self.lock.release()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
            finally:
                self.lock.acquire()
            self.adopt(fd)
        except BaseException:
            os.close(fd)
            raise


class LogPool:
    """The logs used last, in a directory: a bounded number of open files and of indexed rows."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: OrderedDict[OpenLog, None] = OrderedDict()
        self.drop()
        _POOLS.add(self)

    def drop(self) -> None:
        """Close all files and forget all logs."""
        for log in self._open:
            log.shut()
        self._lock = Lock()
        self._logs: OrderedDict[bytes, OpenLog] = OrderedDict()
        self._open = OrderedDict()
        self._indexed = 0

    @contextmanager
    def held(self, thread: bytes, *, wait: bool = True) -> Iterator[OpenLog]:
        """The thread's log, for this caller alone within the process."""
        log = self._pin(thread)
        try:
            if not log.lock.acquire(blocking=wait):
                raise Busy
            try:
                yield log
            finally:
                log.lock.release()
        finally:
            self._unpin(log)

    def open_file(self, log: OpenLog, *, create: bool) -> bool:
        """Open the file that has the log's name now; False if there is none."""
        try:
            fd = os.open(log.path, OPEN_FLAGS | os.O_CREAT if create else OPEN_FLAGS, 0o666)
        except FileNotFoundError:
            log.shut()
            log.forget()
            if not create:
                return False
            Path(log.path).parent.mkdir(exist_ok=True)
            return self.open_file(log, create=create)
        log.adopt(fd)
        self._note_open(log)
        return True

    def _pin(self, thread: bytes) -> OpenLog:
        with self._lock:
            log = self._logs.get(thread)
            if log is None:
                log = self._logs[thread] = self._log_of(thread)
            self._logs.move_to_end(thread)
            if log in self._open:
                self._open.move_to_end(log)
            log.users += 1
            return log

    def _log_of(self, thread: bytes) -> OpenLog:
        owner = sha256(thread)
        name = owner.hexdigest()
        return OpenLog(thread, owner.digest(), f"{self._directory}/{name[:2]}/{name}.log")

    def _unpin(self, log: OpenLog) -> None:
        with self._lock:
            log.users -= 1
            count = log.index.count
            self._indexed += count - log.indexed
            log.indexed = count
            while len(self._logs) > MAX_LOGS or (self._indexed > MAX_INDEXED and len(self._logs) > 1):
                if not self._evict():
                    break

    def _evict(self) -> bool:
        """Forget the log that was used longest ago; False if all are in use."""
        unused = next((thread for thread, log in self._logs.items() if not log.users), None)
        if unused is None:
            return False
        log = self._logs.pop(unused)
        self._open.pop(log, None)
        self._indexed -= log.indexed
        log.shut()
        return True

    def _note_open(self, log: OpenLog) -> None:
        with self._lock:
            self._open[log] = None
            self._open.move_to_end(log)
            if len(self._open) > MAX_OPEN and (spare := next((log for log in self._open if not log.users), None)):
                del self._open[spare]
                spare.shut()


_POOLS: WeakSet[LogPool] = WeakSet()


def _drop_inherited() -> None:
    """A forked child shares its parent's open files, and with them their locks: it must open its own."""
    for pool in _POOLS:
        pool.drop()


os.register_at_fork(after_in_child=_drop_inherited)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write all of it: in one call, unless the disk is full or it is more than 2 GB."""
    written = os.write(fd, data)
    while written < len(data):
        count = os.write(fd, memoryview(data)[written:])
        if not count:
            raise OSError(EIO, "nothing could be written")
        written += count


SYNC = "F_FULLFSYNC" if sys.platform == "darwin" else "fdatasync"


def sync_data(fd: int) -> None:
    """Bring a file's bytes to disk."""
    if sys.platform == "darwin":  # pragma: no cover  fsync does not reach the disk there
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def sync_directory(path: str | Path) -> None:
    """Bring the names in a directory to disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path, *, durable: bool) -> None:
    """Make a directory, private to this user, and those above it, each known to its parent on disk."""
    if path.is_dir():
        return
    make_directory(path.parent, durable=durable)
    path.mkdir(mode=0o700, exist_ok=True)
    if durable:
        sync_directory(path.parent)
