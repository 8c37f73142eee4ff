"""The C encoder, made exact: every type it would quietly turn into another goes to a hook, and depth is limited.

ormsgpack ends at a fixed depth (255). To end earlier, the value is packed inside as many lists as it may not use, and
their one-byte headers are cut off again: a bound on depth at the price of one short copy.
"""

from collections.abc import Callable
from sys import getrefcount
from typing import Any, Final

import ormsgpack
from ormsgpack import Ext, Fragment

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


class Refused(Exception):  # noqa: N818  never leaves the codec: the encoder turns it into an error with a path
    """A value that cannot be stored, and why. `step` leads from the value to the part that is at fault."""

    def __init__(self, reason: str, *, step: str = "") -> None:
        super().__init__(reason)
        self.step = step


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
    """How many lists in lists this version of the C encoder packs."""
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


_CONTAINERS: Final = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])
_SHORT_ITEMS: Final = 16
_SHORT_BYTES: Final = 4096


def pack_short(value: Any, room: int) -> bytes | None:
    """The encoding of a short, plain value such as one message; None for anything else, which `pack` will do.

    Whether it nests too deep is told from the bytes: there cannot be more levels than bytes that look like containers.
    """
    if type(value) in {dict, list} and len(value) > _SHORT_ITEMS:
        return None
    try:
        data = ormsgpack.packb(value, default=_not_plain, option=OPTIONS)
    except TypeError:
        return None
    if len(data) > room and (len(data) > _SHORT_BYTES or len(data) - len(data.translate(None, _CONTAINERS)) > room):
        return None
    return data


def _not_plain(value: Any) -> Any:
    raise TypeError(type(value))


def extension(code: int, payload: bytes) -> bytes:
    """The encoding of an extension."""
    return ormsgpack.packb(Ext(code, payload))


# The C encoder writes ormsgpack's own Ext and Fragment without asking, so a user's would pass for ours. Each of them
# holds a reference to its type: only if there are more of these than our own, a value is searched for such objects.
def raw_references() -> int:
    """A number that grows when somebody else makes an ormsgpack.Ext or ormsgpack.Fragment."""
    return getrefcount(Ext) + getrefcount(Fragment)


def refuse_raw(value: Any) -> None:
    """Raise Refused if the lists and dicts of a value hold an ormsgpack.Ext or ormsgpack.Fragment."""
    waiting, seen = [value], set[int]()
    while waiting:
        item = waiting.pop()
        if type(item) in {Ext, Fragment}:
            raise Refused("raw msgpack extensions cannot be stored; store the value they stand for")
        if type(item) in {list, dict} and id(item) not in seen:
            seen.add(id(item))
            waiting.extend(item if type(item) is list else item.values())
