"""A batch of swaps as the parameters of one statement: a list for each column, and one with the number of the swap."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import astuple

from holdfast.records.rows import KEEP_ALL, Swap

KEY_BYTES = 16


def key_of(thread: bytes) -> bytes:
    """What a thread is found by: a hash, short and of one length."""
    return sha256(thread).digest()[:KEY_BYTES]


def name_of(post: str) -> bytes:
    """A message's key as bytes: any str, in the order of Python's."""
    return post.encode("utf-8", "surrogatepass")


def call_for(swaps: Sequence[Swap], *, demanded: bool) -> tuple[str, Sequence[Any]]:
    """Which statement makes these swaps, and its parameters."""
    if len(swaps) == 1 and is_lone_row(swaps[0]):
        return "swap_row", _lone_row(swaps[0], demanded=demanded)
    removes = any(swap.drop is not KEEP_ALL or swap.consumed for swap in swaps)
    common = [demanded, *_heads(swaps), *_rows(swaps), *_blobs(swaps)]
    return ("swap_and_remove", [*common, *_removals(swaps)]) if removes else ("swap", common)


def is_lone_row(swap: Swap) -> bool:
    """True for the most common swap: one row onto an existing head."""
    return len(swap.rows) == 1 and bool(swap.expected) and not (swap.blobs or swap.consumed) and swap.drop is KEEP_ALL


def _lone_row(swap: Swap, *, demanded: bool) -> Sequence[Any]:
    head, row, thread = swap.head, swap.rows[0], swap.thread
    listed = head.listed_as, list(head.labels)
    return demanded, key_of(thread), thread, swap.expected, swap.replacement, *listed, *astuple(row)


def _heads(swaps: Sequence[Swap]) -> list[list[Any]]:
    tokens: list[bytes] = []
    ends: list[int] = []
    for swap in swaps:
        tokens += swap.head.labels
        ends.append(len(tokens))
    return [
        [key_of(swap.thread) for swap in swaps],
        [swap.thread for swap in swaps],
        [swap.expected for swap in swaps],
        [swap.replacement for swap in swaps],
        [swap.head.listed_as for swap in swaps],
        tokens,
        ends,
    ]


def _rows(swaps: Sequence[Swap]) -> list[list[Any]]:
    rows = [(item, row) for item, swap in enumerate(swaps, 1) for row in swap.rows]
    return [
        [item for item, _ in rows],
        [row.seq for _, row in rows],
        [row.base for _, row in rows],
        [row.digest for _, row in rows],
        [row.header for _, row in rows],
        [row.body for _, row in rows],
    ]


def _blobs(swaps: Sequence[Swap]) -> list[list[Any]]:
    return [
        [item for item, swap in enumerate(swaps, 1) for _ in swap.blobs],
        [blob for swap in swaps for blob in swap.blobs],
        [data for swap in swaps for data in swap.blobs.values()],
    ]


def _removals(swaps: Sequence[Swap]) -> list[list[Any]]:
    numbered = list(enumerate(swaps, 1))
    return [
        [item for item, swap in numbered if swap.drop.everything],
        [item for item, swap in numbered for _ in swap.drop.rows],
        [start for swap in swaps for start, _ in swap.drop.rows],
        [stop for swap in swaps for _, stop in swap.drop.rows],
        [item for item, swap in numbered for _ in swap.drop.blobs],
        [blob for swap in swaps for blob in swap.drop.blobs],
        [item for item, swap in numbered for _ in swap.consumed],
        [name_of(post) for swap in swaps for post in swap.consumed],
    ]
