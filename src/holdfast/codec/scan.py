"""Counting what encoded bytes hold, before anything of it is made.

The C decoder refuses headers that promise more than there is, and the interpreter's recursion guard bounds its depth.
This scan is for the rest: it counts levels and items exactly, in Python, so it runs only where the length of the bytes
does not already prove that they are within the limits.
"""

from typing import Final

from holdfast.codec import tags
from holdfast.codec.limits import DEFAULT, Limits
from holdfast.records.errors import CodecError, LimitExceeded

Buffer = bytes | bytearray | memoryview

# The engine appends items, each encoded alone with the full depth, to containers a few levels down in a state.
SLACK: Final = 8
# Up to here the scan for depth costs microseconds. Beyond, the default depth is left to the interpreter's guard.
_SHORT: Final = 4096

_CONTAINERS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
# first byte -> bytes of the token, for all tokens of fixed length
_FIXED: Final = (
    dict.fromkeys([*range(0x80), 0xC0, 0xC2, 0xC3, *range(0xE0, 0x100)], 1)
    | {0xA0 + length: 1 + length for length in range(32)}
    | {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
)
# first byte -> bytes of the length that follows, for str and bin
_SIZED: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
# first byte -> bytes of the count that follows, and items per count, for containers
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
# first byte -> bytes of the length that follows, or the length itself, for extensions
_EXTENDED: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def refuse_excess(data: Buffer, limits: Limits, what: str) -> None:
    """Raise LimitExceeded if an encoding is longer, or has more items, than the limits allow."""
    if len(data) > limits.size:
        raise LimitExceeded(f"{what} takes {len(data)} bytes; the limit is {limits.size}")
    if len(data) > limits.items:  # every item takes a byte at least
        count_items(data, limits.items, limits.depth + SLACK)


def refuse_depth(data: Buffer, limits: Limits) -> None:
    """Raise LimitExceeded if stored bytes nest too deep, where that can be told at little cost or was asked for."""
    deepest = limits.depth + SLACK
    if len(data) <= deepest or (limits is DEFAULT and len(data) > _SHORT):
        return
    if len(data) - len(bytes(data).translate(None, _CONTAINERS)) > deepest:
        count_items(data, limits.items, deepest)


def count_items(data: Buffer, most: int, deepest: int) -> int:
    """The number of values in an encoding; raises LimitExceeded when there are more than `most`, or deeper ones.

    Bytes that are not msgpack end the count early: the decoder will say what is wrong with them.
    """
    position, total, left = 0, 0, [1]
    try:
        while left:
            if left[-1] == 0:
                left.pop()
                continue
            position, inside = _token(data, position)
            if inside is None:
                continue
            left[-1] -= 1
            total += 1
            if inside:
                left.append(inside)
            if total > most or len(left) > deepest + 1:
                raise LimitExceeded(f"the bytes hold more than {most} items, or nest deeper than {deepest} levels")
    except IndexError:
        pass
    return total


def _token(data: Buffer, position: int) -> tuple[int, int | None]:
    """Where the token at a position ends, and how many items follow inside it; None if the next one takes its place."""
    first = data[position]
    fixed = _FIXED.get(first)
    if fixed is not None:
        return position + fixed, 0
    if 0x80 <= first <= 0x9F:
        return position + 1, (first & 0x0F) << (first < 0x90)
    if first in _COUNTED:
        width, each = _COUNTED[first]
        return position + 1 + width, _number(data, position, width) * each
    if first in _SIZED:
        width = _SIZED[first]
        return position + 1 + width + _number(data, position, width), 0
    return _extension(data, position, first)


def _extension(data: Buffer, position: int, first: int) -> tuple[int, int | None]:
    """The list inside a nested extension counts in its place; any other extension is one item."""
    if first in _FIXED_EXTENSIONS:
        start, length = position + 2, _FIXED_EXTENSIONS[first]
    elif first in _EXTENDED:
        start, length = position + 2 + _EXTENDED[first], _number(data, position, _EXTENDED[first])
    else:
        raise CodecError(f"not a Holdfast encoding: byte {first:#04x} at {position}")
    return (start, None) if data[start - 1] in tags.NESTED else (start + length, 0)


def _number(data: Buffer, position: int, width: int) -> int:
    return int.from_bytes(data[position + 1 : position + 1 + width], "big")
