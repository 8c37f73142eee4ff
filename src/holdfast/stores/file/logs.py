"""The files of a file store: which logs are open, who uses them, and the calls that change the disk.

Nothing here knows heads or durability levels. Errors of the operating system are translated here, when a log is
released.
"""

import fcntl
import os
import sys
from collections import OrderedDict
from contextlib import AbstractContextManager, suppress
from errno import EIO
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self
from weakref import WeakSet

from holdfast.records.errors import Corrupt, StoreClosed, StoreError, StoreUnavailable
from holdfast.stores.backend import Busy
from holdfast.stores.file.frames import DIGEST_BYTES, HEADER_BYTES, Index
from holdfast.stores.file_locks import lock_file, try_to_lock, unlock
from holdfast.stores.private_files import (
    PRIVATE_DIRECTORY,
    NotRegular,
    directory_below,
    open_regular,
    refuse_irregular,
    remove_name,
    sync_directory,
)

MAX_OPEN = 128
"""How many files may stay open: far below the usual limits of a process, 1,024 on Linux and 256 on macOS."""
MAX_LOGS = 1024
MAX_INDEXED = 250_000
"""How many rows, blobs and posts all indexes together may hold: about 50 MB."""
TRIM_EVERY = 256

RESERVE_AFTER = 16
"""After this many appends, a log counts as one that is written often."""
RESERVE = bytes(1 << 16)
"""Zeros written ahead in such a log: about as many as add nothing to the time of a sync."""


