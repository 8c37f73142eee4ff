"""A batch of swaps as the parameters of one statement: a list per column. Items name their swap, from 1 on."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any

from msgspec.structs import astuple

from holdfast.records.rows import KEEP_ALL, Swap
from holdfast.stores.agenda import Entry, entry_of

KEY_BYTES = 16


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
    parameters = [demanded, *_heads(swaps), *_additions(swaps)]
    if any(swap.moves for swap in swaps):
        entries = [(swap.thread, entry_of(swap.head)) if swap.moves else None for swap in swaps]
        return "swap_and_move", [*parameters, *_removals(swaps), *entry_columns(entries)]
    removes = any(swap.drop is not KEEP_ALL or swap.consumed for swap in swaps)
    return ("swap_and_remove", [*parameters, *_removals(swaps)]) if removes else ("swap", parameters)


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


def place_of(thread: bytes, queue: str) -> bytes:
    """Return where a thread queues, or all threads with its namespace: in this namespace, in this queue."""
    return thread[: 1 + thread[0]] + name_of(queue)


def entry_columns(entries: Sequence[tuple[bytes, Entry | None] | None]) -> list[list[Any]]:
    """Return which items lose their entry, and those that have another one, as columns. None: it stays as it is."""
    gone = [item for item, each in enumerate(entries, 1) if each is not None and each[1] is None]
    moved = [
        (item, place_of(each[0], entry.queue), entry.route, entry.priority, entry.lane, entry.held, entry.due)
        for item, each in enumerate(entries, 1)
        if each is not None and (entry := each[1]) is not None
    ]
    return [gone, *_columns(7, moved)]


def _columns(count: int, records: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Turn records of `count` values into columns."""
    return [list(column) for column in zip(*records, strict=True)] or [[] for _ in range(count)]
