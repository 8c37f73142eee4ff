"""A batch of swaps as the parameters of one statement: a list per column. Items name their swap, from 1 on."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any

from msgspec.structs import astuple

from holdfast.records.rows import KEEP_ALL, Swap
from holdfast.stores.agenda import Entry, entry_of, place_of

KEY_BYTES = 16
NOBODY: Mapping[int, Collection[str]] = {}


def key_of(thread: bytes) -> bytes:
    """Return the key of a thread: a hash, short and of a fixed length."""
    return sha256(thread).digest()[:KEY_BYTES]


def name_of(post: str) -> bytes:
    """Return a message's key as bytes: any str, in the order of Python's."""
    return post.encode("utf-8", "surrogatepass")


def call_for(swaps: Sequence[Swap], *, demanded: bool) -> tuple[str, Sequence[Any]]:
    """Return the name of the statement that makes these swaps, and its parameters."""
    if len(swaps) == 1 and is_lone_row(swaps[0]):
        swap, head = swaps[0], swaps[0].head
        named = (demanded, key_of(swap.thread), swap.thread, swap.expected, swap.replacement)
        return "swap_row", (*named, head.listed_as, list(head.labels), *astuple(swap.rows[0]))
    moves = {at: (swap.thread, entry_of(swap.head)) for at, swap in enumerate(swaps, 1) if swap.moves}
    listeners = {at: swap.heard for at, swap in enumerate(swaps, 1) if swap.moves and swap.heard is not None}
    changes = (*_heads(swaps), *_additions(swaps), *_removals(swaps), *moves_columns(moves, listeners))
    return "swap", (demanded, *changes)


def is_lone_row(swap: Swap) -> bool:
    """True for the most common swap: one row onto an existing head, which leaves the agenda as it is."""
    is_plain = not (swap.blobs or swap.consumed or swap.moves) and swap.drop is KEEP_ALL
    return len(swap.rows) == 1 and bool(swap.expected) and is_plain


def _heads(swaps: Sequence[Swap]) -> list[list[Any]]:
    heads = [(key_of(swap.thread), swap.thread, swap.expected, swap.replacement, swap.head.listed_as) for swap in swaps]
    tokens = [token for swap in swaps for token in swap.head.labels]
    return [*_columns(5, heads), tokens, list(accumulate(len(swap.head.labels) for swap in swaps))]


def _additions(swaps: Sequence[Swap]) -> list[list[Any]]:
    numbered = list(enumerate(swaps, 1))
    rows = [(item, *astuple(row)) for item, swap in numbered for row in swap.rows]
    blobs = [(item, *blob) for item, swap in numbered for blob in swap.blobs.items()]
    return [*_columns(6, rows), *_columns(3, blobs)]


def _removals(swaps: Sequence[Swap]) -> list[list[Any]]:
    numbered = list(enumerate(swaps, 1))
    emptied = [item for item, swap in numbered if swap.drop.everything]
    ranges = [(item, *bounds) for item, swap in numbered for bounds in swap.drop.rows]
    blobs = [(item, blob) for item, swap in numbered for blob in swap.drop.blobs]
    posts = [(item, name_of(post)) for item, swap in numbered for post in swap.consumed]
    return [emptied, *_columns(3, ranges), *_columns(2, blobs), *_columns(2, posts)]


def moves_columns(
    moves: Mapping[int, tuple[bytes, Entry | None]], listeners: Mapping[int, Collection[str]] = NOBODY
) -> list[list[Any]]:
    """Return how entries change, as columns: the items that lose theirs, those that have another, what was heard."""
    gone = [item for item, (_, entry) in moves.items() if entry is None]
    moved = [
        (item, place_of(thread, entry.queue), entry.route, entry.priority, entry.lane, entry.held, entry.due)
        for item, (thread, entry) in moves.items()
        if entry is not None
    ]
    heard = [(item, name_of(post)) for item, posts in listeners.items() for post in posts]
    return [gone, *_columns(7, moved), list(listeners), *_columns(2, heard)]


def _columns(count: int, records: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Turn records of `count` values into columns."""
    return [list(column) for column in zip(*records, strict=True)] or [[] for _ in range(count)]