class OpenLog:
    """One thread's file and its index, for one caller at a time: `LogPool.take` takes it, `with` releases it."""

    def __init__(self, pool: "LogPool", owner: bytes, thread: bytes = b"") -> None:
        name = owner.hex()
        self.pool = pool
        self.owner = owner
        self.shard = name[:2]
        self.path = f"{pool.directory}/{self.shard}/{name}.log"
        self._file_name, self._new_name = f"{name}.log", f"{name}.new"
        self.thread = thread
        self.lock = Lock()
        self.users = 0
        self.fd = -1
        self.locked = False
        self.swept = False
        self.size = 0
        self.append_count = 0
        self._identity = (0, 0)
        self._known_name = ""
        self.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self.locked:
            self.locked = False
            unlock(self.fd)
        self.lock.release()
        self.pool.release(self)
        if isinstance(error, NotRegular):
            raise self.irregular(error) from error
        if isinstance(error, OSError):
            raise unavailable(error) from error

    def irregular(self, error: NotRegular) -> Corrupt:
        """Return the error for something that is not a regular file in the place of the log."""
        what = str(error.strerror).partition(";")[0]
        return Corrupt(f"log {self.path} is damaged: {what}", record=f"log {self.path}")

    def forget(self) -> None:
        """Empty the index: the next read starts with the first frame."""
        self.index = Index(self.owner, f"log {self.path}")

    def adopt(self, fd: int) -> None:
        """Use this file from now on."""
        status = os.fstat(fd)
        self.shut()
        self.fd, self.swept, self._identity = fd, False, (status.st_ino, status.st_dev)
        self._known_name, self.size, self.append_count = "", 0, 0

    def shut(self) -> None:
        """Close the file. The index stays, and is checked when the file is opened again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def reserve(self, length: int) -> None:
        """Write zeros where a frame of that length will be: its sync then need not write a new file size as well.

        That saves a third of the sync. A failure does no harm: the frame makes the file grow.
        """
        if self.size - self.index.end < length <= len(RESERVE):
            with suppress(OSError):
                self.size = self.index.end + os.pwrite(self.fd, RESERVE, self.index.end)

    def retire(self) -> None:
        """Close the file, and cut off what was reserved, unless another process is writing."""
        if self.fd >= 0 and self.size > self.index.end:
            with suppress(OSError, StoreError):
                self.locked = try_to_lock(self.fd)
                if self.locked and self._size() >= 0:
                    self._clean()
                    os.ftruncate(self.fd, self.index.end)
            self.locked = False
        self.shut()

    def read(self, offset: int, length: int) -> bytes:
        """Return these bytes, fewer at the end of the file. One call reads at most 2 GB, hence the loop."""
        data = piece = os.pread(self.fd, length, offset)
        while piece and len(data) < length:
            piece = os.pread(self.fd, length - len(data), offset + len(data))
            data += piece
        return data

    def file_size(self) -> int:
        """Return the size of the open file without asking for its times, see `_size`."""
        return os.lseek(self.fd, 0, os.SEEK_END)

    def for_reading(self) -> Index:
        """Return an index of the whole file that has the log's name now; an empty one if there is no file."""
        size = self._size() if self.fd >= 0 else -1
        if size < 0 and self._open(create=False):
            size = self.file_size()
        if not self._is_current(size):
            self.catch_up()
        return self.index

    def for_writing(self, *, wait: bool, create: bool) -> Index:
        """Return the same with the file locked, and ready for an append at the end of the index."""
        size = -1
        while size < 0 and (self.fd >= 0 or self._open(create=create)):
            self._lock_file(wait=wait)
            size = self._size()
        self.size = size
        if not (self.swept and self._is_current(size)):
            self._clean()
        return self.index

    def _size(self) -> int:
        """Return the size of the file; -1 if it was replaced or removed since it was opened, and is closed now.

        `stat` reads the file's times: Linux then records the exact time of the next write, and its sync takes half as
        long again. So once the file is known to have the log's name, only its name is read: that of a file which was
        replaced or removed is different.
        """
        name = _name_of(self.fd)
        if name and name == self._known_name:
            return self.file_size()
        try:
            status = os.stat(self.path)  # noqa: PTH116  paths of logs are plain strings
        except FileNotFoundError:
            status = None
        if status and (status.st_ino, status.st_dev) == self._identity:
            self._known_name = name
            return status.st_size
        self.locked = False
        self.shut()
        return -1

    def _is_current(self, size: int) -> bool:
        # Nothing may follow the end but zeros, which may be reserved: the size proves nothing. And the digest must
        # be the same: a writer whose sync failed cuts its frame off, and another frame may have taken its place. The
        # digests are chained, so the last one covers all that was read before.
        end = self.index.end
        if not 0 < end <= size:
            return False
        tail = os.pread(self.fd, DIGEST_BYTES + HEADER_BYTES, end - DIGEST_BYTES)
        return tail.startswith(self.index.digest) and not tail[DIGEST_BYTES:].strip(b"\0")

    def _open(self, *, create: bool) -> bool:
        """Open the file that has the log's name; False if there is none, and `create` is not set."""
        try:
            fd = self.open_file(os.O_RDWR | os.O_CREAT if create else os.O_RDWR)
        except FileNotFoundError:
            self.forget()
            if not create:
                return False
            self.pool.make_shard(self.shard)
            return self._open(create=create)
        self.adopt(fd)
        self.pool.note_open(self)
        return True

    def open_file(self, flags: int) -> int:
        """Open the file that has the log's name, without following symbolic links."""
        with self.pool.folder(self.shard) as folder:
            return open_regular(self.path, flags, directory=folder)

    def remove_irregular(self) -> None:
        """Remove what is in the place of the log, unless it is a regular file. A link is removed, not followed."""
        with suppress(FileNotFoundError), self.pool.folder(self.shard) as folder:
            lock_file(folder, self.path)  # one process at a time removes: the next one finds a log
            try:
                refuse_irregular(self.path, directory=folder)
            except NotRegular:
                remove_name(self._file_name, folder)

    def remove(self) -> None:
        """Remove the file; call only with the log locked."""
        with self.pool.folder(self.shard) as folder:
            remove_name(self._file_name, folder)

    def new_file(self) -> int:
        """Create a file beside the log that will replace it; call only with the log locked."""
        with self.pool.folder(self.shard) as folder:
            remove_name(self._new_name, folder)
            return open_regular(f"{self.path[:-4]}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, directory=folder)

    def rename_new_file(self) -> None:
        """Give the new file the name of the log."""
        with self.pool.folder(self.shard) as folder:
            os.rename(self._new_name, self._file_name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove_new_file(self) -> None:
        """Remove the new file, if there is one."""
        with self.pool.folder(self.shard) as folder:
            remove_name(self._new_name, folder)

    def _lock_file(self, *, wait: bool) -> None:
        if not try_to_lock(self.fd):
            if not wait:
                raise Busy
            self._wait_for_lock()
        self.locked = True

    def _wait_for_lock(self) -> None:
        """Wait with a second descriptor, so that readers in this process can use the first one meanwhile."""
        fd = self.open_file(os.O_RDWR)
        try:
            self.lock.release()
            try:
                lock_file(fd, self.path)
            finally:
                self.lock.acquire()
            self.adopt(fd)
        except BaseException:
            os.close(fd)
            raise

    def _clean(self) -> None:
        """Remove what a dead writer left behind; a live one would hold the lock."""
        if self.fd < 0:
            return
        self.remove_new_file()
        self.swept = True
        self.catch_up()
        end, self.size = self.index.end, self.file_size()
        if self.size > end + len(RESERVE) or self.read(end, self.size - end).strip(b"\0"):
            os.ftruncate(self.fd, end)
            self.size = end

    def catch_up(self) -> None:
        """Index what was appended. Damage counts only if it is also found under the lock, in a read from the start."""
        if self.fd < 0:
            return
        try:
            self._catch_up()
        except Corrupt:  # or a writer cut the tail off and appended again during the read
            self.forget()
            self._catch_up_locked()

    def _catch_up(self) -> None:
        end = self.index.end
        if not end or self.read(end - DIGEST_BYTES, DIGEST_BYTES) != self.index.digest:
            self.forget()
        self.index.catch_up(self.read, self.file_size())

    def _catch_up_locked(self) -> None:
        if self.locked:
            self._catch_up()
            return
        lock_file(self.fd, self.path, fcntl.LOCK_SH)
        try:
            self._catch_up()
        finally:
            unlock(self.fd)


class LogPool:
    """The logs of a directory that were used last: a bounded number of open files and of indexed rows."""

    def __init__(self, directory: Path) -> None:
        self.unusable = "is not open yet"
        self.directory = directory
        self._opened: OrderedDict[OpenLog, None] = OrderedDict()
        self.drop()
        _POOLS.add(self)

    def close(self) -> None:
        """Close all files, cut off the zeros at their ends, and forget all logs."""
        for log in self._opened:
            if not log.users:
                log.retire()
        self.drop()

    def drop(self) -> None:
        """Close all files as they are and forget all logs."""
        for log in self._opened:
            log.shut()
        self._lock = Lock()
        self._logs: OrderedDict[bytes, OpenLog] = OrderedDict()
        self._opened = OrderedDict()
        self._turns = 0

    def take(self, thread: bytes, *, wait: bool = True) -> OpenLog:
        """Return the thread's log, for this caller alone within the process, until it leaves the log's `with`."""
        self.check_usable()
        with self._lock:
            log = self._logs.get(thread) or OpenLog(self, sha256(thread).digest(), thread)
            self._logs[thread] = log
            self._logs.move_to_end(thread)
            log.users += 1
        if not log.lock.acquire(blocking=wait):
            self.release(log)
            raise Busy
        return log

    def take_apart(self, owner: bytes) -> OpenLog:
        """Return a log by the hash of its thread's key, apart from those of the pool; as `take`, for one caller."""
        self.check_usable()
        log = OpenLog(self, owner)
        log.users += 1
        log.lock.acquire()
        return log

    def check_usable(self) -> None:
        """Raise `StoreClosed` unless the store is open."""
        if self.unusable:
            raise StoreClosed(f"the file store at {self.directory.parent} {self.unusable}")

    def folder(self, *names: str) -> AbstractContextManager[int]:
        """Open the directory of logs, or one below it; refuse a symbolic link in its place."""
        return directory_below(str(self.directory.parent), self.directory.name, *names)

    def make_shard(self, name: str) -> None:
        """Create a directory for logs, unless it exists."""
        with self.folder() as folder, suppress(FileExistsError):
            os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=folder)

    def names_in(self, *names: str) -> list[str]:
        """Return the names in the directory of logs, or in one below it."""
        with self.folder(*names) as folder:
            return os.listdir(folder)  # noqa: PTH208  a descriptor, not a path

    def release(self, log: OpenLog) -> None:
        """Note that a caller is done with the log."""
        with self._lock:
            log.users -= 1
            self._turns += 1
            if not self._turns % TRIM_EVERY:
                self._trim()

    def _trim(self) -> None:
        """Forget the logs that were used longest ago, except those in use and the last."""
        count, indexed = len(self._logs), sum(log.index.count for log in self._logs.values())
        for thread, log in list(self._logs.items())[:-1]:
            if count <= MAX_LOGS and indexed <= MAX_INDEXED:
                return
            if not log.users:
                count, indexed = count - 1, indexed - log.index.count
                del self._logs[thread]
                self._opened.pop(log, None)
                log.retire()

    def note_open(self, log: OpenLog) -> None:
        """Note that a file was opened: if there are too many, close the oldest that is not in use."""
        with self._lock:
            self._opened[log] = None
            self._opened.move_to_end(log)
            if len(self._opened) > MAX_OPEN and (spare := next((log for log in self._opened if not log.users), None)):
                del self._opened[spare]
                spare.retire()


_POOLS: WeakSet[LogPool] = WeakSet()


def _drop_inherited() -> None:
    """Close a forked child's files: it shares them, and their locks, with its parent, and must open them again."""
    for pool in _POOLS:
        pool.drop()


os.register_at_fork(after_in_child=_drop_inherited)


def unavailable(error: OSError) -> StoreUnavailable:
    """Return the error for what the operating system refused."""
    return StoreUnavailable(f"the file store cannot be used, nothing was written: {error}")


def _name_of(fd: int) -> str:
    """Return the present name of an open file, where Linux has it; else nothing."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115  in the path of every swap
    except OSError:
        return ""


def write_all(fd: int, data: bytes | bytearray, offset: int) -> None:
    """Write all data at the offset: in one call, unless the disk is full or it is more than 2 GB."""
    written = os.pwrite(fd, data, offset)
    while written < len(data):
        count = os.pwrite(fd, memoryview(data)[written:], offset + written)
        if not count:
            raise OSError(EIO, "nothing could be written")
        written += count


SYNC = "F_FULLFSYNC" if sys.platform == "darwin" else "fdatasync"


def sync_data(fd: int) -> None:
    """Sync a file's bytes to disk."""
    if sys.platform == "darwin":  # pragma: no cover  fsync does not reach the disk there
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def make_directory(path: Path, *, durable: bool) -> None:
    """Create a directory, private to this user, and its parents; if `durable`, sync the name of each."""
    if path.is_dir():
        return
    make_directory(path.parent, durable=durable)
    path.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
    if durable:
        sync_directory(str(path.parent))
