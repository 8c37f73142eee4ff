"""Boxes: values that hold others and are not plain msgpack, i.e. standard containers and registered objects.

Each is one extension around a list or dict of what it holds. The encoder opens a box (its code, the first bytes of its
payload, what it holds), packs what it holds and closes it; the decoder fills it.
"""

from typing import Any, Final

from holdfast.codec import registry, tags
from holdfast.codec.containers import FILLERS, OPENERS, Opened
from holdfast.codec.pieces import container, container_header, extension, split
from holdfast.codec.refusal import Refused
from holdfast.codec.shapes import HEAP_TYPE
from holdfast.records.errors import CodecError
from holdfast.records.shown import with_article

_PLAIN: Final = (int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset)


def open_box(value: Any) -> Opened:
    """Return the extension code, the head of the payload, and what to encode after it; raises Refused."""
    cls = type(value)
    opener = OPENERS.get(cls)
    if opener is not None:
        return opener(value)
    entry = registry.entry_of(cls)
    if entry is None:
        raise Refused(_reason(cls))
    return tags.OBJECT, entry.head, entry.shape.take(value)


def close_box(code: int, head: bytes, packed: bytes) -> bytes:
    """Return the encoding of a box from that of what it holds. Sets are sorted: equal sets have equal bytes."""
    if code in {tags.SET, tags.FROZENSET}:
        _, count, start = container(packed)
        packed = container_header("list", count) + b"".join(sorted(split("list", count, packed[start:])))
    return extension(code, head + packed)


def fill_box(code: int, items: list[Any]) -> Any:
    """Return the value of a box from the decoded list it holds."""
    if code != tags.OBJECT:
        return FILLERS[code](items)
    name, version, content = items
    if type(name) is not str or type(version) is not int:
        raise CodecError("not an object as Holdfast writes it")
    return registry.restore(name, version, content)


def _reason(cls: type) -> str:
    """Return why a value of this class is refused, and what to do about it."""
    name = cls.__qualname__
    if registry.is_replaced(cls):
        return (
            f"{name} was replaced by a newer class of the same name; make the object from that one, or "
            f"name each class: holdfast.register({name}, name=...)"
        )
    if registry.is_registrable(cls):
        return (
            f"{name} is not registered; decorate the class with @holdfast.storable, or call holdfast.register({name})"
        )
    value = with_article(name)
    for plain in _PLAIN:
        if issubclass(cls, plain):
            kind = plain.__name__
            return f"{value} would be loaded as {with_article(kind)}; convert it with {kind}(...)"
    if not cls.__flags__ & HEAP_TYPE:
        return f"{value} cannot be stored; remove it from the state, or store what it can be made from"
    return (
        f"{value} cannot be stored; remove it from the state, or make it a dataclass and decorate the class with "
        f"@holdfast.storable, or call holdfast.register({name}, take=..., make=...)"
    )
