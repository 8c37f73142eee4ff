"""What changed in one cell: a short list of operations that make the new body from the old one.

An operation is COPY_ALL (the whole old body), a pair (offset, length) copied from the old body, or bytes to insert.
Bytes are compared, never values: 1, True and 1.0 are three values, and the order of keys matters.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from holdfast.codec.pieces import split
from holdfast.history.cells import Cell, Chunk, Kind, Operation

COPY_ALL = None

MAX_OPERATIONS = 512
SAMPLES = 16
SMALL_BYTES = 1024
"""Up to this size a cell is written whole: that is cheaper than to search for what changed."""
WORTH_BYTES = 32
"""An end with less in common than this is not searched: a copy would save nothing."""


def common_prefix(one: Chunk, other: Chunk) -> int:
    """Count the leading bytes that two bodies share, by bisection with the C comparison."""
    left, right = bytes(one), memoryview(other)
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left.startswith(right[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(one: Chunk, other: Chunk, limit: int) -> int:
    """Count the trailing bytes that two bodies share, up to `limit`."""
    left, right = bytes(one), memoryview(other)
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if left.endswith(right[len(right) - middle : len(right) - low], 0, len(left) - low):
            low = middle
        else:
            high = middle - 1
    return low


class _Builder:
    """Collects operations and joins adjacent ones."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._inserted: list[bytes] = []

    def insert(self, data: bytes) -> None:
        if data:
            self._inserted.append(data)

    def copy(self, offset: int, length: int) -> None:
        if not length:
            return
        self._flush()
        last = self.operations[-1] if self.operations else None
        if isinstance(last, tuple) and last[0] + last[1] == offset:
            self.operations[-1] = (last[0], last[1] + length)
        else:
            self.operations.append((offset, length))

    def finished(self) -> list[Operation]:
        self._flush()
        return self.operations

    def _flush(self) -> None:
        if self._inserted:
            self.operations.append(b"".join(self._inserted))
            self._inserted = []


def edit_value(old: Chunk, new: bytes) -> list[Operation]:
    """Keep what is common at both ends and replace the middle."""
    start = common_prefix(old, new) if old[:WORTH_BYTES] == new[:WORTH_BYTES] else 0
    end = common_suffix(old, new, min(len(old), len(new)) - start) if old[-WORTH_BYTES:] == new[-WORTH_BYTES:] else 0
    if not start and not end:
        return [new]
    builder = _Builder()
    builder.copy(0, start)
    builder.insert(new[start : len(new) - end])
    builder.copy(len(old) - end, end)
    return builder.finished()


def common_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Count the items that two sequences have in common at the start and at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


def _shares_something(known: dict[bytes, int], new: Sequence[bytes]) -> bool:
    """Check a few items only: a rewrite of everything should be noticed cheaply."""
    stride = max(1, len(new) // SAMPLES)
    return any(item in known for item in new[::stride])


def _match(builder: _Builder, old: Sequence[bytes], new: Sequence[bytes], start: int) -> bool:
    """Match items of the middle by their bytes; they may move. Return False if too many operations result."""
    offsets = list(accumulate(map(len, old), initial=0))
    known = {item: position for position, item in enumerate(old)}
    if not _shares_something(known, new):
        builder.insert(b"".join(new))
        return True
    expected = 0
    for item in new:
        position = expected if expected < len(old) and old[expected] == item else known.get(item)
        if position is None:
            builder.insert(item)
        else:
            builder.copy(start + offsets[position], len(item))
            expected = position + 1
        if len(builder.operations) > MAX_OPERATIONS:
            return False
    return True


def edit_items(kind: Literal["list", "map"], old_count: int, old: Chunk, new_count: int, new: bytes) -> list[Operation]:
    """Keep common items at both ends, and match the others by their bytes."""
    before, after = split(kind, old_count, bytes(old)), split(kind, new_count, new)
    start, end = common_ends(before, after)
    head = sum(map(len, before[:start]))
    tail = sum(map(len, before[len(before) - end :]))
    builder = _Builder()
    builder.copy(0, head)
    if not _match(builder, before[start : len(before) - end], after[start : len(after) - end], head):
        return [new]
    builder.copy(len(old) - tail, tail)
    return builder.finished()


def edit(old: Cell, kind: Kind, count: int, encoded: bytes, header: int) -> list[Operation] | None:
    """Return the operations that lead to an encoding with a header of that length; None if nothing changed."""
    if kind != old.kind:
        return [encoded[header:]]
    body = old.body()
    if encoded.startswith(body, header):
        if len(encoded) - header == old.size and count == old.count:
            return None
        return [COPY_ALL, encoded[header + old.size :]] if old.size else [encoded[header:]]
    new = encoded[header:]
    if len(new) <= SMALL_BYTES:
        return [new] if new else []
    return edit_value(body, new) if kind == "value" else edit_items(kind, old.count, body, count, new)
