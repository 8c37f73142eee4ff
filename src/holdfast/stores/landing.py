"""Was a write stored? After a lost reply the stored head and log decide, for saves, claims, pins and prunes alike."""

from holdfast.records.errors import OutcomeUnknown
from holdfast.records.head import Head, decode_head
from holdfast.records.rows import Swap
from holdfast.stores.reader import Reader, Seen

HOLDER = frozenset({"token", "owner", "deleted"})
"""Claims, releases and tombstones change these. No other write can set them to the same values."""
DERIVED = frozenset({"mac"})


def resolved(reader: Reader, swap: Swap) -> bool | None:
    """True if a swap whose reply was lost is stored, False if it never can be, None if that is unknown. Blocking.

    While the head is the expected one, the swap may still be on its way. So it is sent again: the copy that comes
    first is stored, and the other one is refused.
    """
    outcome = landed(reader, swap)
    if outcome is not None:
        return outcome
    try:
        return True if reader.backend.swap([swap])[0] else landed(reader, swap)
    except OutcomeUnknown:
        return landed(reader, swap)


def landed(reader: Reader, swap: Swap, seen: Seen | None = None) -> bool | None:
    """True if the swap was stored, False if it was not and never can be, None if that is unknown. Blocking.

    Other writes may have followed it. `seen` is the present head if the caller has read it.
    """
    seen = seen or reader.seen(swap.thread)
    if seen is None or seen.encoded == swap.expected:
        return None
    if seen.encoded == swap.replacement:
        return True
    if swap.rows:
        return _has_row(reader, swap, seen.head)
    return True if _has_change(swap, seen.head) else None


def _has_row(reader: Reader, swap: Swap, head: Head) -> bool | None:
    """True if the row is in the log, False if another is in its place; None if that is unknown."""
    ours = swap.head
    if head.incarnation != ours.incarnation:
        return None if swap.expected else False  # a thread that exists cannot be created again
    if head.seq <= ours.seq:
        return head.digest == ours.digest if head.seq == ours.seq else None
    rows = reader.backend.index(swap.thread, ours.seq + 1, 1)
    return rows[0].digest == ours.digest if rows and rows[0].seq == ours.seq else None


def _has_change(swap: Swap, head: Head) -> bool:
    """True if the fields that the swap changed have its values. Other writes may have changed the rest since."""
    before = decode_head(swap.thread, swap.expected) if swap.expected else Head()
    changed = {name for name in Head.__struct_fields__ if getattr(swap.head, name) != getattr(before, name)} - DERIVED
    decisive = changed & HOLDER or changed
    return all(getattr(head, name) == getattr(swap.head, name) for name in decisive)
