"""The journey of one swap: put its objects, replace the head (the commit), then delete what no longer counts.

A swap that loses a race deletes what it has put. Everything is decided from the record, never by a clock: a segment or
mark has the version of the record it was put for, so a record of that version or a later one that does not list it
proves that nobody can commit it any more.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.history.binding import SEQ_BYTES
from holdfast.records.errors import Corrupt, StoreError, StoreUnavailable
from holdfast.records.rows import Swap
from holdfast.stores.backend import replaces_lost_head
from holdfast.stores.objects.calls import Calls
from holdfast.stores.objects.heads import ATTEMPTS, Heads, Stored, conflicting, pause
from holdfast.stores.objects.log import Log
from holdfast.stores.objects.names import era_root, hash_of, marker_name, root_of, segment_version
from holdfast.stores.objects.record import (
    NO_LEFTOVERS,
    Range,
    Record,
    Segment,
    StoredRow,
    new_rows,
    new_segments,
    next_era,
    overlap,
    swapped,
    tail_start,
    without,
)


class Change(NamedTuple):
    """A swap applied to one record: the next record, and the objects to put before it."""

    record: Record
    own: dict[str, bytes]
    """Segments and marks: named after the version of this record."""
    shared: dict[str, bytes]
    """Blobs and the marker: another writer may put equal ones."""


class Swaps:
    """Makes swaps."""

    def __init__(self, calls: Calls, heads: Heads, log: Log, tail_bytes: int) -> None:
        self._calls = calls
        self._heads = heads
        self._log = log
        self._tail_bytes = tail_bytes

    def make(self, swap: Swap) -> bool:
        """See `Backend.swap`."""
        stored, tried = self._current(swap), list[Change]()
        for attempt in range(ATTEMPTS):
            if stored.record.head != swap.expected:
                self._take_back(tried, swap, stored.record)
                return False
            try:
                change = self._change(stored, swap)
            except Corrupt:
                known, stored = stored, self._fetch(swap)
                if stored.tag == known.tag:
                    self._take_back(tried, swap, stored.record)
                    raise
                continue  # the record was outdated: another swap dropped or moved what is missing
            tried.append(change)
            replaced = self._commit(stored, tried, swap)
            if replaced is None:
                pause(attempt)
                stored = self._fetch(swap)
            # A client below may repeat a put whose reply was lost, and be refused because of its own first attempt.
            if replaced or stored.record.writer == change.record.writer:
                self._clean_up(replaced or stored, tried[:-1], swap)
                return True
        self._take_back(tried, swap, stored.record)
        raise conflicting(swap.thread)

    def _current(self, swap: Swap) -> Stored:
        """Return the record to start with. No call if the cached one has the expected head, or none is expected."""
        cached = self._heads.cached(swap.thread)
        if cached is None and not swap.expected:
            return Stored(Record(swap.thread))
        return cached if cached and cached.record.head == swap.expected else self._fetch(swap)

    def _fetch(self, swap: Swap) -> Stored:
        return self._heads.fetch(swap.thread, replace_damaged=replaces_lost_head(swap))

    def _commit(self, stored: Stored, tried: Sequence[Change], swap: Swap) -> Stored | None:
        """Put the objects of the last change, then replace the head; None if it is no longer the current one.

        After an error, if the commit can no longer succeed, delete what was put: it may hold rows that were erased.
        """
        *before, change = tried
        known = {name for each in before for name in each.shared}
        objects = change.own | {name: data for name, data in change.shared.items() if name not in known}
        try:
            self._calls.put_all(objects)
            return self._heads.replace(stored, change.record)
        except StoreError:
            with suppress(StoreError):
                found = self._heads.fetch(swap.thread) if objects else stored
                if found.tag != stored.tag:
                    self._take_back(tried, swap, found.record)
            raise

    # What to put

    def _change(self, stored: Stored, swap: Swap) -> Change:
        record = replace(stored.record, leftovers=NO_LEFTOVERS) if stored.is_swept else stored.record
        record = next_era(record) if swap.drop.everything else record
        kept = without(0, record.last, swap.drop.rows)
        segments, cut = self._cut(record, kept) if swap.drop.rows else (record.segments, [])
        rows = [row for row in record.tail if overlap(kept, row.seq, row.seq)] + new_rows(record, swap)
        start = tail_start(rows, self._tail_bytes)
        made = new_segments(record, [*cut, *(row for row in rows if row.seq < start)])
        segments = sorted((*segments, *made), key=lambda segment: segment.first)
        replaced = swapped(record, swap, segments, [row for row in rows if row.seq >= start])
        marks = [mark for mark in replaced.marks.items() if mark not in record.marks.items()]
        own = {record.segment_name(segment): content for segment, content in made.items()}
        shared = {record.blob_name(blob): data for blob, data in swap.blobs.items()}
        if stored.tag is None or replaces_lost_head(swap):
            shared[marker_name(swap.thread)] = swap.thread
        return Change(replaced, own | dict.fromkeys(record.mark_names(marks), b""), shared)

    def _cut(self, record: Record, kept: Sequence[Range]) -> tuple[Sequence[Segment], list[StoredRow]]:
        """Return the segments that keep all rows, and the rows that stay of those that lose some."""
        left = {segment: overlap(kept, *segment.rows) for segment in record.segments}
        whole = [segment for segment, ranges in left.items() if ranges == [segment.rows]]
        cut = [segment for segment, ranges in left.items() if ranges and ranges != [segment.rows]]
        rows = list[StoredRow]()
        for segment, found in zip(cut, self._log.contents(record, cut), strict=True):
            if found is None:
                name = f"object {record.segment_name(segment)}"
                raise Corrupt(f"{name} is missing: rows {segment.first} to {segment.last} are lost", record=name)
            rows += [row for row in found if overlap(kept, row.seq, row.seq)]
        return whole, rows

    # What to delete

    def sweep(self, stored: Stored) -> bool:
        """Delete what a record has dropped. False if that failed: the next swap tries again."""
        if not stored.is_swept:
            try:
                self._calls.delete_all(self._dropped(stored.record))
            except StoreError:
                return False
            self._heads.note_swept(stored)
        return True

    def _dropped(self, record: Record) -> list[str]:
        left = record.leftovers
        names = [record.blob_name(blob) for blob in left.blobs]
        names += [record.post_name(post) for post in left.posts]
        names += record.mark_names(left.marks)
        if left.rows:
            counting = {record.segment_name(segment) for segment in record.segments}
            listed = [name for name in self._calls.names(record.segment_folder) if name not in counting]
            names += [name for name in listed if 0 < segment_version(name) <= record.version]
        if left.eras:
            current = era_root(record.thread, record.era)
            names += takewhile(lambda name: name < current, self._calls.names(root_of(hash_of(record.thread))))
        return names

    def _clean_up(self, stored: Stored, tried: Sequence[Change], swap: Swap) -> None:
        """Delete what a committed record has dropped, and what attempts before it have put."""
        is_swept = self.sweep(stored)
        self._delete(_unlisted(tried, stored.record))
        if swap.drop.secure and not is_swept:
            raise StoreUnavailable("the rows are dropped, but not all of their objects could be deleted; erase again")

    def _take_back(self, tried: Sequence[Change], swap: Swap, record: Record) -> None:
        """Delete what a refused swap has put."""
        self._delete(_unlisted(tried, record))
        if tried and tried[-1].record.era == record.era:
            with suppress(StoreError):
                self._calls.delete_all(self._refused_blobs(swap, record))

    def _refused_blobs(self, swap: Swap, record: Record) -> list[str]:
        """Return the blobs of a swap that was refused under this record, unless the winner wrote them too.

        A blob's id begins with the seq of its row, so only rows with the same seq can have written it. If one of these
        rows is dropped already, or not yet written, this cannot be decided, and the blobs stay.
        """
        passed = {row.seq for row in swap.rows if row.seq <= record.last}
        if not swap.blobs or not passed:
            return []
        rows = self._log.between(record, min(passed), max(passed))
        if not passed <= {row.seq for row in rows}:
            return []
        written = {blob for row in rows for blob in row.blobs}
        return [record.blob_name(blob) for blob in swap.blobs if seq_of(blob) in passed and blob not in written]

    def _delete(self, names: Sequence[str]) -> None:
        """Delete objects that do not count. A failure does no harm: a later prune deletes them."""
        with suppress(StoreError):
            self._calls.delete_all(names)


def _unlisted(changes: Sequence[Change], record: Record) -> list[str]:
    """Return what was put for changes of earlier records, and does not count under this one.

    A blob is not named after a record, so it is only among them if it is of an earlier era.
    """
    names = {name for change in changes for name in change.own}
    names |= {name for change in changes if change.record.era < record.era for name in change.shared}
    listed = {record.segment_name(segment) for segment in record.segments} if names else set[str]()
    return [*(names - listed - {marker_name(record.thread), *record.mark_names(record.marks.items())})]


def seq_of(blob: bytes) -> int:
    """Return the seq of the row that wrote a blob."""
    return int.from_bytes(blob[:SEQ_BYTES], "big")
