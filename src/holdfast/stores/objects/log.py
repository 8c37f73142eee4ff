"""Reading the rows of a thread: those in its record, and those in the segments that the record lists."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from holdfast.records.ranges import END_OF_SEQS
from holdfast.records.rows import Row
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.heads import ATTEMPTS, Heads, conflicting
from holdfast.stores.objects.record import Record, Segment, StoredRow, rows_in


class Log:
    """The rows of all threads."""

    def __init__(self, calls: Calls, heads: Heads) -> None:
        self._calls = calls
        self._heads = heads

    def restore(self, thread: bytes, seq: int) -> list[Row]:
        """See `Backend.rows`."""
        cached = self._heads.cached(thread)
        record = cached.record if cached and cached.record.holds(seq) else self._heads.fetch(thread).record
        found = self._read_all(record, lambda each: each.segments_with(_lowest_base(each, seq), seq))
        base = next((row.base for row in found if row.seq == seq), seq + 1)
        return [row.row for row in found if base <= row.seq <= seq]

    def newest(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """Return the rows with seq < `before`, newest first, at most `limit`."""
        record = self._heads.fetch(thread).record
        last = END_OF_SEQS if before is None else before - 1
        found = self._read_all(record, lambda each: _newest_segments(each, last, limit))
        return [row.row for row in reversed(found) if row.seq <= last][:limit]

    def _read_all(self, record: Record, choose: Callable[[Record], Sequence[Segment]]) -> list[StoredRow]:
        """Read the rows in the chosen segments, and in the record; those that exist, in order.

        If a segment is missing, the record may be outdated: a prune drops segments, and moves rows to others.
        """
        for _ in range(ATTEMPTS):
            found = self.contents(record, choose(record))
            current = record if None not in found else self._heads.fetch(record.thread).record
            if current.version == record.version:
                return [*_rows(found), *record.tail]
            record = current
        raise conflicting(record.thread)

    def between(self, record: Record, first: int, last: int) -> list[StoredRow]:
        """Return the rows from `first` to `last` that exist under this record. No call if all are in the record."""
        found = self.contents(record, record.segments_with(first, last))
        return [row for row in (*_rows(found), *record.tail) if first <= row.seq <= last]

    def contents(self, record: Record, segments: Sequence[Segment]) -> list[list[StoredRow] | None]:
        """Return the rows in each of these segments, None for one that is missing."""
        found = self._calls.each(self._calls.get, [record.segment_name(segment) for segment in segments])
        pairs = zip(segments, found, strict=True)
        return [rows_in(record, segment, data[0]) if data else None for segment, data in pairs]


def _rows(found: Iterable[list[StoredRow] | None]) -> Iterator[StoredRow]:
    return chain.from_iterable(filter(None, found))


def _lowest_base(record: Record, seq: int) -> int:
    """Return a lower bound for the base of a row, as its segment gives it."""
    bases = [segment.base for segment in record.segments_with(seq, seq)]
    return min([*bases, *(row.base for row in record.tail if row.seq == seq)], default=seq)


def _newest_segments(record: Record, last: int, limit: int | None) -> Sequence[Segment]:
    """Return the segments with the newest `limit` rows up to `last`, as far as they are not in the record."""
    segments = record.segments_with(0, last)
    missing = record.last if limit is None else limit - sum(row.seq <= last for row in record.tail)
    start = len(segments)
    while start and missing > 0:
        start -= 1
        missing -= min(segments[start].last, last) - segments[start].first + 1
    return segments[start:]
