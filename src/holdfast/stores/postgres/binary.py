"""Arrays as PostgreSQL's wire format has them: made here, since psycopg sends lists of bytes as escaped text.

An array is its number of dimensions, whether it has NULLs, the type of its elements, its length, its first index; and
then each element after its length.
"""

from collections.abc import Collection
from struct import Struct, pack
from typing import Any

from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

HEADER = Struct(">iiiii")
EMPTY = Struct(">iii")
LENGTH = Struct(">i").pack
BYTEA, BIGINT, INTEGER, TEXT = 17, 20, 23, 25


class ByteaArray(bytes):
    """A `bytea[]`."""

    @classmethod
    def of(cls, values: Collection[bytes]) -> "ByteaArray":
        """These values."""
        return cls(_header(BYTEA, len(values)) + _joined(values))


class TextArray(bytes):
    """A `text[]`."""

    @classmethod
    def of(cls, values: Collection[str]) -> "TextArray":
        """These values."""
        return cls(_header(TEXT, len(values)) + _joined([value.encode() for value in values]))


class IntegerArray(bytes):
    """An `integer[]`."""

    @classmethod
    def of(cls, values: Collection[int]) -> "IntegerArray":
        """These values."""
        numbers = [number for value in values for number in (4, value)]
        return cls(_header(INTEGER, len(values)) + pack(f">{len(numbers)}i", *numbers))


class BigintArray(bytes):
    """A `bigint[]`."""

    @classmethod
    def of(cls, values: Collection[int]) -> "BigintArray":
        """These values."""
        return cls(_header(BIGINT, len(values)) + b"".join([pack(">iq", 8, value) for value in values]))


def _header(element: int, count: int) -> bytes:
    return HEADER.pack(1, 0, element, count, 1) if count else EMPTY.pack(0, 0, element)


def _joined(values: Collection[bytes]) -> bytes:
    return b"".join([part for value in values for part in (LENGTH(len(value)), value)])


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        """What was made above is what is sent."""
        return bytes(obj)


class _ByteaArrayDumper(_AsItIs):
    oid = 1001


class _IntegerArrayDumper(_AsItIs):
    oid = 1007


class _TextArrayDumper(_AsItIs):
    oid = 1009


class _BigintArrayDumper(_AsItIs):
    oid = 1016


DUMPERS: dict[type, type[_AsItIs]] = {
    ByteaArray: _ByteaArrayDumper,
    IntegerArray: _IntegerArrayDumper,
    TextArray: _TextArrayDumper,
    BigintArray: _BigintArrayDumper,
}


def teach(cursor: Any, parameters: Collection[Any]) -> None:
    """Let a cursor send arrays, if there are any among the parameters; its connection is left as it is."""
    if any(type(parameter) in DUMPERS for parameter in parameters):
        for kind, dumper in DUMPERS.items():
            cursor.adapters.register_dumper(kind, dumper)
