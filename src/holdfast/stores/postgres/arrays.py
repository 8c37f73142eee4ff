"""A batch of swaps as the parameters of one statement: an array for each column, and in it the number of the swap."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

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
    labels = list(head.labels)
    return demanded, key_of(thread), thread, swap.expected, swap.replacement, head.listed_as, labels, *row


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
    return _columns(6, [(item, *row) for item, swap in enumerate(swaps, 1) for row in swap.rows])


def _blobs(swaps: Sequence[Swap]) -> list[list[Any]]:
    return _columns(3, [(item, *blob) for item, swap in enumerate(swaps, 1) for blob in swap.blobs.items()])


def _removals(swaps: Sequence[Swap]) -> list[list[Any]]:
    numbered = list(enumerate(swaps, 1))
    return [
        [item for item, swap in numbered if swap.drop.everything],
        *_columns(3, [(item, *bounds) for item, swap in numbered for bounds in swap.drop.rows]),
        *_columns(2, [(item, blob) for item, swap in numbered for blob in swap.drop.blobs]),
        *_columns(2, [(item, name_of(post)) for item, swap in numbered for post in swap.consumed]),
    ]


def _columns(count: int, lines: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*lines, strict=True)] or [[] for _ in range(count)]
