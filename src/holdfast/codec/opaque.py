"""Objects of classes that this program does not have, as data: for tools that inspect what other programs stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.codec.registry import register, stand_in


class Opaque(msgspec.Struct, frozen=True, eq=False):
    """A stored object whose class is not registered here: the name and version of the class, and its fields."""

    name: str
    version: int
    content: Any


register(Opaque, name="holdfast.opaque")


@contextmanager
def unknown_as_opaque() -> Iterator[None]:
    """Inside the block, decoding returns an `Opaque` where it would raise `UnknownType`."""
    before = stand_in.set(Opaque)
    try:
        yield
    finally:
        stand_in.reset(before)
