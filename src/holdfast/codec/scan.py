"""The limits, kept before anything of an encoding is made.

An exact count takes longer than decoding, in Python. So cheaper bounds come first: what the number of bytes allows at
most, then what the bytes of each kind allow at most. Only what these cannot clear is counted exactly.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from holdfast.codec import tags
from holdfast.codec.limits import DEEPEST, DEFAULT, Limits
from holdfast.records.errors import LimitExceeded
from holdfast.records.packed import BOXED, LEAF, PLACE, WIDE, Buffer, TooDeep, measure

# The engine appends items, each encoded alone with the full depth, to containers a few levels down in a state.
SLACK: Final = 8

BOXES: Final = dict.fromkeys(tags.NESTED, 256) | {tags.TUPLE: 64, tags.OBJECT: 80, tags.RANGE: 64, tags.DEQUE: 656}
"""What the containers of the standard library and objects take beside the list they are stored as."""
_COPIES: Final = -(-(DEEPEST + SLACK) // BOXED)
MOST_PER_BYTE: Final = 142 + _COPIES
"""No byte of an encoding takes more: an empty deque takes 848 with six, and each may be copied with all its boxes."""
_OPENING: Final = 280
_STARTS_LEAF: Final = bytes([*range(0xA0, 0xC0), *range(0xC4, 0xC7), *range(0xCA, 0xD4), *range(0xD9, 0xDC)])
_STARTS_CONTAINER: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0), *range(0xC7, 0xCA), *range(0xD4, 0xD9)])


def refuse_excess(encodings: Sequence[Buffer], limits: Limits, what: str) -> None:
    """Raise LimitExceeded if an encoding is longer, or all together take more memory, than the limits allow."""
    longest = max(map(len, encodings), default=0)
    if longest > limits.size:
        raise LimitExceeded(_text(what, f"takes {longest} bytes, more", limits.size, "size"))
    if sum(map(len, encodings)) * MOST_PER_BYTE <= limits.memory or sum(map(most_memory, encodings)) <= limits.memory:
        return
    memory = 0
    for each in encodings:
        memory += exact_memory(each, limits)
        if memory > limits.memory:
            raise LimitExceeded(_text(what, "would take more memory", limits.memory, "memory"))


def refuse_together(encodings: Sequence[Buffer], limits: Limits, what: str) -> None:
    """Raise LimitExceeded if values that are going to be held at the same time would take too much memory together.

    Each was stored under the default limits, so a single one is always taken.
    """
    refuse_excess(encodings, replace(DEFAULT, memory=max(limits.memory, DEFAULT.memory)), what)


def most_memory(data: Buffer) -> int:
    """At least what an encoding takes in memory: each byte is taken for the first of the costliest it could begin."""
    data = bytes(data)
    containers = len(data) - len(data.translate(None, _STARTS_CONTAINER))
    leaves = len(data) - len(data.translate(None, _STARTS_LEAF))
    return containers * _OPENING + leaves * LEAF + len(data) * (PLACE + WIDE + _COPIES)


def exact_memory(data: Buffer, limits: Limits) -> int:
    """What an encoding takes in memory, beside the bytes of its text, counted until it is more than the limit.

    Raises LimitExceeded if it nests too deep.
    """
    try:
        return measure(data, limits.depth + SLACK, BOXES, limits.memory)
    except TooDeep as error:
        raise LimitExceeded(f"the stored value {error}") from error


def _text(what: str, taken: str, limit: int, name: str) -> str:
    hint = f"store less, or open the store with limits=holdfast.Limits({name}=...)"
    return f"{what} {taken} than the limit of {limit} bytes; {hint}"
