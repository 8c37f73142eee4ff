"""The check of a whole store: every head against its listings, and every listing against the heads."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from holdfast.records.errors import HoldfastError
from holdfast.records.head import decode_head
from holdfast.records.identity import shown_id_of
from holdfast.stores.redis.errors import is_wrong_type
from holdfast.stores.redis.exchange import Request
from holdfast.stores.redis.keys import SHARDS, Keys, born, shard_of, space_of, words_of
from holdfast.stores.redis.wire import Wire

CHUNK = 500


def problems(wire: Wire, keys: Keys) -> list[str]:
    """What is wrong, a sentence each. Between its steps others may write: then a thread may be named that is sound."""
    counted: Counter[bytes] = Counter()
    found: list[str] = []
    for threads in _chunks(scan(wire, keys, b"t")):
        found += _of_threads(wire, keys, threads, counted)
    expiring = wire.read([Request(shard, (b"EXISTS", keys.expiring(shard))) for shard in range(SHARDS)])
    for names in _chunks(scan(wire, keys, b"i")):
        sizes = wire.read([Request(shard_in(name, keys), (b"ZCARD", name)) for name in names])
        for name, size in zip(names, sizes, strict=True):
            # Where threads expire, what is left of them in listings goes when they are met.
            if size < counted[name] or (size > counted[name] and not expiring[shard_in(name, keys)]):
                found.append(f"the listing {name!r} has {size} threads, and {counted[name]} say that they are in it")
    return found


def _of_threads(wire: Wire, keys: Keys, names: list[bytes], counted: Counter[bytes]) -> list[str]:
    found: list[str] = []
    kept = wire.read_each([Request(shard_in(name, keys), (b"HGET", name, b"h")) for name in names])
    wanted: list[tuple[bytes, bytes, bytes]] = []
    for name, encoded in zip(names, kept, strict=True):
        thread = _behind_tag(name)
        if is_wrong_type(encoded):
            found.append(f"thread {shown_id_of(thread)!r} is damaged: {name!r} is not a hash")
            continue
        try:
            head = decode_head(thread, encoded or b"")
        except HoldfastError as error:
            found.append(str(error))
            continue
        shard, member = shard_of(thread), born(head) + thread
        listings = [keys.listing(shard, space_of(thread), word) for word in words_of(head)]
        counted.update(listings)
        wanted += ((thread, listing, member) for listing in listings)
    requests = [Request(shard_in(listing, keys), (b"ZSCORE", listing, member)) for _, listing, member in wanted]
    for (thread, listing, _), score in zip(wanted, wire.read(requests) if requests else [], strict=True):
        if score is None:
            found.append(f"thread {thread!r} is missing in the listing {listing!r}")
    return found


def scan(wire: Wire, keys: Keys, what: bytes) -> Iterator[bytes]:
    """All keys of one sort, from every server."""
    pattern = b"".join(b"\\" + byte.encode() if byte in "*?[]\\^-" else byte.encode() for byte in keys.prefix)
    for shard in wire.one_shard_each():
        cursor = b"0"
        while True:
            scan = (b"SCAN", cursor, b"MATCH", pattern + b":{*}:" + what + b"*", b"COUNT", CHUNK)
            ((cursor, names),) = wire.read([Request(shard, scan)])
            yield from (name for name in names if _is_sort(name, keys, what))
            if cursor == b"0":
                break


def _is_sort(name: bytes, keys: Keys, what: bytes) -> bool:
    shard, brace, rest = name[len(keys.prefix.encode()) + 2 :].partition(b"}:")
    return bool(brace) and shard.isdigit() and len(shard) < 9 and int(shard) < SHARDS and rest.startswith(what)


def shard_in(name: bytes, keys: Keys) -> int:
    """The shard that a key of ours is in."""
    return int(name[len(keys.prefix.encode()) + 2 :].partition(b"}")[0])


def _behind_tag(name: bytes) -> bytes:
    return name.partition(b"}:")[2][1:]


def _chunks(names: Iterator[bytes]) -> Iterator[list[Any]]:
    """Each name once, some at a time: a scan may give the same one twice."""
    seen: set[bytes] = set()
    chunk: list[bytes] = []
    for name in names:
        if name not in seen:
            seen.add(name)
            chunk.append(name)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
