"""The rows and blobs of a thread as objects: which of them a record leads to, and reading them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from holdfast.records.rows import Row
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.names import SegmentName, blob_of, era_root
from holdfast.stores.objects.record import Record
from holdfast.stores.objects.segments import StoredRow, Stretch, chain, linked, rows_in


class Found(NamedTuple):
    """Rows that were found, and whether they are all that the record speaks of.

    If not, they are damaged, or another process has dropped them since, or put them into another segment.
    """

    rows: list[Row]
    is_whole: bool


NOTHING = Found([], is_whole=True)


def folder_of(record: Record) -> str:
    """What the names of a thread's segments begin with."""
    return f"{era_root(record.thread, record.era)}rows/"


def segment_objects(record: Record, names: Iterable[SegmentName]) -> list[str]:
    """The whole names of segments."""
    return [f"{folder_of(record)}{name}" for name in names]


def blob_object(record: Record, blob: bytes) -> str:
    """The whole name of a blob object."""
    return f"{era_root(record.thread, record.era)}blobs/{blob.hex()}"


def post_object(record: Record, name: str) -> str:
    """The whole name of a post object."""
    return f"{era_root(record.thread, record.era)}posts/{name}"


class ObjectLog:
    """The objects below the head objects."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # Rows

    def restored(self, record: Record, seq: int, span: int) -> Found:
        """The rows that a restore of `seq` reads, in order. `span` is how many they are at most, by a good guess."""
        if not record.holds(seq):
            return NOTHING
        riding = next((row for row in record.tail if row.seq == seq), None)
        found = self.between(record, riding.base, seq) if riding else self._settled(record, seq, span)
        base = next((row.base for row in found if row.seq == seq), None)
        if base is None:
            return Found([], is_whole=False)
        rows = [row.row for row in found if row.seq >= base]
        return Found(rows, is_whole=len(rows) == seq - base + 1)

    def _settled(self, record: Record, seq: int, span: int) -> list[StoredRow]:
        """A row in a segment, and those before it that its segment says may be needed."""
        names = self._holding(record, seq - span, seq)
        base = next((name.base for name in names if name.first <= seq <= name.last), seq)
        if base < seq - span:
            names = self._holding(record, base, seq)
        return self._read(record, [name for name in names if name.last >= base], base, seq)

    def newest(self, record: Record, before: int | None, limit: int | None) -> Found:
        """The rows with seq < `before`, newest first, at most `limit`."""
        last = record.last if before is None else min(before - 1, record.last)
        wanted = _newest_ranges(record, last, limit)
        rows = self.between(record, wanted[-1][0], last) if wanted else []
        is_whole = len(rows) == sum(high - low + 1 for low, high in wanted)
        return Found([row.row for row in reversed(rows)], is_whole=is_whole)

    def between(self, record: Record, first: int, last: int) -> list[StoredRow]:
        """The rows from `first` to `last`, as far as they are there. No call if all of them ride in the record."""
        return self._read(record, self._holding(record, first, last), first, last)

    def _holding(self, record: Record, first: int, last: int) -> list[SegmentName]:
        """The segments in the log that hold rows from `first` to `last`."""
        stretches = [stretch for stretch in record.stretches if stretch.last >= first and stretch.first <= last]
        if not stretches:
            return []
        links = linked(self.listed(record, first, stretches[-1].last))
        names = [name for stretch in stretches for name in chain(links, stretch)]
        return [name for name in names if name.first <= last]

    def _read(self, record: Record, names: Sequence[SegmentName], first: int, last: int) -> list[StoredRow]:
        settled = [row for rows in self.contents(record, names).values() for row in rows]
        found = (row for row in (*settled, *record.tail) if first <= row.seq <= last)
        return sorted(found, key=lambda row: row.seq)

    # Segments

    def listed(self, record: Record, first: int = 0, last: int | None = None) -> list[SegmentName]:
        """The names of all segments with rows from `first` on that end at `last` or before, in the log or not."""
        folder = folder_of(record)
        names = filter(None, map(SegmentName.parse, self._calls.names(folder, f"{folder}{max(first, 0):012}")))
        return list(takewhile(lambda name: last is None or name.last <= last, names))

    def segments(self, record: Record, stretch: Stretch, first: int) -> list[SegmentName]:
        """The segments of a stretch that hold the rows from `first` on, in order."""
        return chain(linked(self.listed(record, first, stretch.last)), stretch)[::-1]

    def contents(self, record: Record, names: Sequence[SegmentName]) -> Mapping[SegmentName, list[StoredRow]]:
        """The rows in these segments; one that is not there is left out."""
        folder = folder_of(record)
        found = self._calls.each(lambda name: self._calls.get(f"{folder}{name}"), names)
        return {name: rows_in(folder, name, data[0]) for name, data in zip(names, found, strict=True) if data}

    # Objects

    def blob_ids(self, record: Record) -> Iterator[bytes]:
        """The blobs that are there, for rows that were committed or not, ascending."""
        root = f"{era_root(record.thread, record.era)}blobs/"
        return filter(None, (blob_of(name.removeprefix(root)) for name in self._calls.names(root)))

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Put objects side by side. Those that exist are equal, and left."""
        self._calls.each(lambda item: self._calls.put_if_absent(*item), list(objects.items()))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects side by side."""
        self._calls.each(self._calls.delete, list(names))


def _newest_ranges(record: Record, last: int, limit: int | None) -> list[tuple[int, int]]:
    """Where the newest rows up to `last` are, at most `limit` of them: ranges from first to last, newest first."""
    wanted: list[tuple[int, int]] = []
    missing = limit
    for first, end in reversed(record.ranges):
        high = min(end, last)
        low = first if missing is None else max(first, high - missing + 1)
        if low <= high:
            wanted.append((low, high))
            missing = None if missing is None else missing - (high - low + 1)
    return wanted
