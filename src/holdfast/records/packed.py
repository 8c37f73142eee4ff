"""Measures msgpack bytes without decoding them: no value is made, and nothing recurses.

The C decoders recurse and make whatever the bytes ask for. So foreign bytes are measured here before they are decoded.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

# The bytes of memory that a value takes, without those of its text, in CPython 3.11.
PLACE: Final = 16
"""Its place in a list, dict or set."""
LEAF: Final = 48
"""A number, a str, bytes."""
LIST: Final = 72
DICT: Final = 80
FILLED_DICT: Final = 200
SPECIAL: Final = 240
"""An extension: a time, a path, a network."""
BOXED: Final = 16
"""A box is copied to be opened: one byte is charged per this many, so that boxes in boxes stay cheap to read."""
WIDE: Final = 3
"""A character beyond ASCII may make each byte of its text take four."""

RECORD_LEVELS: Final = 16
"""No record of Holdfast nests deeper."""

_OPENING: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
"""The bytes that can begin a list or dict."""


_SCALAR: Final = -1
"""Instead of the number of values inside: a token that holds none."""
_REPLACED: Final = -2
"""Instead of the number of values inside: a token that is replaced by the next one."""

NO_BOXES: Final[Mapping[int, int]] = {}


def _tokens() -> tuple[list[int], list[int], list[int]]:
    """Return by first byte: a token's length (0 if more bytes decide), the number of values inside, its cost."""
    lengths, inside, costs = [0] * 256, [_SCALAR] * 256, [PLACE] * 256
    for first in (*range(0xA0), 0xC0, 0xC2, 0xC3, *range(0xE0, 0x100)):
        lengths[first] = 1
    for size in range(32):
        lengths[0xA0 + size] = 1 + size
    numbers = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    for first, length in numbers.items():
        lengths[first] = length
    for first in (*range(0xA0, 0xC0), *numbers, *_SIZED):
        costs[first] += LEAF
    for count in range(16):
        inside[0x80 + count], inside[0x90 + count] = 2 * count, count
        costs[0x80 + count] += FILLED_DICT if count else DICT
        costs[0x90 + count] += LIST
    for first, (_width, each) in _COUNTED.items():
        costs[first] += LIST if each == 1 else DICT
    return lengths, inside, costs


# first byte -> bytes of the length that follows
_SIZED: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}
_TEXTS: Final = frozenset({0xD9, 0xDA, 0xDB})
# first byte -> bytes of the count that follows, and values per count
_COUNTED: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
# first byte -> bytes of the length that follows, or the length itself, of extensions
_EXTENDED: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_LENGTHS, _INSIDE, _COSTS = _tokens()


class TooDeep(msgspec.DecodeError):
    """The bytes nest deeper than allowed."""


def opening_count(data: Buffer) -> int:
    """Count the bytes that could begin a list or dict: an encoding never has more levels."""
    return len(data) - len(bytes(data).translate(None, _OPENING))


def bounded(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Return a decoder of records that refuses bytes that nest deeper than any record, before it recurses."""

    def decode_bounded(data: bytes) -> T:
        if opening_count(data) > RECORD_LEVELS:
            measure(data, RECORD_LEVELS)
        return decode(data)

    return decode_bounded


def measure(data: Buffer, deepest: int, boxes: Mapping[int, int] = NO_BOXES, heaviest: int = sys.maxsize) -> int:
    """Count the memory that the value in `data` takes, without its text. Raises TooDeep beyond `deepest` levels.

    `boxes` are the extensions that hold an encoding, with what each takes; that encoding is counted too. The count ends
    above `heaviest`, and at bytes that are not msgpack: a decoder that reads in the same order stops there too.
    """
    position, cost, left = 0, 0, 1
    outer: list[int] = []
    try:
        while cost <= heaviest:
            while not left:
                if not outer:
                    return cost
                left = outer.pop()
            first = data[position]
            length, inside = _LENGTHS[first], _INSIDE[first]
            cost += _COSTS[first]
            if length:
                position += length
            else:
                position, more, inside = _token(data, position, first, boxes)
                cost += more
            if inside >= 0:
                if len(outer) == deepest:
                    raise TooDeep(f"nests deeper than {deepest} levels")
                outer.append(left - 1)
                left = inside
            elif inside == _SCALAR:
                left -= 1
    except IndexError:
        pass
    return cost


Token = tuple[int, int, int]
"""Where a token ends, what it costs besides its first byte, and how many values are inside."""


def _token(data: Buffer, position: int, first: int, boxes: Mapping[int, int]) -> Token:
    """Return a token whose length depends on more than its first byte."""
    if first in _COUNTED:
        width, each = _COUNTED[first]
        count = _number(data, position, width)
        return position + 1 + width, FILLED_DICT - DICT if each == 2 and count else 0, count * each
    if first in _SIZED:
        width = _SIZED[first]
        start = position + 1 + width
        end = start + _number(data, position, width)
        is_wide = first in _TEXTS and not bytes(data[start:end]).isascii()
        return end, WIDE * (end - start) * is_wide, _SCALAR
    return _extension(data, position, first, boxes)


def _extension(data: Buffer, position: int, first: int, boxes: Mapping[int, int]) -> Token:
    if first in _FIXED_EXTENSIONS:
        start, length = position + 2, _FIXED_EXTENSIONS[first]
    elif first in _EXTENDED:
        start, length = position + 2 + _EXTENDED[first], _number(data, position, _EXTENDED[first])
    else:
        raise IndexError("no token begins with this byte")
    code = data[start - 1]
    if code in boxes:  # what it holds replaces it
        return start, boxes[code] - PLACE + length // BOXED, _REPLACED
    return start + length, SPECIAL, _SCALAR


def _number(data: Any, position: int, width: int) -> int:
    return int.from_bytes(data[position + 1 : position + 1 + width], "big")
