"""ormsgpack, made exact: every type it would quietly turn into another goes to a hook, and depth is limited.

ormsgpack ends at a fixed depth (255). To end earlier, the value is packed inside as many lists as it may not use, and
their one-byte headers are cut off again: a bound on depth at the price of one short copy.
"""

from collections.abc import Callable
from typing import Any, Final

import ormsgpack

OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)

Nest = list[list[Any]]


def _nest(levels: int) -> Nest:
    """Lists within lists, from the outermost to the innermost, which has a slot for a value."""
    nest: Nest = [[None]]
    for _ in range(levels - 1):
        nest.append([nest[-1]])
    return nest[::-1]


def _packs(nest: Nest) -> bool:
    try:
        ormsgpack.packb(nest[0])
    except TypeError:
        return False
    return True


def _deepest() -> int:
    """How many lists in lists this version of the C encoder packs. 255 is tried first: so it is in those we know."""
    if _packs(_nest(255)) and not _packs(_nest(256)):
        return 255
    low, high = 1, 512
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _packs(_nest(middle)) else (low, middle - 1)
    return low


LEVELS: Final = _deepest()
# Nests not in use. Taking one out and putting it back are atomic, so threads and nested calls never share one.
_spare: Final[list[Nest]] = []


def pack(value: Any, room: int, default: Callable[[Any], Any]) -> bytes:
    """The encoding of a value that nests at most `room` lists and dicts; raises TypeError for any other."""
    nest = _spare.pop() if _spare else _nest(LEVELS)
    slot = nest[-1]
    slot[0] = value
    try:
        return ormsgpack.packb(nest[room], default=default, option=OPTIONS)[LEVELS - room :]
    finally:
        slot[0] = None
        _spare.append(nest)


_SHORT_ITEMS: Final = 32
_SHORT_BYTES: Final = 1 << 16
_NESTING: Final = frozenset({list, dict})
_OPENS_NOTHING: Final = bytes(byte for byte in range(256) if not (0x80 <= byte < 0xA0 or 0xDC <= byte < 0xE0))
"""The bytes that cannot begin a list or dict."""


def pack_short(value: Any, room: int) -> bytes | None:
    """The encoding of a short list or dict of plain data, such as one message; None for all else: `pack` will do it.

    Whether it nests too deep is told from the bytes, which no other thread can change: there cannot be more levels than
    bytes that look like containers.
    """
    cls = type(value)
    if (cls is not dict and cls is not list) or len(value) > _SHORT_ITEMS:
        return None
    for part in [*value.values()] if cls is dict else value:
        if type(part) in _NESTING and len(part) > _SHORT_ITEMS:
            return None  # most likely it would be packed in vain
    try:
        data = ormsgpack.packb(value, default=_not_plain, option=OPTIONS)
    except TypeError:
        return None
    return data if len(data) <= _SHORT_BYTES and len(data.translate(None, _OPENS_NOTHING)) <= room else None


def _not_plain(value: Any) -> Any:
    raise TypeError(type(value))
