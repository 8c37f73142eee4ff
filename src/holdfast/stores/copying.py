"""Copying whole stores: to another store of any kind, or as a backup into a new SQLite file. Blocking.

Sealed bytes stay sealed: the copy opens with the same keys. Each thread is copied as it is at one moment; tombstones
are left out.
"""

import os
from collections.abc import Callable
from typing import TypeAlias
from zlib import crc32

from msgspec.structs import replace

from holdfast.codec.opaque import unknown_as_opaque
from holdfast.history.format import all_blob_ids, read_header
from holdfast.records.errors import ConfigurationError, Conflict, Corrupt, IncompatibleCheckpoint, StoreUnavailable
from holdfast.records.head import LOST_HEAD, Head, decode_head, encode_head
from holdfast.records.identity import shown_id_of, thread_id_of
from holdfast.records.reports import Copied
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.agenda import swap_of
from holdfast.stores.backend import Backend, all_heads, readable_head
from holdfast.stores.private_files import create
from holdfast.stores.reader import Reader, gave_up
from holdfast.stores.verify import Verifier

ATTEMPTS = 8
Progress: TypeAlias = Callable[[int, int], object]
"""Called with the number of threads done, and the number of all threads."""


def back_up(source: Backend, path: str) -> None:
    """Copy everything into a new file at `path`.

    `Conflict` if there is one already, `Corrupt` if the store is damaged: a listing may then lack threads.
    """
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
    """Create the file under this very name: a symbolic link put there meanwhile is not followed."""
    try:
        is_new = create(path)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error}") from error
    if not is_new:
        raise _taken(path)


def _taken(path: str) -> Conflict:
    return Conflict(f"{path} exists already; a backup needs a new file")


def _oldest_first(source: Backend) -> list[tuple[bytes, bytes]]:
    """Return the listed threads of every namespace, so that copying keeps their order of creation."""
    return list(all_heads(source, b""))[::-1]


def copy_all(source: Backend, target: Backend) -> None:
    """Copy every listed thread of every namespace."""
    for thread, _ in _oldest_first(source):
        copy_thread(source, target, thread)


def copy_thread(source: Backend, target: Backend, thread: bytes) -> None:
    """Copy one thread with the messages that wait for it."""
    swap = snapshot(source, thread)
    if swap is not None:
        target.swap([swap])
        _copy_inbox(source, target, thread)


def _copy_inbox(source: Backend, target: Backend, thread: bytes) -> None:
    for key, message in source.inbox(thread).items():
        target.post(thread, key, message)


def copy_store(source: Reader, target: Reader, progress: Progress) -> Copied:
    """Copy every thread of every namespace, and read back what was copied.

    A thread that the target has already is skipped if it is equal, so an interrupted copy can be repeated. One that
    differs is left alone.
    """
    threads, copied = _oldest_first(source.backend), Copied()
    for number, (thread, encoded) in enumerate(threads):
        progress(number, len(threads))
        copied += _copy(source, target, thread, is_lost=encoded == LOST_HEAD)
    progress(len(threads), len(threads))
    return copied


def _copy(source: Reader, target: Reader, thread: bytes, *, is_lost: bool) -> Copied:
    """Copy one thread, if it is whole and no other is in its place. A lost head whose thread is missing is damage."""
    name = shown_id_of(thread)
    try:
        wanted = snapshot(source.backend, thread)
    except (Corrupt, IncompatibleCheckpoint):
        return Copied(damaged=(name,))
    if wanted is None:
        return Copied(damaged=(name,)) if is_lost else Copied()
    if wanted.head.seq and _is_damaged(source, thread):
        return Copied(damaged=(name,))
    there = target.backend.heads([thread])[0]
    if there is None and target.backend.swap([wanted])[0]:
        copied = Copied(threads=1, rows=len(wanted.rows), bytes=_bytes(wanted))
    elif (head := readable_head(thread, there or b"")) and _content(head) == _content(wanted.head):
        copied = Copied(skipped=1)
    else:
        return Copied(conflicts=(name,))
    _copy_inbox(source.backend, target.backend, thread)
    _compare(target, wanted)
    return copied


def _is_damaged(source: Reader, thread: bytes) -> bool:
    """True if a record does not have the digest it should have. A missing key raises `KeyUnavailable`."""
    verifier = Verifier(source)
    source.binding(thread, source.living(thread).head)
    with unknown_as_opaque():  # a copy needs no class of what it copies
        verifier.check_thread(thread)
    return bool(verifier.problems)


def _content(head: Head) -> Head:
    """Return the head without its lease and the time of its last change."""
    return replace(head, token=0, owner="", expires_at=0, updated_at=0, mac=b"")


def _bytes(swap: Swap) -> int:
    return sum(len(row.header) + len(row.body) for row in swap.rows) + sum(map(len, swap.blobs.values()))


def _compare(target: Reader, wanted: Swap) -> None:
    """Read back what was copied: every row with its digest, and every blob."""
    found, name = snapshot(target.backend, wanted.thread), thread_id_of(wanted.thread)
    if found is None or found.rows != wanted.rows or dict(found.blobs) != dict(wanted.blobs):
        raise Corrupt(f"the copy of thread {name!r} is not equal to the original; copy into a new store", record=name)


def snapshot(source: Backend, thread: bytes) -> Swap | None:
    """Return a thread as it is at one moment, as the swap that creates it elsewhere; None if there is none.

    A run that holds the thread does not hold the copy. If the head changes meanwhile, the thread is read again.
    """
    for _ in range(ATTEMPTS):
        encoded = source.heads([thread])[0]
        if encoded is None:
            return None
        head = decode_head(thread, encoded)
        swap = _swap(source, thread, replace(head, owner="", expires_at=0) if head.owner else head)
        if source.heads([thread])[0] == encoded:
            return swap
    raise gave_up(ATTEMPTS, thread)


def _swap(source: Backend, thread: bytes, head: Head) -> Swap:
    rows: dict[int, Row] = {}
    for entry in source.index(thread, None, None):
        if entry.seq <= head.seq and entry.seq not in rows:
            rows.update((row.seq, row) for row in source.rows(thread, entry.seq))
    start, name = crc32(thread + head.incarnation), thread_id_of(thread)
    wanted = all_blob_ids(read_header(row, name, start) for row in rows.values())
    in_order, blobs = tuple(rows[seq] for seq in sorted(rows)), dict(source.blobs(thread, wanted))
    return swap_of(thread, Head(), b"", head, encode_head(thread, head), in_order, blobs)
