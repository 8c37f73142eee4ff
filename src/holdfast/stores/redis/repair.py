"""Compare all heads with all listings, and remove threads from listings that their heads do not name."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from holdfast.records.errors import HoldfastError
from holdfast.records.head import decode_head
from holdfast.records.identity import shown_id_of
from holdfast.records.words import Status
from holdfast.stores.backend import readable_head
from holdfast.stores.redis.errors import is_wrong_type
from holdfast.stores.redis.keys import EVERY, SHARDS, Keys, born, shard_of, space_of, status_word, words_of
from holdfast.stores.redis.wire import Request, Wire

CHUNK = 500


class Repair:
    """Checks and repairs of one store. Each of them may read all keys."""

    def __init__(self, wire: Wire, keys: Keys) -> None:
        self._wire = wire
        self._keys = keys

    def problems(self) -> list[str]:
        """Return what is wrong, a sentence each. May name a sound thread if it is written meanwhile."""
        counted: Counter[bytes] = Counter()
        found: list[str] = []
        for names in _chunks(self._scan(b"t")):
            found += self._problems_of(names, counted)
        keys, wire = self._keys, self._wire
        expiring = wire.read([Request(shard, (b"EXISTS", keys.expiring(shard))) for shard in range(SHARDS)])
        for names in _chunks(self._scan(b"i")):
            sizes = wire.read([Request(keys.shard_in(name), (b"ZCARD", name)) for name in names])
            for name, size in zip(names, sizes, strict=True):
                # An expired thread stays in a listing until a listing of threads meets it.
                if size < counted[name] or (size > counted[name] and not expiring[keys.shard_in(name)]):
                    found.append(f"the listing {name!r} has {size} threads, but {counted[name]} heads name it")
        return found

    def _problems_of(self, names: list[bytes], counted: Counter[bytes]) -> list[str]:
        """Return what is wrong with the threads of these keys; count how many belong into each listing."""
        keys, found = self._keys, list[str]()
        kept = self._wire.read_each([Request(keys.shard_in(name), (b"HGET", name, b"h")) for name in names])
        wanted: list[tuple[bytes, bytes, bytes]] = []
        for name, encoded in zip(names, kept, strict=True):
            thread = name.partition(b"}:")[2][1:]
            if is_wrong_type(encoded):
                found.append(f"thread {shown_id_of(thread)!r} is damaged: {name!r} is not a hash")
                continue
            try:
                head = decode_head(thread, encoded or b"")
            except HoldfastError as error:
                found.append(str(error))
                continue
            listings = [keys.listing(shard_of(thread), space_of(thread), word) for word in words_of(head)]
            counted.update(listings)
            wanted += ((thread, listing, born(head) + thread) for listing in listings)
        requests = [Request(keys.shard_in(listing), (b"ZSCORE", listing, member)) for _, listing, member in wanted]
        scores = self._wire.read(requests) if requests else []
        return found + [
            f"thread {thread!r} is missing in the listing {listing!r}"
            for (thread, listing, _), score in zip(wanted, scores, strict=True)
            if score is None
        ]

    def unlist(self, thread: bytes) -> None:
        """Remove a thread from all listings of its namespace and shard: its head cannot say which list it."""
        shard, space = shard_of(thread), space_of(thread)
        listings = [(at, name) for at, name in self._listings_of(space) if at == shard]
        found = [(name, member) for name, member in self._members(listings) if member[8:] == thread]
        if found:
            self._wire.read([Request(shard, (b"ZREM", name, member)) for name, member in found])

    def drop_misplaced(self, thread: bytes) -> None:
        """Remove what is listed under this thread's id, and is not the thread that its key leads to."""
        space, keys = space_of(thread), self._keys
        words = (EVERY, *map(status_word, Status))
        listings = [(shard, keys.listing(shard, space, word)) for shard in range(SHARDS) for word in words]
        strays = {member for _, member in self._members(listings) if _is_shown_as(member[8:], thread)}
        if not strays or self._is_alive(thread):  # asked last: if it was created meanwhile, they are its own
            return
        for shard, name in self._listings_of(space):
            self._wire.read([Request(shard, (b"ZREM", name, *strays))])
        others = [shard for shard in range(SHARDS) if shard != shard_of(thread)]
        gone = [(shard, (keys.thread(shard, thread), keys.posts(shard, thread))) for shard in others]
        self._wire.read([Request(shard, (b"DEL", *names)) for shard, names in gone])

    def _is_alive(self, thread: bytes) -> bool:
        """True if the thread's own head lists it."""
        shard = shard_of(thread)
        (encoded,) = self._wire.read([Request(shard, (b"HGET", self._keys.thread(shard, thread), b"h"))])
        head = readable_head(thread, encoded or b"")
        return head is not None and bool(words_of(head))

    def _listings_of(self, space: bytes) -> set[tuple[int, bytes]]:
        """Return all listings of a namespace, also those by label, each with its shard."""
        found = ((self._keys.shard_in(name), name) for name in self._scan(b"i"))
        return {(shard, name) for shard, name in found if name.startswith(self._keys.listing(shard, space, b""))}

    def _members(self, listings: Sequence[tuple[int, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Yield each listing with each of its members. All listings are read at the same time."""
        waiting = [(shard, listing, b"+") for shard, listing in listings]
        while waiting:
            asked = [(b"ZREVRANGEBYLEX", name, newest, b"-", b"LIMIT", 0, CHUNK) for _, name, newest in waiting]
            replies = self._wire.read([Request(shard, each) for (shard, *_), each in zip(waiting, asked, strict=True)])
            following: list[tuple[int, bytes, bytes]] = []
            for (shard, listing, _), members in zip(waiting, replies, strict=True):
                yield from ((listing, member) for member in members)
                if len(members) == CHUNK:
                    following.append((shard, listing, b"(" + members[-1]))
            waiting = following

    def _scan(self, kind: bytes) -> Iterator[bytes]:
        """Yield all keys of one kind, from every server; a key may come twice."""
        pattern = self._keys.pattern(kind)
        for shard in self._wire.one_shard_each():
            cursor = b"0"
            while True:
                scan = (b"SCAN", cursor, b"MATCH", pattern, b"COUNT", CHUNK)
                ((cursor, names),) = self._wire.read([Request(shard, scan)])
                yield from (name for name in names if self._keys.is_kind(name, kind))
                if cursor == b"0":
                    break


def _is_shown_as(listed: bytes, thread: bytes) -> bool:
    """True if a listing shows this key under the thread's id: it is the same, or of no thread of the namespace."""
    return listed == thread or (not listed.startswith(space_of(thread)) and shown_id_of(listed) == shown_id_of(thread))


def _chunks(names: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield each name once, in lists of up to `CHUNK`."""
    seen: set[bytes] = set()
    while some := list(islice(names, CHUNK)):
        new = [name for name in dict.fromkeys(some) if name not in seen]
        seen.update(new)
        if new:
            yield new
