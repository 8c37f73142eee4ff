"""Taking a thread out of listings that its head does not tell: it cannot be read, or somebody else put it there."""

from collections.abc import Iterator, Sequence

from holdfast.records.identity import shown_id_of
from holdfast.records.words import Status
from holdfast.stores.backend import readable_head
from holdfast.stores.redis.checking import CHUNK, scan, shard_in
from holdfast.stores.redis.exchange import Request
from holdfast.stores.redis.keys import EVERY, SHARDS, Keys, shard_of, space_of, status_word, words_of
from holdfast.stores.redis.wire import Wire

Place = tuple[int, bytes]
"""A listing, and the shard it is in."""


def unlist(wire: Wire, keys: Keys, thread: bytes) -> None:
    """Search all listings of the thread's namespace and shard, and remove it from each."""
    shard = shard_of(thread)
    start = keys.listing(shard, space_of(thread), b"")
    listings = {(shard, name) for name in scan(wire, keys, b"i") if name.startswith(start)}
    found = [(listing, member) for listing, member in _members(wire, [*listings]) if member[8:] == thread]
    if found:
        wire.read([Request(shard, (b"ZREM", listing, member)) for listing, member in found])


def _members(wire: Wire, listings: Sequence[Place]) -> Iterator[tuple[bytes, bytes]]:
    """Each listing with each of its members. All listings are read at the same time."""
    waiting = [(shard, listing, b"+") for shard, listing in listings]
    while waiting:
        replies = wire.read(
            [
                Request(shard, (b"ZREVRANGEBYLEX", listing, newest, b"-", b"LIMIT", 0, CHUNK))
                for shard, listing, newest in waiting
            ]
        )
        following: list[tuple[int, bytes, bytes]] = []
        for (shard, listing, _), members in zip(waiting, replies, strict=True):
            yield from ((listing, member) for member in members)
            if len(members) == CHUNK:
                following.append((shard, listing, b"(" + members[-1]))
        waiting = following


def drop_misplaced(wire: Wire, keys: Keys, thread: bytes) -> None:
    """Remove what is listed under this thread's id, and is not the thread that its key leads to."""
    space = space_of(thread)
    listings = [
        (shard, keys.listing(shard, space, word))
        for shard in range(SHARDS)
        for word in (EVERY, *map(status_word, Status))
    ]
    strays = {member for _, member in _members(wire, listings) if _is_shown_as(member[8:], thread)}
    if strays and not _is_alive(wire, keys, thread):  # asked last: if it was made meanwhile, they are its own
        _drop_members(wire, keys, space, strays)
        others = [shard for shard in range(SHARDS) if shard != shard_of(thread)]
        wire.read([Request(shard, (b"DEL", keys.thread(shard, thread), keys.posts(shard, thread))) for shard in others])


def _is_alive(wire: Wire, keys: Keys, thread: bytes) -> bool:
    """True if the thread is listed by its head."""
    shard = shard_of(thread)
    (encoded,) = wire.read([Request(shard, (b"HGET", keys.thread(shard, thread), b"h"))])
    head = readable_head(thread, encoded or b"")
    return head is not None and bool(words_of(head))


def _is_shown_as(listed: bytes, thread: bytes) -> bool:
    """True if a listing shows this key under the thread's id: it is the same, or that of no thread of the namespace."""
    return listed == thread or (not listed.startswith(space_of(thread)) and shown_id_of(listed) == shown_id_of(thread))


def _drop_members(wire: Wire, keys: Keys, space: bytes, members: set[bytes]) -> None:
    """Remove members from all listings of a namespace, those by label too."""
    for listing in {*scan(wire, keys, b"i")}:
        shard = shard_in(listing, keys)
        if listing.startswith(keys.listing(shard, space, b"")):
            wire.read([Request(shard, (b"ZREM", listing, *members))])
