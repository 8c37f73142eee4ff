"""Bytes to values. Stored bytes are data: nothing named in them is imported, called or opened.

The C decoder checks lengths, utf-8 and trailing bytes itself. Extensions come here; the only classes made are the
standard value types and those that the program registered.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import msgpack

from holdfast.codec import tags
from holdfast.codec.limits import DEFAULT, Limits
from holdfast.codec.scan import SLACK, refuse_depth, refuse_excess
from holdfast.records.errors import CodecError, HoldfastError, LimitExceeded
from holdfast.records.loading import loading


def decode(data: bytes | bytearray | memoryview, *, limits: Limits = DEFAULT) -> Any:
    """The value that `encode` was given, with the same types.

    Raises UnknownType for an object of a class that is not registered, IncompatibleCheckpoint for one stored by a newer
    version of its class, LimitExceeded beyond the limits, and CodecError for bytes that are no encoding of a value.
    """
    refuse_excess(data, limits, "the stored value")
    refuse_depth(data, limits)
    try:
        return _Decoder(limits.depth + SLACK).decode(data)
    except RecursionError as error:
        raise LimitExceeded("the stored value nests too deep") from error
    except (HoldfastError, MemoryError):
        raise
    except Exception as error:
        raise CodecError(f"not a Holdfast encoding: {error}") from error


class _Decoder:
    """One call of `decode`. `room` is how many extensions may still nest."""

    __slots__ = ("_room",)

    def __init__(self, room: int) -> None:
        self._room = room

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        """The value of an encoding."""
        return msgpack.decode(data, ext_hook=self._extension)

    def _extension(self, code: int, data: memoryview) -> Any:
        readers, fill_box = _special_values()
        read = readers.get(code)
        if read is not None:
            return read(bytes(data))
        if code not in tags.NESTED:
            raise CodecError(f"unknown extension code {code}; written by a newer version of Holdfast?")
        if self._room < 1:
            raise LimitExceeded("the stored value nests too deep")
        self._room -= 1
        try:
            return fill_box(code, self.decode(data))
        finally:
            self._room += 1


@cache
def _special_values() -> tuple[dict[int, Callable[[bytes], Any]], Callable[[int, Any], Any]]:
    """How extensions are read, loaded with the first one."""
    with loading():
        from holdfast.codec.boxes import fill_box
        from holdfast.codec.types import LEAF_READERS
    return LEAF_READERS, fill_box
