"""Bytes to values. Stored bytes are data: nothing named in them is imported, called or opened.

The C decoder checks lengths and utf-8, and how deep lists and dicts nest. Extensions come here; the only classes made
are the standard value types and those that the program registered. Nothing recurses: boxes are opened from the
outermost to the innermost, and then filled the other way round.
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
    version of its class, LimitExceeded beyond the limits, and CodecError for bytes that are no encoding of a value.
    """
    refuse_excess([data], limits, "the stored value")
    return decode_weighed(data, limits)


def decode_weighed(data: Buffer, limits: Limits) -> Any:
    """As `decode`, for bytes whose size and memory were found to be within the limits."""
    try:
        return _Decoder().decode(data, limits.depth + SLACK)
    except (TooDeep, RecursionError) as error:
        raise LimitExceeded(f"the stored value nests too deep: {error}") from error
    except (HoldfastError, MemoryError):
        raise
    except Exception as error:
        raise CodecError(f"not a Holdfast encoding: {error}") from error


class _Box(Struct, gc=False):
    """An extension that holds an encoding, before that is decoded."""

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
                values[place] = None  # the bytes of the box are not needed any more
                if self._found:
                    waiting.append((content, room - 1))
        if opened:
            _fill(opened)
        return root[0]

    def _open(self, box: _Box, room: int) -> list[Any]:
        """Return the list that a box holds."""
        content = self._unpack(box.data, room)
        if type(content) is not list:
            raise CodecError("an extension holds something else than a list")
        return content

    def _unpack(self, data: Buffer, room: int) -> Any:
        """Plain values, with a `_Box` for each box among them; `_found` says whether there is one."""
        self._found = False
        try:
            return self._bounded(data, room)
        except ValueError:
            if self._error is None:
                raise
        raise self._error

    def _bounded(self, data: Buffer, room: int) -> Any:
        """Unpack in C, which ends at a fixed depth. To end earlier, the bytes are put inside the lists left over."""
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
        """Return the value of an extension. The C decoder would hide its error."""
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
    """The values that are boxes or may hold some, each with its index or key; the last one first."""
    is_dict = type(values) is dict
    if _HOLDS.isdisjoint(map(type, values.values() if is_dict else values)):
        return ()
    pairs = values.items() if is_dict else enumerate(values)
    return [pair for pair in pairs if type(pair[1]) in _HOLDS][::-1]


def _fill(opened: list[tuple[Any, Any, int, list[Any]]]) -> None:
    """Put the values of boxes in their places, the innermost first."""
    for values, place, code, content in reversed(opened):
        values[place] = fill_box(code, content)


_SHORT: Final = 1 << 12
_MIDDLE: Final = 1 << 16
"""Up to here it is cheaper to count levels, or bytes that could begin one, than to put the bytes inside lists."""
_whole: Final = msgpack.Decoder(Raw).decode


def _is_shallow(data: Buffer, room: int) -> bool:
    """Return True if it was cheap to find out that at most `room` lists and dicts nest; raises TooDeep if not."""
    if len(data) <= room or (len(data) <= _MIDDLE and opening_count(data) <= room):
        return True
    if len(data) > _SHORT:
        return False
    measure(data, room)
    return True


@cache
def _c_levels() -> int:
    """Return how many lists in lists this version of the C decoder unpacks."""
    return bisect_left(range(1 << 14), True, key=_is_beyond_c) - 1


def _is_beyond_c(levels: int) -> bool:
    try:
        unpackb(b"\x91" * levels + b"\xc0")
    except ValueError:
        return True
    return False
