"""Backups: all threads of any backend, copied byte by byte into a new SQLite file. Blocking.

Sealed bytes stay sealed: the copy opens with the same keys. Each thread is copied at one moment; tombstones are not.
"""

import os
from zlib import crc32

from msgspec.structs import replace

from holdfast.history.format import all_blob_ids, read_header
from holdfast.records.errors import ConfigurationError, Conflict, Corrupt, StoreUnavailable
from holdfast.records.head import Head, decode_head, encode_head
from holdfast.records.identity import thread_id_of
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Backend, all_heads
from holdfast.stores.private_files import create

ATTEMPTS = 8


def back_up(source: Backend, path: str) -> None:
    """Copy everything into a new file at `path`; `Conflict` if there is one already, `Corrupt` if a listing may lie."""
    from holdfast.stores.sqlite import SQLiteBackend

    if "\0" in path:
        raise ConfigurationError(f"{path!r} is not a path")
    if os.path.lexists(path):
        raise _taken(path)
    if problems := source.check():
        raise Corrupt(
            f"the store is damaged, and a backup of it would lack something: {problems[0]};"
            " delete what is damaged, or copy_to another store, which leaves it out",
            record="store",
        )
    _make(path)
    target = SQLiteBackend(path, Durability.DURABLE)
    target.open()
    try:
        copy_all(source, target)
    finally:
        target.close()


def _make(path: str) -> None:
    """Make the file under this very name: a link that others put there meanwhile is not followed."""
    try:
        is_new = create(path)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error}") from error
    if not is_new:
        raise _taken(path)


def _taken(path: str) -> Conflict:
    return Conflict(f"{path} exists already; a backup needs a new file")


def copy_all(source: Backend, target: Backend) -> None:
    """Copy every listed thread of every namespace, the oldest first, so that the order of creation stays."""
    threads = [thread for thread, _ in all_heads(source, b"")]
    for thread in reversed(threads):
        copy_thread(source, target, thread)


def copy_thread(source: Backend, target: Backend, thread: bytes) -> None:
    """Copy one thread as it is at one moment."""
    swap = snapshot(source, thread)
    if swap is not None:
        target.swap([swap])
        for key, value in source.inbox(thread).items():
            target.post(thread, key, value)


def snapshot(source: Backend, thread: bytes) -> Swap | None:
    """All of a thread at one moment, as the swap that makes it elsewhere: if its head moves on, begin again.

    A run that holds the thread here does not hold the copy.
    """
    for _ in range(ATTEMPTS):
        encoded = source.heads([thread])[0]
        if encoded is None:
            return None
        swap = _swap(source, thread, _unheld(decode_head(thread, encoded)))
        if source.heads([thread])[0] == encoded:
            return swap
    raise Conflict(f"gave up after {ATTEMPTS} conflicting writes to thread {thread_id_of(thread)!r}; retry later")


def _unheld(head: Head) -> Head:
    return replace(head, owner="", expires_at=0) if head.owner else head


def _swap(source: Backend, thread: bytes, head: Head) -> Swap:
    rows: dict[int, Row] = {}
    for entry in source.index(thread, None, None):
        if entry.seq <= head.seq and entry.seq not in rows:
            rows.update((row.seq, row) for row in source.rows(thread, entry.seq))
    start, name = crc32(thread + head.incarnation), thread_id_of(thread)
    wanted = all_blob_ids(read_header(row, name, start) for row in rows.values())
    in_order, blobs = tuple(rows[seq] for seq in sorted(rows)), dict(source.blobs(thread, wanted))
    return Swap(thread, b"", encode_head(thread, head), head, in_order, blobs)
