"""A swap as a request: which keys it touches, and what is said to the script.

A script names every key that it uses. While a cluster moves a slot, one that uses several is refused until all of them
are on the same side; so each names as few as it can.
"""

from holdfast.records.head import Head
from holdfast.records.rows import KEEP_ALL, Swap
from holdfast.stores.backend import readable_head
from holdfast.stores.redis.exchange import Request
from holdfast.stores.redis.keys import Keys, born, pack_row, pack_words, shard_of, space_of, words_of
from holdfast.stores.redis.scripts import script

Place = tuple[int, str, tuple[bytes, ...]]
"""What decides where a thread is listed: when it was made, its status, its labels."""


class Swaps:
    """Makes requests of swaps, for one store."""

    def __init__(self, keys: Keys, life_ms: int | None, *, keep_pinned: bool = True) -> None:
        self._keys = keys
        self._life = life_ms
        self._keep_pinned = keep_pinned
        self._swap = script("swap")

    def request(self, swap: Swap, *, persist: bool = False) -> Request:
        """The request. `persist`: the thread may have a time to live, which it is to lose."""
        thread, head, shard = swap.thread, swap.head, shard_of(swap.thread)
        before = _before(swap)
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
        said = (self._life_of(head), dropped, space_of(thread) if is_new else b"", len(left))
        members = (born(before) + thread, born(head) + thread)
        return self._swap.request(shard, keys, (swap.expected, *said, *members, *_fields(swap)))

    def _moves(self, thread: bytes, before: Head, after: Head) -> tuple[list[bytes], list[bytes]]:
        """The listings that a thread leaves, and those that it enters."""
        if _place(before) == _place(after):
            return [], []
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
        """How long the thread may live without a further write. It stays while a lease may stand, or a pin keeps it."""
        if self._life is None or (self._keep_pinned and head.marks.pinned):
            return b""
        lease = (head.expires_at - head.updated_at) // 1000 if head.owner else 0
        return b"%d" % max(self._life, lease)


def _before(swap: Swap) -> Head:
    """The head that is expected; an empty one if it cannot be read: such a thread is in no listing any more."""
    return (readable_head(swap.thread, swap.expected) if swap.expected else None) or Head()


def _place(head: Head) -> Place:
    status = head.listed_as
    return (head.created_at, status, head.labels) if status else (0, "", ())


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
    """What a swap takes away, as one value; empty for most."""
    drop = swap.drop
    if drop == KEEP_ALL and not swap.consumed:
        return b""
    bounds = pack_words(b"%d" % seq for bounds in drop.rows for seq in bounds)
    posts = pack_words(key.encode() for key in swap.consumed)
    return pack_words([b"everything" if drop.everything else b"rows", bounds, pack_words(drop.blobs), posts])
