"""Copying all threads from one store to another of any kind, byte by byte, and reading back what was copied. Blocking.

Sealed bytes stay sealed: both stores need the same keys. Each thread is copied as it is at one moment. What is there
already and equal is skipped, so that a copy which was cut short can be repeated; what differs is left alone.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from holdfast.codec.opaque import unknown_as_opaque
from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.head import LOST_HEAD, Head
from holdfast.records.identity import shown_id_of, thread_id_of
from holdfast.records.reports import Copied
from holdfast.records.rows import Swap
from holdfast.stores.backend import all_heads, readable_head
from holdfast.stores.backup import snapshot
from holdfast.stores.reader import Reader
from holdfast.stores.verify import Verifier

Progress: TypeAlias = Callable[[int, int], object]
"""Called with how much is done, and how much there is."""


def copy_store(source: Reader, target: Reader, progress: Progress) -> Copied:
    """Copy every thread of every namespace, the oldest first, so that the order of creation stays."""
    threads = [(thread, encoded == LOST_HEAD) for thread, encoded in all_heads(source.backend, b"")][::-1]
    copied = Copied()
    for number, (thread, is_lost) in enumerate(threads):
        progress(number, len(threads))
        copied += _copy(source, target, thread, is_lost=is_lost)
    progress(len(threads), len(threads))
    return copied


def _copy(source: Reader, target: Reader, thread: bytes, *, is_lost: bool) -> Copied:
    """Copy one thread, if it is whole and nothing else is in its place. A lost one that is not there is damaged."""
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
    for key, message in source.backend.inbox(thread).items():
        target.backend.post(thread, key, message)
    _compare(target, wanted)
    return copied


def _is_damaged(source: Reader, thread: bytes) -> bool:
    """True if a record does not have the digest it should have. A missing key is an error of its own."""
    verifier = Verifier(source)
    source.binding(thread, source.living(thread).head)
    with unknown_as_opaque():  # a copy needs no class of what it copies
        verifier.check_thread(thread)
    return bool(verifier.problems)


def _content(head: Head) -> Head:
    """What a head says of the thread, the lease and the time it was touched aside."""
    return replace(head, token=0, owner="", expires_at=0, updated_at=0, mac=b"")


def _bytes(swap: Swap) -> int:
    return sum(len(row.header) + len(row.body) for row in swap.rows) + sum(map(len, swap.blobs.values()))


def _compare(target: Reader, wanted: Swap) -> None:
    """Read back what was copied: every row with its digest, and every blob."""
    found, name = snapshot(target.backend, wanted.thread), thread_id_of(wanted.thread)
    if found is None or found.rows != wanted.rows or dict(found.blobs) != dict(wanted.blobs):
        raise Corrupt(f"the copy of thread {name!r} is not equal to the original; copy into a new store", record=name)
