"""ormsgpack the other way: one encoding to plain values, with a limit on depth that holds in C, whatever the bytes are.

ormsgpack ends at a fixed depth. To end earlier, the bytes are put inside as many lists as they may not use.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import ormsgpack
from msgspec import Raw, msgpack

from holdfast.records.packed import Buffer, measure, opening_count

_SHORT: Final = 1 << 12
_MIDDLE: Final = 1 << 16
"""Up to here it is cheaper to count levels, or bytes that could begin one, than to put the bytes inside lists."""
_KNOWN_LEVELS: Final = 1022
_whole: Final = msgpack.Decoder(Raw).decode


def unpack(data: Buffer, room: int, hook: Callable[[int, bytes], Any]) -> Any:
    """The value of an encoding that nests at most `room` lists and dicts, extensions as `hook` returns them.

    Raises TooDeep for any that nests deeper, and ValueError for bytes that are not one encoding.
    """
    value = ormsgpack.unpackb(data, ext_hook=hook) if _is_shallow(data, room) else _unpack_bounded(data, room, hook)
    _whole(data)  # ormsgpack does not mind bytes after the value
    return value


def _is_shallow(data: Buffer, room: int) -> bool:
    """True if it was cheap to find out that the bytes nest at most `room` lists and dicts; raises TooDeep if not."""
    if len(data) <= _MIDDLE and opening_count(data) <= room:
        return True
    if len(data) > _SHORT:
        return False
    measure(data, room)
    return True


def _unpack_bounded(data: Buffer, room: int, hook: Callable[[int, bytes], Any]) -> Any:
    spare = _levels() - room
    try:
        value = ormsgpack.unpackb(b"\x91" * spare + data, ext_hook=hook)
    except ValueError:
        measure(data, room)  # raises TooDeep if that is why
        raise
    for _ in range(spare):
        (value,) = value
    return value


@cache
def _levels() -> int:
    """How many lists in lists this version of ormsgpack unpacks."""
    if _unpacks(_KNOWN_LEVELS) and not _unpacks(_KNOWN_LEVELS + 1):
        return _KNOWN_LEVELS
    low, high = 1, 1 << 14
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _unpacks(middle) else (low, middle - 1)
    return low


def _unpacks(levels: int) -> bool:
    try:
        ormsgpack.unpackb(b"\x91" * levels + b"\xc0")
    except ValueError:
        return False
    return True
