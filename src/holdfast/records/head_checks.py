"""What the fields of a head must be to each other. The decoder has checked the type and the range of each."""

from typing import TYPE_CHECKING

from holdfast.records.ranges import STATUSES

if TYPE_CHECKING:
    from holdfast.records.head import Head, Marks

INCARNATION_BYTES = 16


def problem_of(head: "Head") -> str:
    """Say what is wrong with a head; empty if nothing is."""
    if head.format < 1:
        return f"its format is {head.format}"
    if head.status and head.status not in STATUSES:
        return f"its status is {head.status!r}"
    if len(head.incarnation) not in {0, INCARNATION_BYTES}:
        return f"its incarnation has {len(head.incarnation)} bytes"
    if head.base > head.seq or head.checkpoint > head.seq:
        return f"its seq is {head.seq}, its base {head.base} and its checkpoint {head.checkpoint}"
    if head.checkpoint and not head.marks.shows(head.checkpoint):
        return f"its marks hide its newest checkpoint, {head.checkpoint}"
    return _problem_of_marks(head.marks, head.seq)


def _problem_of_marks(marks: "Marks", seq: int) -> str:
    for name, seqs in (("pinned", marks.pinned), ("hidden", marks.hidden), ("kept", marks.kept)):
        if seqs and (min(seqs) < 1 or max(seqs) > seq):
            return f"it has {seq} rows, and one of its {name} checkpoints is not among them"
    return ""
