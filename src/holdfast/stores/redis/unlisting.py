"""Taking a thread out of its listings where its head cannot be read, which alone says in which ones it is."""

from collections.abc import Iterator

from holdfast.stores.redis.checking import CHUNK, scan
from holdfast.stores.redis.keys import Keys, shard_of, space_of
from holdfast.stores.redis.wire import Request, Wire


def unlist(wire: Wire, keys: Keys, thread: bytes) -> None:
    """Search all listings of the thread's namespace and shard, and remove it from each."""
    shard = shard_of(thread)
    start = keys.listing(shard, space_of(thread), b"")
    for listing in {name for name in scan(wire, keys, b"i") if name.startswith(start)}:
        found = [member for member in _members(wire, shard, listing) if member[8:] == thread]
        if found:
            wire.read([Request(shard, (b"ZREM", listing, *found))])


def _members(wire: Wire, shard: int, listing: bytes) -> Iterator[bytes]:
    newest = b"+"
    while True:
        request = Request(shard, (b"ZREVRANGEBYLEX", listing, newest, b"-", b"LIMIT", 0, CHUNK))
        (members,) = wire.read([request])
        yield from members
        if len(members) < CHUNK:
            return
        newest = b"(" + members[-1]
