"""Threads in a directory: one append-only log per thread, written under flock. Local file systems only.

A swap appends one frame (frames.py), with one write and one fdatasync. A swap that drops something writes a new log and
renames it over the old one. Writers lock the log's file, then check that it still has its name; readers lock nothing.
Files and directories are private to their owner. No symbolic link below the root is followed.
"""

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

from holdfast.history.tuning import Tuning
from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.reports import Guarantee
from holdfast.records.rows import KEEP_ALL, Row, Swap
from holdfast.records.words import Durability, Status
from holdfast.stores.backend import Listing, all_heads, belongs, counted_as, replaces_lost_head
from holdfast.stores.file.frames import Envelope, Index, change_of
from holdfast.stores.file.listing import LOG_NAME, head_in, placeholder_owner, problem_of
from holdfast.stores.file.logs import (
    RESERVE_AFTER,
    SYNC,
    LogPool,
    OpenLog,
    make_directory,
    sync_data,
    unavailable,
    write_all,
)
from holdfast.stores.file_locks import lock_file
from holdfast.stores.private_files import PRIVATE_DIRECTORY, NotRegular, directory_below, open_regular

FORMAT = 1
MARKER = "holdfast.json"
NEW_MARKER = "holdfast.new"
MARKER_BYTES = 4096  # far more than a marker has
THREADS = "threads"

T = TypeVar("T")

_SHARD_NAME = re.compile("[0-9a-f]{2}")


