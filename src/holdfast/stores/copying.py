"""Copying all threads from one store to another of any kind, byte by byte, and reading back what was copied. Blocking.

Sealed bytes stay sealed: both stores need the same keys. Each thread is copied as it is at one moment. What is there
already and equal is skipped, so that a copy which was cut short can be repeated; what differs is left alone.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from holdfast.records.errors import Corrupt
from holdfast.records.head import Head, decode_head
from holdfast.records.identity import thread_id_of
from holdfast.records.reports import Copied
from holdfast.records.rows import Swap
from holdfast.stores.backup import all_threads, snapshot
from holdfast.stores.reader import Reader
from holdfast.stores.verify import Verifier

Progress: TypeAlias = Callable[[int, int], object]
"""Called with how much is done, and how much there is."""


def copy_store(source: Reader, target: Reader, progress: Progress) -> Copied:
    """Copy every thread of every namespace, the oldest first, so that the order of creation stays."""
    threads = all_threads(source.backend)[::-1]
    copied = Copied()
    for number, thread in enumerate(threads):
        progress(number, len(threads))
        copied += _copy(source, target, thread)
    progress(len(threads), len(threads))
    return copied


def _copy(source: Reader, target: Reader, thread: bytes) -> Copied:
    wanted = snapshot(source.backend, thread)
    if wanted is None:
        return Copied()
    there = target.backend.heads([thread])[0]
    if there is not None and not _equal(decode_head(thread, there), wanted.head):
        return Copied(conflicts=(thread_id_of(thread),))
    if there is None and not target.backend.swap([wanted])[0]:
        return Copied(conflicts=(thread_id_of(thread),))
    for key, message in source.backend.inbox(thread).items():
        target.backend.post(thread, key, message)
    _check(target, wanted)
    if there is not None:
        return Copied(skipped=1)
    return Copied(threads=1, rows=len(wanted.rows), bytes=_bytes(wanted))


def _equal(one: Head, other: Head) -> bool:
    """True if two heads say the same of the thread: the lease and the time it was touched aside."""
    return _content(one) == _content(other)


def _content(head: Head) -> Head:
    return replace(head, token=0, owner="", expires_at=0, updated_at=0)


def _bytes(swap: Swap) -> int:
    return sum(len(row.header) + len(row.body) for row in swap.rows) + sum(map(len, swap.blobs.values()))


def _check(target: Reader, wanted: Swap) -> None:
    """Compare what the target has with what was to be copied, and each record with its own digest."""
    name = thread_id_of(wanted.thread)
    found = snapshot(target.backend, wanted.thread)
    if found is None or found.rows != wanted.rows or dict(found.blobs) != dict(wanted.blobs):
        raise Corrupt(f"the copy of thread {name!r} is not equal to the original; copy into a new store", record=name)
    verifier = Verifier(target)
    verifier.check_thread(wanted.thread)
    for problem in verifier.problems:
        raise Corrupt(f"thread {name!r} was damaged before it was copied: {problem.message}", record=problem.record)
