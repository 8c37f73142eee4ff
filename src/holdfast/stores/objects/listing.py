"""Finding threads: by the marks of a status or a label, else by the markers of a namespace; always in one order."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby, islice
from typing import NamedTuple

from holdfast.records.errors import Corrupt, StoreError
from holdfast.records.head import LOST_HEAD
from holdfast.stores.backend import Listing, belongs
from holdfast.stores.objects.calls import PAGE, Calls
from holdfast.stores.objects.heads import Heads, Kept
from holdfast.stores.objects.marks import is_dead, sought
from holdfast.stores.objects.names import SPACES, MarkName, hash_of, head_of, markers_of, marks_of, nameless
from holdfast.stores.objects.record import Record

HEADS_PER_PAGE = 64
LAST = "-z"
"""After a thread's hash: greater than all that follows it in the name of a mark."""


class Candidate(NamedTuple):
    """A thread that may belong into a listing, by the place where it stands in its order, and the marks that say so."""

    place: str
    thread_hash: str
    marks: tuple[MarkName, ...] = ()


class Finder:
    """The listings of an object store."""

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
        for place, thread, head in self._listed(sought(prefix, statuses, labels), prefix, cursor or "", limit):
            if thread.startswith(prefix) and belongs(thread, head, statuses, labels):
                found.append((place, thread, head))
            if len(found) > limit:
                break
        page = [(thread, head) for _, thread, head in found[:limit]]
        return Listing(page, found[limit - 1][0] if len(found) > limit else None)

    def _listed(
        self, words: list[str] | None, prefix: bytes, after: str, limit: int
    ) -> Iterator[tuple[str, bytes, bytes]]:
        """The place, the thread and the head of each candidate that has one; `LOST_HEAD` for a damaged object."""
        size = min(max(limit + 1, HEADS_PER_PAGE), PAGE)
        space = markers_of(prefix)
        found = self._marked(words, after, size) if words is not None else self._all(space, after, size)
        while page := list(islice(found, size)):
            records = self._calls.each(self._read, [head_of(candidate.thread_hash) for candidate in page])
            for candidate, kept in zip(page, records, strict=True):
                if isinstance(kept, Corrupt):
                    yield candidate.place, self._key_of(candidate, prefix), LOST_HEAD
                elif kept:
                    self._bury(candidate, kept.record)
                    if kept.record.head:
                        yield candidate.place, kept.record.thread, kept.record.head

    def _read(self, name: str) -> Kept | Corrupt | None:
        try:
            return self._heads.read(name)
        except Corrupt as error:
            return error

    def _key_of(self, candidate: Candidate, prefix: bytes) -> bytes:
        """The key of a thread whose head object is damaged: its marker holds it, and the hash proves it."""
        marker = candidate.place if candidate.place.startswith(SPACES) else markers_of(prefix) + candidate.thread_hash
        found = self._calls.get(marker)
        if found and hash_of(found[0]) == candidate.thread_hash:
            return found[0]
        return nameless(prefix, candidate.thread_hash)

    def _all(self, space: str, after: str, size: int) -> Iterator[Candidate]:
        for marker in self._calls.names(space, after, size):
            yield Candidate(marker, marker.rpartition("/")[2])

    def _marked(self, words: list[str], after: str, size: int) -> Iterator[Candidate]:
        """Threads with a mark of any of the words, each once."""
        lists = [self._marks(word, after, size) for word in dict.fromkeys(words)]
        for thread_hash, marks in groupby(merge(*lists, key=_hash), key=_hash):
            yield Candidate(thread_hash, thread_hash, tuple(marks))

    def _marks(self, word: str, after: str, size: int) -> Iterator[MarkName]:
        space = marks_of(word)
        names = self._calls.names(space, f"{space}{after}{LAST}" if after else "", size)
        return filter(None, map(MarkName.parse, names))

    def _bury(self, candidate: Candidate, record: Record) -> None:
        """Remove the marks that a crash has left. If that fails, the next listing tries again."""
        dead = [str(mark) for mark in candidate.marks if is_dead(mark, record.version, record.marks)]
        if dead:
            with suppress(StoreError):
                self._calls.each(self._calls.delete, dead)


def _hash(mark: MarkName) -> str:
    return mark.thread_hash
