"""Bytes to values. Stored bytes are data: nothing named in them is imported, called or opened.

The C decoder checks lengths, utf-8, and the depth of lists and dicts, and passes extensions to this module. Only
standard value types and classes that the program registered are made. Nothing recurses: boxes are opened from the
outermost to the innermost, and then filled in reverse order.
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from msgspec import Raw, Struct, msgpack
from ormsgpack import unpackb

from holdfast.codec import tags
from holdfast.codec.boxes import fill_box
from holdfast.codec.limits import DEFAULT, SLACK, Limits, refuse_excess
from holdfast.codec.types import LEAF_READERS
from holdfast.records.errors import CodecError, HoldfastError, LimitExceeded
from holdfast.records.packed import Buffer, TooDeep, measure, opening_count


def decode(data: Buffer, *, limits: Limits = DEFAULT) -> Any:
    """Return the value that `encode` was given, with the same types.

    Raises UnknownType for an object of a class that is not registered, IncompatibleCheckpoint for one stored by a newer
    version of its class, LimitExceeded beyond the limits, and CodecError for bytes that are not an encoding.
    """
    refuse_excess([data], limits, "the stored value")
    return decode_weighed(data, limits)


def decode_weighed(data: Buffer, limits: Limits) -> Any:
    """Decode bytes whose size and memory are known to be within the limits."""
    try:
        return _Decoder().decode(data, limits.depth + SLACK)
    except (TooDeep, RecursionError) as error:
        raise LimitExceeded(f"the stored value nests too deep: {error}") from error
    except (HoldfastError, MemoryError):
        raise
    except Exception as error:
        raise CodecError(f"not a Holdfast encoding: {error}") from error


class _Box(Struct, gc=False):
    """An extension that holds an encoding which is not decoded yet."""

    code: int
    data: bytes


_HOLDS: Final = frozenset({list, dict, _Box})


class _Decoder:
    """One call of `decode`. `room` is how many lists and dicts may nest in a value."""

    __slots__ = ("_error", "_found")

    def __init__(self) -> None:
        self._found = False
        self._error: BaseException | None = None

    def decode(self, data: Buffer, room: int) -> Any:
        root = [self._unpack(data, room)]
        opened: list[tuple[Any, Any, int, list[Any]]] = []
        waiting: list[tuple[Any, int]] = [(root, room)] if self._found else []
        while waiting:
            values, room = waiting.pop()
            for place, part in _places(values):
                if type(part) is not _Box:
                    waiting.append((part, room - 1))
                    continue
                content = self._open(part, room)
                opened.append((values, place, part.code, content))
                values[place] = None  # frees the bytes of the box
                if self._found:
                    waiting.append((content, room - 1))
        if opened:
            _fill(opened)
        return root[0]

    def _open(self, box: _Box, room: int) -> list[Any]:
        """Return the list that a box holds."""
        content = self._unpack(box.data, room)
        if type(content) is not list:
            raise CodecError("an extension does not hold a list")
        return content

    def _unpack(self, data: Buffer, room: int) -> Any:
        """Return plain values, with a `_Box` for each box in them; `_found` says whether there is one."""
        self._found = False
        try:
            return self._bounded(data, room)
        except ValueError:
            if self._error is None:
                raise
        raise self._error

    def _bounded(self, data: Buffer, room: int) -> Any:
        """Unpack in C, which stops at a fixed depth. To stop earlier, the bytes are put inside the lists left over."""
        spare = 0 if _is_shallow(data, room) else _c_levels() - room
        try:
            value = unpackb(b"\x91" * spare + data if spare else data, ext_hook=self._extension)
        except ValueError:
            measure(data, room)  # raises TooDeep if that is why
            raise
        _whole(data)  # ormsgpack ignores bytes after the value
        for _ in range(spare):
            (value,) = value
        return value

    def _extension(self, code: int, data: bytes) -> Any:
        """Return the value of an extension. An error is kept, since the C decoder hides it."""
        try:
            read = LEAF_READERS.get(code)
            if read is not None:
                return read(data)
            self._found = True
            return _box(code, data)
        except BaseException as error:
            self._error = error
            raise


def _box(code: int, data: bytes) -> _Box:
    if code not in tags.NESTED:
        raise CodecError(f"unknown extension code {code}; written by a newer version of Holdfast?")
    return _Box(code, data)


def _places(values: Any) -> Iterable[tuple[Any, Any]]:
    """Return the values that are boxes or may hold some, each with its index or key, in reverse order."""
    is_dict = type(values) is dict
    if _HOLDS.isdisjoint(map(type, values.values() if is_dict else values)):
        return ()
    pairs = values.items() if is_dict else enumerate(values)
    return [pair for pair in pairs if type(pair[1]) in _HOLDS][::-1]


def _fill(opened: list[tuple[Any, Any, int, list[Any]]]) -> None:
    """Put the values of boxes in their places, innermost first."""
    for values, place, code, content in reversed(opened):
        values[place] = fill_box(code, content)


_SHORT: Final = 1 << 12
_MIDDLE: Final = 1 << 16
"""Up to these sizes it is cheaper to count levels, or bytes that could begin one, than to put bytes inside lists."""
_whole: Final = msgpack.Decoder(Raw).decode


def _is_shallow(data: Buffer, room: int) -> bool:
    """True if a cheap check shows that at most `room` lists and dicts nest; raises TooDeep if it shows more."""
    if len(data) <= room or (len(data) <= _MIDDLE and opening_count(data) <= room):
        return True
    if len(data) > _SHORT:
        return False
    measure(data, room)
    return True


@cache
def _c_levels() -> int:
    """Return how many nested lists this version of the C decoder unpacks."""
    return bisect_left(range(1 << 14), True, key=_is_beyond_c) - 1


def _is_beyond_c(levels: int) -> bool:
    try:
        unpackb(b"\x91" * levels + b"\xc0")
    except ValueError:
        return True
    return False
