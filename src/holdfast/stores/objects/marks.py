"""Marks: small objects by which threads of a status or with a label are found without reading all heads.

A mark is put before the commit that makes it true and removed after the one that makes it untrue, so there may be more
of them than threads, and never fewer; a listing reads the head as well. Each has a name that is never used again,
with the version of the record it was made for: once the record has that version and does not speak of the mark, it is
dead, and anyone may remove it. No clock is asked. Pure: no calls here.
"""

from collections.abc import Collection, Iterator, Sequence
from secrets import token_hex

from holdfast.records.head import Head
from holdfast.records.words import Status
from holdfast.stores.objects.names import MarkName, hash_of, word_of

UNMARKED = {Status.IDLE.value, Status.COMPLETE.value}
"""Where most threads rest: a mark for each would cost a put, and find almost all of them."""


def words(thread: bytes, head: Head) -> Iterator[str]:
    """What a thread with this head must be marked with."""
    status = head.listed_as
    if not status:
        return
    if status not in UNMARKED:
        yield word_of(thread, "status", status.encode())
    yield from (word_of(thread, "label", token) for token in head.labels)


def remarked(marks: dict[str, str], thread: bytes, head: Head, version: int) -> dict[str, str]:
    """For each word of a head the rest of its mark's name: the old one where there is one."""
    return {word: marks.get(word) or f"{version:012}-{token_hex(8)}" for word in words(thread, head)}


def mark_name(thread: bytes, word: str, rest: str) -> str:
    """The whole name of a mark."""
    version, _, suffix = rest.partition("-")
    return str(MarkName(word, hash_of(thread), int(version), suffix))


def is_dead(mark: MarkName, version: int, marks: dict[str, str]) -> bool:
    """True if a record of that version, with these marks, proves that no record will ever speak of the mark."""
    return version >= mark.version and marks.get(mark.word) != f"{mark.version:012}-{mark.suffix}"


def sought(prefix: bytes, statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> list[str] | None:
    """The words under which everything is marked that a listing asks for; None if only all threads will do."""
    if not prefix or len(prefix) <= prefix[0]:
        return None
    if labels:
        return [word_of(prefix, "label", token) for token in labels[0]]
    if statuses and not UNMARKED.intersection(statuses):
        return [word_of(prefix, "status", status.encode()) for status in statuses]
    return None
