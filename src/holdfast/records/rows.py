"""Rows as a backend stores them, and the one change that a backend makes: a swap.

What is made for each save is never part of a cycle, so the garbage collector skips it (`gc=False`).
"""

from collections.abc import Mapping

import msgspec

from holdfast.records.head import Head


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a thread's log. Immutable once written; `body` is empty if only the index was read.

    A restore of `seq` reads the rows from `base` to `seq`.
    """

    seq: int
    base: int
    digest: bytes
    header: bytes
    body: bytes


class Drop(msgspec.Struct, frozen=True):
    """What a swap deletes after the head was replaced: rows by half-open ranges of seq, and blobs by id.

    `everything` deletes all rows, blobs and posts that the same swap does not add. `secure` asks the store to overwrite
    what it deletes, as far as it can.
    """

    rows: tuple[tuple[int, int], ...] = ()
    blobs: tuple[bytes, ...] = ()
    everything: bool = False
    secure: bool = False


KEEP_ALL = Drop()


class Swap(msgspec.Struct, frozen=True, gc=False):
    """Replace a thread's head if its bytes are still `expected` (empty: no head), and change the log with it.

    All or nothing: rows and blobs are added, posts consumed and old rows deleted only if the head was replaced.
    """

    thread: bytes
    expected: bytes
    replacement: bytes
    head: Head
    rows: tuple[Row, ...] = ()
    blobs: Mapping[bytes, bytes] = {}
    consumed: tuple[str, ...] = ()
    drop: Drop = KEEP_ALL
    size: int = 0
    """Bytes this swap adds, as far as known: limits batches, decides when SQLite checkpoints, and events report it."""
    moves: bool = False
    """True if it changes the thread's entry in the agenda, which follows from `head`."""
    heard: frozenset[str] | None = None
    """The messages for the thread that its writer knows: any other one makes the thread due. None: none does."""
