"""What prune can delete: the checkpoints to keep, the rows they need, and the rows and blobs that nothing needs."""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.history.format import Header, all_blob_ids
from holdfast.records.head import Head, Marks
from holdfast.records.retention import Retention


class Dated(msgspec.Struct, frozen=True):
    """A visible checkpoint and its age in microseconds."""

    seq: int
    age: int


class Plan(msgspec.Struct, frozen=True):
    """The marks after pruning, and the rows (as half-open ranges) and blobs that are not needed any more."""

    marks: Marks
    hidden_count: int
    rows: tuple[tuple[int, int], ...]
    blobs: tuple[bytes, ...]


def thread_expires(retention: Retention, head: Head, now: int) -> bool:
    """True if the whole thread should be deleted: never while a run holds it, nor if it has pins to keep."""
    if head.held(now) or (retention.keep_pinned and head.marks.pinned):
        return False
    idle_too_long = retention.ttl_us is not None and now - head.updated_at >= retention.ttl_us
    return head.status in retention.delete_on or idle_too_long


def keeps_all(retention: Retention, head: Head, now: int) -> bool:
    """True if the head alone shows that every row stays: there are few, and none is hidden."""
    few = retention.keep_last is None or head.row_count <= retention.keep_last
    return few and retention.max_age is None and head.marks == Marks() and not thread_expires(retention, head, now)


def kept_by_rules(retention: Retention, visible: Sequence[Dated], newest: int) -> set[int]:
    """Return which of the visible checkpoints (newest first) to keep, apart from pins.

    The first always stays, and so does `newest`, whose state the thread has.
    """
    last = retention.keep_last if retention.keep_last is not None else len(visible)
    oldest = retention.max_age_us
    kept = {checkpoint.seq for checkpoint in visible[:last] if oldest is None or checkpoint.age < oldest}
    return kept | {checkpoint.seq for checkpoint in visible if checkpoint.seq == newest or checkpoint is visible[0]}


def new_marks(retention: Retention, marks: Marks, visible: Sequence[Dated], newest: int) -> Marks:
    """Return marks under which exactly the checkpoints to keep are visible.

    Below the floor only pinned ones are visible, above it all but the hidden.
    """
    kept = kept_by_rules(retention, visible, newest)
    floor = max(min(kept, default=0), marks.floor)
    pinned = tuple(seq for seq in marks.pinned if retention.keep_pinned or seq in kept)
    seqs = {checkpoint.seq for checkpoint in visible} | set(marks.hidden)
    shown = kept | set(pinned)
    hidden = sorted(seq for seq in seqs if seq >= floor and seq not in shown)
    below = sorted(seq for seq in kept if seq < floor and seq not in pinned)
    return Marks(floor, pinned, tuple(hidden), tuple(below))


def needed_rows(headers: Iterable[Header], head: Head, marks: Marks) -> set[int]:
    """Return the rows that the head or a visible row needs to be restored. Above the floor the journal has no gaps."""
    needed = set(range(head.base, head.seq + 1))
    for header in headers:
        if marks.shows(header.seq) or header.seq == head.checkpoint:
            needed.update(range(header.base, header.seq + 1))
    return needed


def _ranges(seqs: Iterable[int]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if ranges and ranges[-1][1] == seq:
            ranges[-1] = (ranges[-1][0], seq + 1)
        else:
            ranges.append((seq, seq + 1))
    return tuple(ranges)


def plan(headers: Sequence[Header], head: Head, marks: Marks) -> Plan:
    """Return what can be deleted once `marks` are in force, from all headers of a thread."""
    needed = needed_rows(headers, head, marks)
    gone = [header for header in headers if header.seq not in needed]
    remaining = (header for header in headers if header.seq in needed)
    blobs = all_blob_ids(gone) - all_blob_ids(remaining)
    seen = [header.seq for header in headers if header.is_checkpoint and head.marks.shows(header.seq)]
    hidden_count = sum(not marks.shows(seq) for seq in seen)
    return Plan(marks, hidden_count, _ranges(header.seq for header in gone), tuple(sorted(blobs)))
