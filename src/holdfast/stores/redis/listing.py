"""Pages of threads: the listings of all shards, merged by time of creation, newest first.

The listings of a shard change in the same script as its heads, so they are exact. A member is the time of creation and
the key of the thread; it is compared with the head it comes with.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import merge
from typing import Any

from holdfast.records.errors import Corrupt
from holdfast.records.head import decode_head
from holdfast.stores.backend import Listing, matches
from holdfast.stores.redis.keys import EVERY, SHARDS, Keys, born, label_word, pack_words, status_word
from holdfast.stores.redis.scripts import script
from holdfast.stores.redis.wire import Request

SPARE = 8
"""How many threads more than its share are asked of each listing at once, so that hardly any has to be asked again."""

Read = Callable[[Sequence[Request]], list[Any]]


class Filter:
    """A listing to walk along, any of several words; and the conditions that its threads are tried by."""

    def __init__(self, statuses: Collection[str], labels: Sequence[Collection[bytes]]) -> None:
        self.statuses, self.labels = statuses, labels
        conditions = [[label_word(token) for token in choices] for choices in labels]
        if statuses:
            conditions.append([status_word(status) for status in statuses])
        self.words = conditions[0] if conditions else [EVERY]
        self.arguments = tuple(pack_words(choices) for choices in conditions[1:])


class _Source:
    """One listing of one shard, read in chunks."""

    def __init__(self, shard: int, key: bytes, after: bytes, arguments: tuple[bytes, ...]) -> None:
        self._shard, self._key, self._after, self._arguments = shard, key, after, arguments
        self._found: deque[tuple[bytes, bytes]] = deque()
        self._ended = False

    @property
    def is_empty(self) -> bool:
        """True if it must be asked before anything is taken from any."""
        return not self._found and not self._ended

    def request(self, count: int) -> Request:
        """Ask for the next chunk."""
        return script("list").request(self._shard, (self._key,), (self._after, count, *self._arguments))

    def receive(self, reply: list[bytes]) -> None:
        """The chunk that was asked for."""
        self._found.extend(zip(reply[1::2], reply[2::2], strict=True))
        self._ended, self._after = not reply[0], reply[0]

    def walk(self, refill: "Callable[[list[_Source]], None]") -> Iterator[tuple[bytes, bytes]]:
        """All it has, newest first."""
        while True:
            while self._found:
                yield self._found.popleft()
            if self._ended:
                return
            refill([self])


def page(read: Read, keys: Keys, prefix: bytes, wanted: Filter, cursor: str | None, limit: int) -> Listing:
    """A page of threads. One round trip, if the threads are spread evenly."""
    after = b"" if cursor is None else bytes.fromhex(cursor)
    sources = [
        _Source(shard, keys.listing(shard, space, word), after, wanted.arguments)
        for shard, space in _spaces(read, keys, prefix)
        for word in wanted.words
    ]
    found: list[tuple[bytes, bytes]] = []
    for member, encoded in _merged(read, sources, limit // SHARDS + SPARE):
        thread = member[8:]
        if not thread.startswith(prefix) or (found and found[-1][0] == member):
            continue
        _check(member, encoded, wanted)
        found.append((member, encoded))
        if len(found) > limit:
            break
    heads = [(member[8:], encoded) for member, encoded in found[:limit]]
    return Listing(heads, found[limit - 1][0].hex() if len(found) > limit else None)


def _spaces(read: Read, keys: Keys, prefix: bytes) -> Iterator[tuple[int, bytes]]:
    """Where to look: a prefix is a namespace, with more behind it or not; without one, in all there are."""
    if prefix:
        yield from ((shard, prefix[: 1 + prefix[0]]) for shard in range(SHARDS))
        return
    for shard, spaces in enumerate(read([Request(at, (b"SMEMBERS", keys.spaces(at))) for at in range(SHARDS)])):
        yield from ((shard, space) for space in sorted(spaces))


def _merged(read: Read, sources: list[_Source], count: int) -> Iterator[tuple[bytes, bytes]]:
    """What the sources have, newest first. All are asked at once; later, each when it has run out."""

    def refill(empty: list[_Source]) -> None:
        while asked := [source for source in empty if source.is_empty]:
            for source, reply in zip(asked, read([source.request(count) for source in asked]), strict=True):
                source.receive(reply)

    refill(sources)
    return merge(*(source.walk(refill) for source in sources), reverse=True)


def _check(member: bytes, encoded: bytes, wanted: Filter) -> None:
    """A thread is found by its listing: that must say what its head says."""
    thread = member[8:]
    head = decode_head(thread, encoded) if encoded else None
    if head is None or born(head) != member[:8] or not matches(head, wanted.statuses, wanted.labels):
        record = f"head of {thread[1 + thread[0] :].decode(errors='replace')!r}"
        raise Corrupt("a listing in Redis is damaged: a head is missing, or differs from it", record=record)
