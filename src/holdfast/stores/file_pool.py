"""The files of a file store: which logs are open, who uses them, and the few calls that change a disk.

Nothing here knows what a head or a durability level is. What the operating system says is translated here, once, when a
log is given back.
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
from holdfast.stores.file_locks import lock_file, try_to_lock, unlock
from holdfast.stores.file_log import DIGEST_BYTES, HEADER_BYTES, Index
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
"""Files kept open. Far below the usual limits of a process: 1,024 on Linux, 256 on macOS."""
MAX_LOGS = 1024
MAX_INDEXED = 250_000
"""Rows, blobs and posts that all indexes together may hold: about 50 MB."""
TRIM_EVERY = 256

RESERVE_AFTER = 16
"""Appends, after which a log is taken for one that is written often."""
RESERVE = bytes(1 << 16)
"""Zeros that are written ahead of such a log: about as many as cost nothing beside the sync they come with."""


class OpenLog:
    """One thread's file and the index over it, for one caller at a time: taken from the pool, given back by `with`.

    That is no `contextmanager`, since three of those cost a swap as much as all its other work.
    """

    def __init__(self, pool: "LogPool", owner: bytes, thread: bytes = b"") -> None:
        name = owner.hex()
        self.pool = pool
        self.owner = owner
        self.shard = name[:2]
        self.path = f"{pool.directory}/{self.shard}/{name}.log"
        self.thread = thread
        self.lock = Lock()
        self.users = 0
        self.fd = -1
        self.locked = False
        self.swept = False
        self.size = 0
        self.append_count = 0
        self._identity = (0, 0)
        self._name = ""
        self.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self.locked:
            self.locked = False
            unlock(self.fd)
        self.lock.release()
        self.pool.give_back(self)
        if isinstance(error, NotRegular):
            raise self.planted(error) from error
        if isinstance(error, OSError):
            raise unavailable(error) from error

    def planted(self, error: NotRegular) -> Corrupt:
        """The error for something else in the place of the log."""
        what = str(error.strerror).partition(";")[0]
        return Corrupt(f"log {self.path} is damaged: {what}", record=f"log {self.path}")

    def forget(self) -> None:
        """Start over: the next reading begins with the first frame."""
        self.index = Index(self.owner, f"log {self.path}")

    def adopt(self, fd: int) -> None:
        """Use this file from now on."""
        status = os.fstat(fd)
        self.shut()
        self.fd, self.swept, self._identity = fd, False, (status.st_ino, status.st_dev)
        self._name, self.size, self.append_count = "", 0, 0

    def shut(self) -> None:
        """Close the file. The index stays: it is checked when the file is opened again."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def reserve(self, length: int) -> None:
        """See that a frame of that length lies on zeros: its sync need not write a new size of the file as well.

        That saves a third of it. Where it cannot be done, no harm is done: the frame makes the file grow.
        """
        if self.size - self.index.end < length <= len(RESERVE):
            with suppress(OSError):
                self.size = self.index.end + os.pwrite(self.fd, RESERVE, self.index.end)

    def retire(self) -> None:
        """Close the file, and give back what was reserved, unless somebody else is writing."""
        if self.fd >= 0 and self.size > self.index.end:
            with suppress(OSError, StoreError):
                self.locked = try_to_lock(self.fd)
                if self.locked and self._size() >= 0:
                    self._clean()
                    os.ftruncate(self.fd, self.index.end)
            self.locked = False
        self.shut()

    def read(self, offset: int, length: int) -> bytes:
        """The bytes there, fewer at the end of the file. One call reads 2 GB at most, hence the loop."""
        data = piece = os.pread(self.fd, length, offset)
        while piece and len(data) < length:
            piece = os.pread(self.fd, length - len(data), offset + len(data))
            data += piece
        return data

    def file_size(self) -> int:
        """The size of the open file. It leaves the times alone, see `_size`."""
        return os.lseek(self.fd, 0, os.SEEK_END)

    def for_reading(self) -> Index:
        """An index of all that is in the file that has the log's name now; an empty one if there is no file."""
        size = self._size() if self.fd >= 0 else -1
        if size < 0 and self._open(create=False):
            size = self.file_size()
        if not self._is_current(size):
            self.catch_up()
        return self.index

    def for_writing(self, *, wait: bool, create: bool) -> Index:
        """The same with the file locked, and made ready for an append to the index's end."""
        size = -1
        while size < 0 and (self.fd >= 0 or self._open(create=create)):
            self._lock_file(wait=wait)
            size = self._size()
        self.size = size
        if not (self.swept and self._is_current(size)):
            self._clean()
        return self.index

    def _size(self) -> int:
        """The size of the file; -1 if it was replaced or removed since it was opened, and so is closed now.

        `stat` asks for the file's times: then Linux notes the exact time of the next write, and its sync takes half as
        long again. So, once the file is known to have the log's name, only its name is asked for; that of a file which
        was replaced or removed is another.
        """
        name = _name_of(self.fd)
        if name and name == self._name:
            return self.file_size()
        try:
            status = os.stat(self.path)  # noqa: PTH116  paths of logs are plain strings
        except FileNotFoundError:
            status = None
        if status and (status.st_ino, status.st_dev) == self._identity:
            self._name = name
            return status.st_size
        self.locked = False
        self.shut()
        return -1

    def _is_current(self, size: int) -> bool:
        # Nothing must have been written behind the end: the size tells little, since zeros may be reserved there. And
        # the digest must be the same: a writer whose sync failed cuts its frame off, and another may have taken its
        # place. Being chained, the last digest stands for all that was read before.
        end = self.index.end
        if not 0 < end <= size:
            return False
        tail = os.pread(self.fd, DIGEST_BYTES + HEADER_BYTES, end - DIGEST_BYTES)
        return tail.startswith(self.index.digest) and not tail[DIGEST_BYTES:].strip(b"\0")

    def _open(self, *, create: bool) -> bool:
        """Open the file that has the log's name; False if there is none, and none shall be made."""
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
        """Open the file that has the log's name; no symbolic link is followed on the way to it."""
        with self.pool.folder(self.shard) as folder:
            return open_regular(self.path, flags, directory=folder)

    def remove_irregular(self) -> None:
        """Remove what is in the place of the log, unless it is a regular file. A link is removed, and not followed."""
        with suppress(FileNotFoundError), self.pool.folder(self.shard) as folder:
            lock_file(folder, self.path)  # only one process at a time removes: the next one finds a log
            try:
                refuse_irregular(self.path, directory=folder)
            except NotRegular:
                remove_name(self._log_name, folder)

    def remove(self) -> None:
        """Remove the file; call only with the log locked."""
        with self.pool.folder(self.shard) as folder:
            remove_name(self._log_name, folder)

    def new_file(self) -> int:
        """Make a file beside the log that shall replace it; call only with the log locked."""
        with self.pool.folder(self.shard) as folder:
            remove_name(self._new_name, folder)
            return open_regular(f"{self.path[:-4]}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, directory=folder)

    def rename_new_file(self) -> None:
        """Give the new file the name of the log."""
        with self.pool.folder(self.shard) as folder:
            os.rename(self._new_name, self._log_name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove_new_file(self) -> None:
        """Remove the new file, if there is one."""
        with self.pool.folder(self.shard) as folder:
            remove_name(self._new_name, folder)

    @property
    def _log_name(self) -> str:
        return f"{self.owner.hex()}.log"

    @property
    def _new_name(self) -> str:
        return f"{self.owner.hex()}.new"

    def _lock_file(self, *, wait: bool) -> None:
        if not try_to_lock(self.fd):
            if not wait:
                raise Busy
            self._wait_for_lock()
        self.locked = True

    def _wait_for_lock(self) -> None:
        """Wait with a descriptor apart, so that readers in this process can use the other meanwhile."""
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
        """Remove what a writer that died left behind; a living one would have the lock."""
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
        """Index what was appended. Damage is believed only under the lock, and when read from the start."""
        if self.fd < 0:
            return
        try:
            self._catch_up()
        except Corrupt:  # or a writer cut the tail off and appended again during the read
            self.forget()
            self._catch_up_alone()

    def _catch_up(self) -> None:
        end = self.index.end
        if not end or self.read(end - DIGEST_BYTES, DIGEST_BYTES) != self.index.digest:
            self.forget()
        self.index.catch_up(self.read, self.file_size())

    def _catch_up_alone(self) -> None:
        if self.locked:
            return self._catch_up()
        lock_file(self.fd, self.path, fcntl.LOCK_SH)
        try:
            return self._catch_up()
        finally:
            unlock(self.fd)


class LogPool:
    """The logs used last, in a directory: a bounded number of open files and of indexed rows."""

    def __init__(self, directory: Path) -> None:
        self.unusable = "is not open yet"
        self.directory = directory
        self._opened: OrderedDict[OpenLog, None] = OrderedDict()
        self.drop()
        _POOLS.add(self)

    def close(self) -> None:
        """Close all files, without the zeros at their ends, and forget all logs."""
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
        """The thread's log, for this caller alone within the process, until it leaves the log's `with`."""
        self.check_usable()
        with self._lock:
            log = self._logs.get(thread) or self._add(thread)
            self._logs.move_to_end(thread)
            log.users += 1
        if not log.lock.acquire(blocking=wait):
            self.give_back(log)
            raise Busy
        return log

    def take_apart(self, owner: bytes) -> OpenLog:
        """A log by the hash of its thread's key, apart from the logs of the pool; as `take`, for one caller."""
        self.check_usable()
        log = OpenLog(self, owner)
        log.users += 1
        log.lock.acquire()
        return log

    def check_usable(self) -> None:
        """Raise unless the store is open."""
        if self.unusable:
            raise StoreClosed(f"the file store at {self.directory.parent} {self.unusable}")

    def folder(self, *names: str) -> AbstractContextManager[int]:
        """A descriptor of the directory of logs, or of one below it; a symbolic link in its place is refused."""
        return directory_below(str(self.directory.parent), self.directory.name, *names)

    def make_shard(self, name: str) -> None:
        """Make a directory for logs, unless it is there."""
        with self.folder() as folder, suppress(FileExistsError):
            os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=folder)

    def names_in(self, *names: str) -> list[str]:
        """What the directory of logs, or one below it, holds."""
        with self.folder(*names) as folder:
            return os.listdir(folder)  # noqa: PTH208  a descriptor, not a path

    def _add(self, thread: bytes) -> OpenLog:
        log = self._logs[thread] = OpenLog(self, sha256(thread).digest(), thread)
        return log

    def give_back(self, log: OpenLog) -> None:
        """The caller is done with the log."""
        with self._lock:
            log.users -= 1
            self._turns += 1
            if not self._turns % TRIM_EVERY:
                self._trim()

    def _trim(self) -> None:
        """Forget the logs that were used longest ago, but for those in use and the last."""
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
        """A file was opened: close the one that was opened first, if there are too many and it is not in use."""
        with self._lock:
            self._opened[log] = None
            self._opened.move_to_end(log)
            if len(self._opened) > MAX_OPEN and (spare := next((log for log in self._opened if not log.users), None)):
                del self._opened[spare]
                spare.retire()


_POOLS: WeakSet[LogPool] = WeakSet()


def _drop_inherited() -> None:
    """A forked child shares its parent's open files, and with them their locks: it must open its own."""
    for pool in _POOLS:
        pool.drop()


os.register_at_fork(after_in_child=_drop_inherited)


def unavailable(error: OSError) -> StoreUnavailable:
    """The error for what the operating system refused."""
    return StoreUnavailable(f"the file store cannot be used, nothing was written: {error}")


def _name_of(fd: int) -> str:
    """The name that an open file has now, where Linux tells it; else nothing."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115  in the path of every swap
    except OSError:
        return ""


def write_all(fd: int, data: bytes | bytearray, offset: int) -> None:
    """Write all of it there: in one call, unless the disk is full or it is more than 2 GB."""
    written = os.pwrite(fd, data, offset)
    while written < len(data):
        count = os.pwrite(fd, memoryview(data)[written:], offset + written)
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


def make_directory(path: Path, *, durable: bool) -> None:
    """Make a directory, private to this user, and those above it, each known to its parent on disk."""
    if path.is_dir():
        return
    make_directory(path.parent, durable=durable)
    path.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
    if durable:
        sync_directory(str(path.parent))
