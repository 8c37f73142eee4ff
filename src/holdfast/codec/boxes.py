"""Values that hold others and are not plain msgpack: tuples, sets, dicts with other than str keys, registered objects.

Each is one extension around one list or dict of what it holds. The encoder opens a box (its code, the first bytes of
its payload, what it holds), packs what it holds and closes it again; the decoder fills it.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any, Final

from holdfast.codec import registry, tags
from holdfast.codec.pieces import container, container_header, extension, split
from holdfast.codec.refusal import Refused
from holdfast.codec.shapes import HEAP_TYPE
from holdfast.records.errors import CodecError

Opened = tuple[int, bytes, Any]

_PLAIN: Final = (int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset)

_OPENERS: Final[dict[type, Callable[[Any], Opened]]] = {
    tuple: lambda value: (tags.TUPLE, b"", list(value)),
    set: lambda value: (tags.SET, b"", list(value)),
    frozenset: lambda value: (tags.FROZENSET, b"", list(value)),
    dict: lambda value: (tags.MAPPING, b"", list(chain.from_iterable(value.items()))),
}


def open_box(value: Any) -> Opened:
    """The extension code, the head of the payload, and what is to be encoded after it; raises Refused for any other."""
    cls = type(value)
    opener = _OPENERS.get(cls)
    if opener is not None:
        return opener(value)
    entry = registry.entry_of(cls)
    if entry is None:
        raise Refused(_reason(cls))
    return tags.OBJECT, entry.head, entry.shape.take(value)


def close_box(code: int, head: bytes, packed: bytes) -> bytes:
    """The encoding of a box, from the encoding of what it holds. Sets are sorted: equal sets are equal bytes."""
    if code in {tags.SET, tags.FROZENSET}:
        _, count, start = container(packed)
        packed = container_header("list", count) + b"".join(sorted(split("list", count, packed[start:])))
    return extension(code, head + packed)


def _fill_mapping(items: list[Any]) -> dict[Any, Any]:
    keys = items[::2]
    filled = dict(zip(keys, items[1::2], strict=True))
    _all_kept(filled, keys)
    return filled


def _fill_object(items: list[Any]) -> Any:
    name, version, content = items
    if type(name) is not str or type(version) is not int:
        raise CodecError("not an object as Holdfast writes it")
    return registry.restore(name, version, content)


def _all_kept(filled: Any, items: list[Any]) -> Any:
    if len(filled) != len(items):
        raise CodecError("an item of a set, or a key of a dict, is stored twice")
    return filled


_FILLERS: Final[dict[int, Callable[[list[Any]], Any]]] = {
    tags.TUPLE: tuple,
    tags.SET: lambda items: _all_kept(set(items), items),
    tags.FROZENSET: lambda items: _all_kept(frozenset(items), items),
    tags.MAPPING: _fill_mapping,
    tags.OBJECT: _fill_object,
}


def fill_box(code: int, items: Any) -> Any:
    """The value of a box, from the decoded list it holds."""
    if type(items) is not list:
        raise CodecError("an extension holds something else than a list")
    return _FILLERS[code](items)


def _a(name: str) -> str:
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def _reason(cls: type) -> str:
    """Why a value of this class is refused, with the one line that would help."""
    name = cls.__qualname__
    if registry.is_registrable(cls):
        return (
            f"{name} is not registered; decorate the class with @holdfast.storable, or call holdfast.register({name})"
        )
    for plain in _PLAIN:
        if issubclass(cls, plain):
            return f"{_a(name)} would not come back as one; convert it with {plain.__name__}(...)"
    if not cls.__flags__ & HEAP_TYPE:
        return f"{_a(name)} cannot be stored; keep it out of the state, or store what it can be made from"
    return (
        f"{_a(name)} cannot be stored; keep it out of the state, or make it a dataclass and decorate the class with "
        f"@holdfast.storable, or call holdfast.register({name})"
    )