class FileBackend:
    """The interface of `Backend` over a directory that belongs to Holdfast alone."""

    kind = "file"
    tuning = Tuning()
    inline = True

    def __init__(self, path: str, durability: Durability = Durability.DURABLE) -> None:
        if durability not in {Durability.PROCESS, Durability.DURABLE}:
            raise ConfigurationError(
                f"a file store cannot be {durability}; use durability='durable' or 'process', "
                "a memory store for 'none', and Redis, Postgres or S3 for 'replicated'"
            )
        self._level = Durability(durability)
        self._durable = self._level == Durability.DURABLE
        self._root = Path(path).absolute()
        self._pool = LogPool(self._root / THREADS)
        self._synced_shards: set[str] = set()
        self._closed = False

    def open(self) -> None:
        """See `Backend.open`. Refuse a directory that holds anything else."""
        if self._closed:
            self._pool.check_usable()
        try:
            make_directory(self._root, durable=self._durable)
            self._claim_root()
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigurationError(f"{self._root} is not a directory; give a file store an empty one") from error
        except OSError as error:
            raise unavailable(error) from error
        self._pool.unusable = ""

    def _claim_root(self) -> None:
        with directory_below(str(self._root)) as root:
            _lock_or_refuse(root, str(self._root))  # one process at a time writes the marker
            self._check_marker(root)
            with suppress(FileExistsError):
                os.mkdir(THREADS, PRIVATE_DIRECTORY, dir_fd=root)
            self._pool.names_in()
            if self._durable:
                os.fsync(root)

    def _check_marker(self, root: int) -> None:
        marker = f"{self._root}/{MARKER}"
        try:
            with os.fdopen(open_regular(marker, os.O_RDONLY, directory=root), "rb") as file:
                version = json.loads(file.read(MARKER_BYTES))["format"]
        except FileNotFoundError:
            self._write_marker(root)
            return
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Corrupt(f"{marker} is damaged: {error}", record=MARKER) from error
        if type(version) is not int:
            raise Corrupt(f"{marker} is damaged: its format is {version!r}", record=MARKER)
        if version > FORMAT:
            raise IncompatibleCheckpoint(f"a newer Holdfast wrote {self._root} (format {version}); upgrade holdfast")

    def _write_marker(self, root: int) -> None:
        if foreign := sorted({*os.listdir(root)} - {NEW_MARKER}):
            raise ConfigurationError(
                f"{self._root} is not a file store and is not empty (it holds {foreign[0]!r}); give an empty directory"
            )
        with suppress(FileNotFoundError):
            os.unlink(NEW_MARKER, dir_fd=root)
        fd = open_regular(f"{self._root}/{NEW_MARKER}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, directory=root)
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps({"store": "holdfast", "format": FORMAT}).encode())
            file.flush()
            os.fsync(fd)
        os.rename(NEW_MARKER, MARKER, src_dir_fd=root, dst_dir_fd=root)

    def close(self) -> None:
        """See `Backend.close`."""
        self._closed = True
        self._pool.unusable = "was closed"
        self._pool.close()

    def guarantee(self) -> Guarantee:
        """See `Backend.guarantee`."""
        sync = SYNC if self._durable else "none"
        return Guarantee(level=self._level, store=self.kind, details={"sync": sync, "lock": "flock"})

    def check(self) -> list[str]:
        """See `Backend.check`. Reads every frame of every log."""
        return list(filter(None, self._of_each_log(problem_of)))

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """See `Backend.heads`."""
        return [self._head(thread) for thread in threads]

    def _head(self, thread: bytes) -> bytes | None:
        with self._pool.take(thread) as log:
            return log.for_reading().head or None

    def held(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """See `OneHost.held`."""
        return list(all_heads(self, prefix, (Status.WORKING.value,)))

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`."""
        with self._pool.take(thread) as log:
            index = log.for_reading()
            return index.read_rows(log.read, index.run_to(seq))

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """See `Backend.blobs`."""
        with self._pool.take(thread) as log:
            index = log.for_reading()
            known = [blob for blob in ids if blob in index.blobs]
            return dict(zip(known, index.read(log.read, [index.blobs[blob] for blob in known]), strict=True))

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """See `Backend.index`."""
        with self._pool.take(thread) as log:
            index = log.for_reading()
            seqs = sorted((seq for seq in index.rows if before is None or seq < before), reverse=True)
            return index.read_rows(log.read, seqs[:limit], bodies=False)

    def inbox(self, thread: bytes) -> dict[str, bytes]:
        """See `Backend.inbox`."""
        with self._pool.take(thread) as log:
            index = log.for_reading()
            keys = sorted(index.posts)
            return dict(zip(keys, index.read(log.read, [index.posts[key] for key in keys]), strict=True))

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`. Ordered by key. Every page reads the last frame of every log, some 50 us each."""
        after = bytes.fromhex(cursor) if cursor else b""
        heads = [entry for entry in self._all_heads(prefix) if entry[0] > after]
        found = sorted(entry for entry in heads if belongs(*entry, statuses, labels))
        page = found[:limit]
        return Listing(page, page[-1][0].hex() if len(found) > limit else None)

    def counts(self, prefix: bytes) -> dict[str, int]:
        """See `Counting.counts`. Reads the last frame of every log, once."""
        statuses = [counted_as(*entry) for entry in self._all_heads(prefix)]
        return dict(Counter(filter(None, statuses)))

    def _all_heads(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        found = self._of_each_log(lambda log: head_in(log, prefix))
        return [entry for entry in found if entry and entry[0].startswith(prefix)]

    def _of_each_log(self, function: Callable[[OpenLog], T]) -> list[T]:
        self._pool.check_usable()
        try:
            return [function(log) for log in self._all_logs()]
        except OSError as error:
            raise unavailable(error) from error

    def _all_logs(self) -> Iterator[OpenLog]:
        """Yield every log, apart from those of the pool, with its file not yet open."""
        for shard in filter(_SHARD_NAME.fullmatch, self._pool.names_in()):
            for name in filter(LOG_NAME.fullmatch, self._pool.names_in(shard)):
                if name.startswith(shard):
                    yield OpenLog(self._pool, bytes.fromhex(name[:-4]))

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """See `Backend.swap`. Each swap is synced by itself; only the first can be `Busy`, the others wait.

        In a batch an error is `OutcomeUnknown` if a swap was made before it. Otherwise it is `StoreUnavailable` even
        for a damaged log, so that the others can be tried alone.
        """
        outcomes: list[bool] = []
        try:
            for swap in swaps:
                outcomes.append(self._swap_one(swap, wait=wait or bool(outcomes)))
        except StoreError as error:
            if any(outcomes):
                raise OutcomeUnknown(f"some of these writes were made, then: {error}") from error
            if len(swaps) > 1 and isinstance(error, Corrupt | IncompatibleCheckpoint):
                raise StoreUnavailable(f"none of these writes was made: {error}") from error
            raise
        return outcomes

    def _swap_one(self, swap: Swap, *, wait: bool) -> bool:
        with self._pool.take(swap.thread, wait=wait) as log:
            try:
                index = log.for_writing(wait=wait, create=not swap.expected)
            except (NotRegular, Corrupt):
                if not replaces_lost_head(swap):
                    raise
                return self._replace_damaged(log, swap, wait=wait)
            if index.head != swap.expected:
                return False
            left = index.without(swap.drop) if swap.drop != KEEP_ALL else None
            if left and (swap.drop.everything or left.count < index.count):
                self._replace(log, left, swap)
            else:
                self._append(log, *change_of(swap))
            return True

    def _replace_damaged(self, log: OpenLog, swap: Swap, *, wait: bool) -> bool:
        """Replace a damaged log, or something that is not a file, by a log of this swap alone."""
        log.remove_irregular()
        with suppress(Corrupt):
            index = log.for_writing(wait=wait, create=True)
            if index.head:
                return False  # another process has replaced it
        self._replace(log, Index(log.owner, log.index.name), swap)
        return True

    def drop_misplaced(self, thread: bytes) -> None:
        """See `Misplacing.drop_misplaced`: a log whose key cannot be read, listed under the file's name."""
        owner = placeholder_owner(thread)
        if owner is None:
            return
        with self._pool.take_apart(owner) as log:
            found = head_in(log, thread[: 1 + thread[0]])
            if found and found[0] == thread:
                log.remove_irregular()
                with suppress(Corrupt):
                    log.for_writing(wait=True, create=False)
                    return  # another process has replaced it by a sound one
                log.remove()

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        """See `Backend.post`."""
        with self._pool.take(thread) as log:
            index = log.for_writing(wait=True, create=True)
            if key in index.posts:
                self._sync_name(log)  # its writer may have died before it could sync
                self._sync(log)
                return False
            self._append(log, Envelope(index.head, posts=[(key, len(value))]), [value])
            return True

    def _append(self, log: OpenLog, envelope: Envelope, content: list[bytes]) -> None:
        if not log.index.named:
            self._sync_name(log)
        frame = log.index.build(log.thread, envelope, content)
        if self._durable and log.append_count >= RESERVE_AFTER:
            log.reserve(len(frame.data))
        try:
            write_all(log.fd, frame.data, log.index.end)
        except OSError as error:
            self._undo(log)
            raise unavailable(error) from error
        self._sync(log)
        log.index.accept(frame)
        log.append_count += 1

    def _sync(self, log: OpenLog) -> None:
        if not self._durable:
            return
        try:
            sync_data(log.fd)
        except OSError as error:
            self._undo(log)
            raise OutcomeUnknown(f"{log.path} could not be synced, so the last write may be lost: {error}") from error

    def _undo(self, log: OpenLog) -> None:
        """Cut off what was not acknowledged."""
        end = log.index.end
        log.forget()
        try:
            os.ftruncate(log.fd, end)
        except OSError as error:
            raise OutcomeUnknown(f"a failed write to {log.path} could not be undone: {error}") from error

    def _replace(self, log: OpenLog, left: Index, swap: Swap) -> None:
        """Write a log of what is left, with the swap as its last frame, and rename it over the old one."""
        fd = log.new_file()
        try:
            os.fchmod(fd, stat.S_IMODE(os.fstat(log.fd).st_mode))
            lock_file(fd, log.path)  # no other process may append to the new file before its name is on disk
            index = _written(fd, log, left, swap)
            os.fsync(fd)  # at every level: otherwise a power loss could leave an empty file instead of a log
            log.rename_new_file()
        except BaseException:
            os.close(fd)
            log.remove_new_file()
            raise
        try:
            log.adopt(fd)
            log.index = index
            self._sync_name(log)
        except OSError as error:
            raise OutcomeUnknown(f"{log.path} was replaced, but its directory could not be synced: {error}") from error

    def _sync_name(self, log: OpenLog) -> None:
        """Sync a new file's name to disk, before a frame is appended: a log with such a frame then has its name."""
        if not self._durable or log.index.named:
            return
        with self._pool.folder(log.shard) as folder:
            os.fsync(folder)
        if log.shard not in self._synced_shards:
            with self._pool.folder() as folder:
                os.fsync(folder)
            self._synced_shards.add(log.shard)
        log.index.named = True


def _written(fd: int, log: OpenLog, left: Index, swap: Swap) -> Index:
    """Write what is left to `fd`, then the swap; return the index of that log."""
    index = Index(log.owner, left.name)
    for change in chain(left.copied(log.read), [change_of(swap)]):
        frame = index.build(log.thread, *change)
        write_all(fd, frame.data, index.end)
        index.accept(frame)
    return index


def _lock_or_refuse(root: int, path: str) -> None:
    try:
        lock_file(root, path)
    except OSError as error:
        raise ConfigurationError(f"this file system has no locks ({error}); put a file store on a local one") from error
