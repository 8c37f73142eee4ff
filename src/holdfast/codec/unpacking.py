"""One encoding to plain values, with a limit on depth that holds before anything recurses, whatever the bytes are.

Short bytes are counted first. Longer ones go to ormsgpack, which ends at a fixed depth in C; to end earlier, they are
put inside as many lists as they may not use. It is loaded with the first of them. So do those with many extensions:
msgspec takes them as keys of a plain dict, where nobody looks whether their hashes are equal; ormsgpack does not.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from msgspec import Raw, msgpack

from holdfast.codec.limits import EQUAL_HASHES
from holdfast.records.loading import loading
from holdfast.records.packed import Buffer, extension_count, measure, opening_count

Hook = Callable[[int, Any], Any]

_SHORT: Final = 1 << 12
_MIDDLE: Final = 1 << 16
"""Up to here it is cheaper to count levels, or bytes that could begin one, than to put the bytes inside lists."""
_whole: Final = msgpack.Decoder(Raw).decode


def unpack(data: Buffer, room: int, hook: Hook) -> Any:
    """The value of an encoding that nests at most `room` lists and dicts, extensions as `hook` returns them.

    Raises TooDeep for any that nests deeper, and ValueError for bytes that are not one encoding.
    """
    return msgpack.decode(data, ext_hook=hook) if _is_shallow(data, room) else _unpack_bounded(data, room, hook)


def _is_shallow(data: Buffer, room: int) -> bool:
    """True if it was cheap to find out that the bytes nest at most `room` lists and dicts; raises TooDeep if not."""
    if len(data) <= room:
        return True
    if len(data) > EQUAL_HASHES and extension_count(data) > EQUAL_HASHES:
        return False
    if len(data) <= _MIDDLE and opening_count(data) <= room:
        return True
    if len(data) > _SHORT:
        return False
    measure(data, room)
    return True


def _unpack_bounded(data: Buffer, room: int, hook: Hook) -> Any:
    levels, unpackb = _bounded_decoder()
    spare = levels - room
    try:
        value = unpackb(b"\x91" * spare + data, ext_hook=hook)
    except ValueError:
        measure(data, room)  # raises TooDeep if that is why
        raise
    _whole(data)  # ormsgpack does not mind bytes after the value
    for _ in range(spare):
        (value,) = value
    return value


@cache
def _bounded_decoder() -> tuple[int, Callable[..., Any]]:
    """Ormsgpack's decoder, and how many lists in lists it unpacks in this version."""
    with loading():
        from ormsgpack import unpackb
    low, high = 1, 1 << 14
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _unpacks(unpackb, middle) else (low, middle - 1)
    return low, unpackb


def _unpacks(unpackb: Callable[[bytes], Any], levels: int) -> bool:
    try:
        unpackb(b"\x91" * levels + b"\xc0")
    except ValueError:
        return False
    return True
