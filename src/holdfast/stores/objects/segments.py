"""Segments: objects that hold rows which follow each other, and how a listing of their names shows which count.

Rows leave the head together, and are put as one segment, with a row that is too large for it. Segments never change. A
stretch names its last segment, and each segment the one before it. Pure: no calls here.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TypeAlias

import msgspec

from holdfast.records.errors import Corrupt
from holdfast.records.packed import bounded
from holdfast.records.ranges import UNDECODABLE
from holdfast.records.rows import Row
from holdfast.stores.objects.names import SegmentName

DIGEST_BYTES = 16
SEGMENT_BYTES = 1 << 18
"""A segment of this size takes no more rows: to read one of its rows is to read all of it."""

Range: TypeAlias = tuple[int, int]
Links: TypeAlias = dict[tuple[int, str], SegmentName]
"""Segments by their last row and their digest."""


class StoredRow(msgspec.Struct, frozen=True, array_like=True):
    """A row, and if it is the first row of its swap, the ids of the blobs that were written with it."""

    seq: int
    base: int
    digest: bytes
    header: bytes
    body: bytes
    blobs: tuple[bytes, ...] = ()

    @property
    def row(self) -> Row:
        """The row alone."""
        return Row(self.seq, self.base, self.digest, self.header, self.body)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(map(len, (self.digest, self.header, self.body, *self.blobs)))


def stored(row: Row) -> StoredRow:
    """A row that wrote no blobs."""
    return StoredRow(row.seq, row.base, row.digest, row.header, row.body)


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """Rows `first` to `last`, without gaps, in whole segments that are chained. `end` is the digest of the last one."""

    first: int
    last: int
    end: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = bounded(msgspec.msgpack.Decoder(list[StoredRow]).decode)


def segment(folder: str, rows: Sequence[StoredRow], version: int, previous: bytes) -> tuple[SegmentName, bytes]:
    """The name and the content of a segment of these rows, in a folder, for the record of that version."""
    content = _encode(rows)
    base = min(row.base for row in rows)
    name = SegmentName(rows[-1].seq, rows[0].seq, base, version, previous.hex(), "")
    return name._replace(digest=_digest(f"{folder}{name}", content)), content


def rows_in(folder: str, name: SegmentName, content: bytes) -> list[StoredRow]:
    """The rows in a segment, or `Corrupt`."""
    if _digest(f"{folder}{name._replace(digest='')}", content) != name.digest:
        raise damaged(f"{folder}{name}", "its digest does not match")
    try:
        rows = _decode(content)
    except UNDECODABLE as error:
        raise damaged(f"{folder}{name}", error) from error
    is_whole = len(rows) == name.last - name.first + 1
    if not is_whole or any(row.seq != seq for seq, row in enumerate(rows, name.first)):
        raise damaged(f"{folder}{name}", "it holds other rows")
    return rows


def damaged(name: str, why: object) -> Corrupt:
    """The error for a damaged object."""
    return Corrupt(f"object {name} is damaged: {why}", record=f"object {name}")


def _digest(name: str, content: bytes) -> str:
    return sha256(name.encode() + content).digest()[:DIGEST_BYTES].hex()


def portions(rows: Iterable[StoredRow]) -> Iterator[list[StoredRow]]:
    """Rows in the portions that become segments: without gaps, and of a bearable size."""
    portion: list[StoredRow] = []
    size = 0
    for row in rows:
        if portion and (row.seq != portion[-1].seq + 1 or size >= SEGMENT_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += row.size
    if portion:
        yield portion


def linked(names: Iterable[SegmentName]) -> Links:
    """Names as `chain` wants them."""
    return {(name.last, name.digest): name for name in names}


def chain(links: Links, stretch: Stretch) -> list[SegmentName]:
    """The segments of a stretch, newest first, from names that reach up to its end: those the end leads down to.

    A lost race may have left others with the same rows. No name is taken for want of a better one: where a link is
    missing the chain ends, and readers find damage rather than the rows of a race that was lost.
    """
    found: list[SegmentName] = []
    last, digest = stretch.last, stretch.end.hex()
    while last >= stretch.first and (last, digest) in links:
        found.append(links[last, digest])
        last, digest = found[-1].first - 1, found[-1].previous
    return found


def dead(
    names: Iterable[SegmentName], listed: Iterable[SegmentName], stretches: Sequence[Stretch], version: int
) -> list[SegmentName]:
    """Those of the names that no record can lead to any more: from now on all are made for a later version.

    `stretches` and `version` are a record's, `listed` what there is from the lowest of the names on. Where a link is
    missing, the segments below it may be in the log, and are spared.
    """
    links = linked(listed)
    chains = {stretch: chain(links, stretch) for stretch in stretches}
    taken = {name for found in chains.values() for name in found}
    floors = {stretch: found[-1].first if found else stretch.last + 1 for stretch, found in chains.items()}

    def is_spared(name: SegmentName) -> bool:
        return any(each.first <= name.first and name.last < floors[each] for each in stretches)

    return [name for name in names if name.version <= version and name not in taken and not is_spared(name)]


def without(first: int, last: int, ranges: Iterable[Range]) -> list[Range]:
    """What is left of the rows `first` to `last`, as such ranges, without those in half-open ranges of seq."""
    left: list[Range] = []
    low = first
    for start, stop in sorted(ranges):
        if low < start < stop:
            left.append((low, min(start - 1, last)))
        if start < stop:
            low = max(low, stop)
        if low > last:
            return left
    return [*left, (low, last)]
