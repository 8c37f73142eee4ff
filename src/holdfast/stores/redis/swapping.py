"""A swap as a request: which keys it uses, and the arguments of its script.

A script names every key that it uses. While a cluster moves a slot, it refuses a script with several keys until all of
them have moved; so a script names as few as it can.
"""

from holdfast.records.head import Head
from holdfast.records.rows import KEEP_ALL, Swap
from holdfast.stores.backend import readable_head
from holdfast.stores.redis.keys import Keys, born, pack_row, pack_words, shard_of, space_of, words_of
from holdfast.stores.redis.scripts import script
from holdfast.stores.redis.wire import Request


class Swaps:
    """Makes requests from swaps, for one store."""

    def __init__(self, keys: Keys, life_ms: int | None, *, keep_pinned: bool = True) -> None:
        self._keys = keys
        self._life = life_ms
        self._keep_pinned = keep_pinned
        self._swap = script("swap")

    def request(self, swap: Swap, *, persist: bool = False) -> Request:
        """Return the request for a swap. With `persist`, it also removes the thread's time to live."""
        thread, head, shard = swap.thread, swap.head, shard_of(swap.thread)
        # A thread whose head cannot be read is in no listing any more.
        before = (readable_head(thread, swap.expected) if swap.expected else None) or Head()
        left, entered = self._moves(thread, before, head)
        dropped, key = _dropped(swap), self._keys.thread(shard, thread)
        is_new = bool(entered) and not before.listed_as
        keys = (
            key,
            self._keys.posts(shard, thread) if dropped or persist or self._life is not None else key,
            self._keys.spaces(shard) if is_new else key,
            self._keys.expiring(shard) if self._life is not None else key,
            *left,
            *entered,
        )
        options = (self._life_of(head), dropped, space_of(thread) if is_new else b"", len(left))
        members = (born(before) + thread, born(head) + thread)
        return self._swap.request(shard, keys, (swap.expected, *options, *members, *_fields(swap)))

    def _moves(self, thread: bytes, before: Head, after: Head) -> tuple[list[bytes], list[bytes]]:
        """Return the listings that a thread leaves, and those that it enters."""
        shard, space = shard_of(thread), space_of(thread)
        old, new = words_of(before), words_of(after)
        has_moved = before.created_at != after.created_at
        left = [word for word in old if has_moved or word not in new]
        entered = [word for word in new if has_moved or word not in old]
        return (
            [self._keys.listing(shard, space, word) for word in dict.fromkeys(left)],
            [self._keys.listing(shard, space, word) for word in dict.fromkeys(entered)],
        )

    def _life_of(self, head: Head) -> bytes:
        """Return how long the thread may live without a further write; empty if a pin keeps it. A lease extends it."""
        if self._life is None or (self._keep_pinned and head.marks.pinned):
            return b""
        lease = (head.expires_at - head.updated_at) // 1000 if head.owner else 0
        return b"%d" % max(self._life, lease)


def _fields(swap: Swap) -> list[bytes]:
    fields = [b"h", swap.replacement]
    if swap.rows:
        fields += (b"t", b"%d" % max([row.seq for row in swap.rows]))
        for row in swap.rows:
            fields += (b"r%d" % row.seq, pack_row(row))
    for blob, data in swap.blobs.items():
        fields += (b"b" + blob, data)
    return fields


def _dropped(swap: Swap) -> bytes:
    """Pack what a swap drops; empty for most."""
    drop = swap.drop
    if drop == KEEP_ALL and not swap.consumed:
        return b""
    bounds = pack_words(b"%d" % seq for bounds in drop.rows for seq in bounds)
    posts = pack_words(key.encode() for key in swap.consumed)
    return pack_words([b"everything" if drop.everything else b"rows", bounds, pack_words(drop.blobs), posts])


def permission_trials(keys: Keys) -> list[Request]:
    """Return every command that a script uses after its first change, on keys that hold nothing.

    They are tried at open, because a script that an ACL stops in the middle is not undone. Each type has its own key:
    another process may try the same at this moment.
    """
    text, fields, members, ranked = (keys.base(0) + name for name in (b"w", b"wh", b"ws", b"wz"))
    commands: list[tuple[bytes | int, ...]] = [
        (b"SETNX", text, 1),
        (b"PEXPIRE", text, 1),
        *((command, text) for command in (b"PERSIST", b"PTTL", b"EXISTS", b"DEL")),
        (b"HSETNX", fields, b"w", 1),
        (b"HSET", fields, b"w", 1),
        (b"HDEL", fields, b"w"),
        (b"SADD", members, b"w"),
        (b"DEL", members),
        (b"ZADD", ranked, b"XX", 0, b"w"),
        (b"ZREM", ranked, b"w"),
        (b"ZRANGEBYLEX", ranked, b"-", b"+"),
        (b"ZLEXCOUNT", ranked, b"-", b"+"),
        (b"ZRANGEBYSCORE", ranked, 0, 0),
        (b"ZCARD", ranked),
        (b"HGET", fields, b"w"),
        (b"MULTI",),  # if the server refused it, it would execute the commands of a batch one by one
        (b"EXEC",),
    ]
    return [Request(0, command) for command in commands]
