"""Rows and blobs as a backend keeps them, and the one change it can be asked to make: a swap.

These, and what else is made for each save, can be part of no cycle: the garbage collector need not look at them.
"""

from collections.abc import Mapping

import msgspec

from holdfast.records.head import Head


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a thread's log. Immutable once written; `body` is empty where only the index was asked for.

    Rows `base` to `seq` are exactly what a restore of `seq` reads.
    """

    seq: int
    base: int
    digest: bytes
    header: bytes
    body: bytes


class Drop(msgspec.Struct, frozen=True):
    """What a swap removes, after the head was replaced: rows by half-open ranges of seq, and blobs by id.

    `everything` removes all rows, blobs and posts that the same swap does not add. `secure` asks the store to overwrite
    what it removes, as far as it can.
    """

    rows: tuple[tuple[int, int], ...] = ()
    blobs: tuple[bytes, ...] = ()
    everything: bool = False
    secure: bool = False


KEEP_ALL = Drop()


class Swap(msgspec.Struct, frozen=True, gc=False):
    """Replace a thread's head, if its bytes are still `expected` (empty: there is none), and with it change the log.

    All or nothing: rows and blobs are added, posts consumed and old rows dropped only if the head was replaced.
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
    """Bytes this swap adds, as far as known: a measure for batching, nothing depends on it."""
