"""Finding threads: by the marks of a status or a label, else by the markers of a namespace; always in one order.

A mark is put before the commit that makes it true, and deleted after the one that makes it untrue. So a mark may be
outdated, but none is missing, and a listing reads the head as well. A mark that the record does not list, of the
record's version or an earlier one, is dead: anyone may delete it.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from typing import NamedTuple

from holdfast.records.errors import Corrupt, StoreError
from holdfast.records.head import LOST_HEAD
from holdfast.records.identity import shown_id_of
from holdfast.stores.backend import Listing, belongs
from holdfast.stores.objects.calls import PAGE, Calls
from holdfast.stores.objects.heads import Heads
from holdfast.stores.objects.names import (
    MARKS,
    SPACES,
    MarkName,
    hash_in,
    hash_of,
    head_of,
    marker_name,
    markers_of,
    marks_of,
    placeholder_key,
    term_of,
)
from holdfast.stores.objects.record import UNMARKED, Record

HEADS_PER_PAGE = 64
AFTER_HASH = "-z"
"""Sorts after everything that can follow a thread's hash in the name of a mark."""


class Candidate(NamedTuple):
    """A thread that may belong in a listing, with its position in the order, and the marks that name it."""

    position: str
    thread_hash: str
    marks: tuple[MarkName, ...] = ()


class Listings:
    """Lists and checks threads."""

    def __init__(self, calls: Calls, heads: Heads) -> None:
        self._calls = calls
        self._heads = heads

    def threads(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """See `Backend.threads`."""
        found: list[tuple[str, bytes, bytes]] = []
        for position, thread, head in self._listed(prefix, _terms(prefix, statuses, labels), cursor or "", limit):
            if thread.startswith(prefix) and belongs(thread, head, statuses, labels):
                found.append((position, thread, head))
            if len(found) > limit:
                break
        page = [(thread, head) for _, thread, head in found[:limit]]
        return Listing(page, found[limit - 1][0] if len(found) > limit else None)

    def _listed(
        self, prefix: bytes, terms: list[str] | None, after: str, limit: int
    ) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield position, thread and head of each candidate that has a head; `LOST_HEAD` for a damaged object."""
        size = min(max(limit + 1, HEADS_PER_PAGE), PAGE)
        found = self._marked(terms, after, size) if terms is not None else self._all(prefix, after, size)
        while page := list(islice(found, size)):
            records = self._calls.each(self._read, [head_of(candidate.thread_hash) for candidate in page])
            for candidate, record in zip(page, records, strict=True):
                if isinstance(record, Corrupt):
                    yield candidate.position, self._key_of(candidate, prefix), LOST_HEAD
                elif record:
                    self._delete_dead_marks(candidate, record)
                    if record.head:
                        yield candidate.position, record.thread, record.head

    def _read(self, name: str) -> Record | Corrupt | None:
        try:
            return self._heads.read(name)
        except Corrupt as error:
            return error

    def _key_of(self, candidate: Candidate, prefix: bytes) -> bytes:
        """Return the key of a thread whose head object is damaged: its marker holds it, and the hash proves it."""
        is_marker = candidate.position.startswith(SPACES)
        marker = candidate.position if is_marker else markers_of(prefix) + candidate.thread_hash
        found = self._calls.get(marker)
        if found and hash_of(found[0]) == candidate.thread_hash:
            return found[0]
        return placeholder_key(prefix, candidate.thread_hash)

    def _all(self, prefix: bytes, after: str, size: int) -> Iterator[Candidate]:
        for marker in self._calls.names(markers_of(prefix), after, size):
            yield Candidate(marker, marker.rpartition("/")[2])

    def _marked(self, terms: list[str], after: str, size: int) -> Iterator[Candidate]:
        """Yield the threads with a mark of any of the terms, each once."""
        by_hash = attrgetter("thread_hash")
        lists = [self._marks(term, after, size) for term in dict.fromkeys(terms)]
        for thread_hash, marks in groupby(merge(*lists, key=by_hash), key=by_hash):
            yield Candidate(thread_hash, thread_hash, tuple(marks))

    def _marks(self, term: str, after: str, size: int) -> Iterator[MarkName]:
        folder = marks_of(term)
        names = self._calls.names(folder, f"{folder}{after}{AFTER_HASH}" if after else "", size)
        return filter(None, map(MarkName.parse, names))

    def _delete_dead_marks(self, candidate: Candidate, record: Record) -> None:
        """Delete the marks that a crash has left. If that fails, the next listing tries again."""
        with suppress(StoreError):
            self._calls.delete_all([str(mark) for mark in candidate.marks if is_dead(mark, record)])

    # Checks

    def check(self) -> list[str]:
        """See `Backend.check`."""
        found = sorted(filter(None, map(hash_in, self._calls.names(""))))
        marks, markers = set(self._calls.names(MARKS)), list(self._calls.names(SPACES))  # later: they are put first
        listed = {marker.rpartition("/")[2] for marker in markers}
        problems = self._calls.each(lambda marker: self._problem(marker, marks), markers)
        problems += self._calls.each(self._unlisted, [each for each in found if each not in listed])
        return [problem for problem in problems if problem]

    def _problem(self, marker: str, marks: Collection[str]) -> str:
        """Return what is wrong with the thread of a marker; empty if nothing is."""
        head = head_of(marker.rpartition("/")[2])
        try:
            missing = [name for name in self._marks_in(head) if name not in marks]
        except Corrupt as error:
            return str(error)
        # A commit since then may have put the mark, or made it untrue.
        if not any(self._calls.get(name) is None and name in self._marks_in(head) for name in missing):
            return ""
        return f"object {missing[0]} is missing: listings by status and label leave its thread out"

    def _marks_in(self, head: str) -> list[str]:
        record = self._heads.read(head)
        return record.mark_names(record.marks.items()) if record else []

    def _unlisted(self, thread_hash: str) -> str:
        """Return what is wrong with a thread without a marker. One that only has posts needs none."""
        try:
            record = self._heads.read(head_of(thread_hash))
        except Corrupt as error:
            return f"{error}; and no marker gives its id"
        if record is None or not record.head:
            return ""
        thread = record.thread
        return f"object {marker_name(thread)} is missing: listings leave thread {shown_id_of(thread)!r} out"


def is_dead(mark: MarkName, record: Record) -> bool:
    """True if the record of a mark's thread proves that no record will ever list the mark."""
    return record.version >= mark.version and record.marks.get(mark.term) != mark.suffix


def _terms(prefix: bytes, statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> list[str] | None:
    """Return terms that every thread in question is marked with; None if all threads have to be read."""
    if not prefix or len(prefix) <= prefix[0]:
        return None
    if labels:
        return [term_of(prefix, "label", token) for token in labels[0]]
    if statuses and not UNMARKED.intersection(statuses):
        return [term_of(prefix, "status", status.encode()) for status in statuses]
    return None
