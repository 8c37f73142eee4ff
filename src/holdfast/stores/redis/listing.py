"""Pages of threads: the listings of all shards, merged by time of creation, newest first.

The listings of a shard change in the same script as its heads, so they are exact. A member is the time of creation and
the key of the thread. Heads are read afterwards, and compared with the listing that named them.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from holdfast.records.head import LOST_HEAD
from holdfast.records.words import Status
from holdfast.stores.backend import Listing, belongs, readable_head
from holdfast.stores.redis.errors import is_wrong_type
from holdfast.stores.redis.keys import EVERY, SHARDS, Keys, born, label_word, shard_of, status_word, words_of
from holdfast.stores.redis.wire import Request

SPARE = 8
"""How many threads more than its share are read from each listing, so that few must be read again."""
ATTEMPTS = 5

Read = Callable[[Sequence[Request]], list[Any]]


class Entry(NamedTuple):
    """A thread in a listing."""

    member: bytes
    shard: int
    listing: bytes
    word: bytes

    @property
    def thread(self) -> bytes:
        """The key of the thread."""
        return self.member[8:]


class _Source:
    """One listing of one shard, read in chunks of `count`."""

    def __init__(self, shard: int, listing: bytes, word: bytes, after: bytes, count: int) -> None:
        self._shard, self._listing, self._word, self._count = shard, listing, word, count
        self._newest = b"(" + after if after else b"+"
        self._found: deque[Entry] = deque()
        self._has_ended = False

    @property
    def is_empty(self) -> bool:
        """True if its next chunk must be read before the sources are merged further."""
        return not self._found and not self._has_ended

    def request(self) -> Request:
        """Ask for the next chunk."""
        page = (b"ZREVRANGEBYLEX", self._listing, self._newest, b"-", b"LIMIT", 0, self._count)
        return Request(self._shard, page)

    def receive(self, members: list[bytes]) -> None:
        """Add the chunk that was asked for."""
        self._found.extend(Entry(member, self._shard, self._listing, self._word) for member in members)
        self._has_ended = len(members) < self._count
        if members:
            self._newest = b"(" + members[-1]

    def walk(self, refill: "Callable[[list[_Source]], None]") -> Iterator[Entry]:
        """Yield all entries, newest first."""
        while self._found or not self._has_ended:
            if self._found:
                yield self._found.popleft()
            else:
                refill([self])


class Pages:
    """The listings of one store."""

    def __init__(self, read: Read, read_each: Read, keys: Keys) -> None:
        self._read = read
        self._read_each = read_each
        self._keys = keys

    def page(
        self,
        prefix: bytes,
        statuses: Collection[str],
        labels: Sequence[Collection[bytes]],
        cursor: str | None,
        limit: int,
    ) -> Listing:
        """Return a page of threads. Two round trips, if the threads are spread evenly and most match."""
        after = b"" if cursor is None else bytes.fromhex(cursor)
        entries = self._merged(prefix, _words(statuses, labels), after, limit // SHARDS + SPARE)
        found: list[tuple[Entry, bytes]] = []
        while len(found) <= limit:
            some = list(islice(entries, limit + 1 - len(found)))
            if not some:
                break
            for entry, encoded in self._heads(some):
                # A thread whose name was damaged must not be skipped as one of another namespace.
                is_ours = encoded == LOST_HEAD or entry.thread.startswith(prefix)
                if is_ours and belongs(entry.thread, encoded, statuses, labels):
                    found.append((entry, encoded))
        heads = [(entry.thread, encoded) for entry, encoded in found[:limit]]
        return Listing(heads, found[limit - 1][0].member.hex() if len(found) > limit else None)

    def counts(self, prefix: bytes) -> dict[str, int] | None:
        """Return how many threads are listed under each status; None if the listings cannot tell.

        They cannot for a part of a namespace, nor where threads expire: those stay listed until a page meets them.
        """
        if prefix and len(prefix) != 1 + prefix[0]:
            return None
        asked = [(status.value, shard, space) for shard, space in self._spaces(prefix) for status in Status]
        sizes = [
            Request(shard, (b"ZCARD", self._keys.listing(shard, space, status_word(status))))
            for status, shard, space in asked
        ]
        expiring = [Request(shard, (b"EXISTS", self._keys.expiring(shard))) for shard in range(SHARDS)]
        replies = self._read([*expiring, *sizes])
        if any(replies[:SHARDS]):
            return None
        found: Counter[str] = Counter()
        for (status, *_), size in zip(asked, replies[SHARDS:], strict=True):
            found[status] += size
        return {status: count for status, count in found.items() if count}

    def _merged(self, prefix: bytes, words: Sequence[bytes], after: bytes, count: int) -> Iterator[Entry]:
        """Yield what is listed under any of the words, newest first, each once. Read all listings at the same time."""
        sources = [
            _Source(shard, self._keys.listing(shard, space, word), word, after, count)
            for shard, space in self._spaces(prefix)
            for word in words
        ]

        def refill(empty: list[_Source]) -> None:
            while asked := [source for source in empty if source.is_empty]:
                for source, members in zip(asked, self._read([each.request() for each in asked]), strict=True):
                    source.receive(members)

        refill(sources)
        last = b""
        for entry in merge(*(source.walk(refill) for source in sources), reverse=True):
            if entry.member != last:
                yield entry
            last = entry.member

    def _spaces(self, prefix: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield where to look: in the namespace that a prefix begins with, or without a prefix in all of them."""
        if prefix:
            yield from ((shard, prefix[: 1 + prefix[0]]) for shard in range(SHARDS))
            return
        asked = [Request(shard, (b"SMEMBERS", self._keys.spaces(shard))) for shard in range(SHARDS)]
        for shard, spaces in enumerate(self._read(asked)):
            yield from ((shard, space) for space in sorted(spaces))

    def _heads(self, entries: list[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Yield the heads of these entries, in order. An entry that is no longer listed is left out."""
        asked = [
            Request(entry.shard, (b"HGET", self._keys.thread(entry.shard, entry.thread), b"h")) for entry in entries
        ]
        for entry, encoded in zip(entries, self._read_each(asked), strict=True):
            if is_wrong_type(encoded):
                yield entry, LOST_HEAD
                continue
            found = encoded if _agrees(entry, encoded) else self._again(entry)
            if found is not None:
                yield entry, found

    def _again(self, entry: Entry) -> bytes | None:
        """Read again a head that differs from its listing: the thread has changed, expired, or is damaged."""
        key, expiring = self._keys.thread(entry.shard, entry.thread), self._keys.expiring(entry.shard)
        for _ in range(ATTEMPTS):
            listed = Request(entry.shard, (b"ZSCORE", entry.listing, entry.member))
            expires = Request(entry.shard, (b"EXISTS", expiring))
            request = Request(entry.shard, (b"HGET", key, b"h"))
            score, is_expiring, encoded = self._read([listed, expires, request])
            if _agrees(entry, encoded):
                return bytes(encoded)
            if score is None:
                return None
            if is_expiring and _has_outlived(entry, encoded):
                self._read([Request(entry.shard, (b"ZREM", entry.listing, entry.member))])
                return None
        return LOST_HEAD


def _has_outlived(entry: Entry, encoded: bytes | None) -> bool:
    """True if the listed thread has expired: its key is free, or a newer thread has it."""
    head = None if encoded is None else readable_head(entry.thread, encoded)
    return head is None or born(head) != entry.member[:8]


def _words(statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> list[bytes]:
    """Return the words to look under: those of the condition that most likely excludes most threads."""
    if labels:
        return [label_word(token) for token in labels[0]]
    return [status_word(status) for status in statuses] if statuses else [EVERY]


def _agrees(entry: Entry, encoded: bytes | None) -> bool:
    """True if the head of a listed thread agrees with the listing, or cannot be read."""
    if encoded is None or shard_of(entry.thread) != entry.shard:
        return False
    head = readable_head(entry.thread, encoded)
    return head is None or (born(head) == entry.member[:8] and entry.word in words_of(head))
