"""The standard containers that are not plain msgpack: how each becomes a list, and is filled from one.

A container with one property besides its items (the maximum length of a deque, the factory of a defaultdict) is stored
as [property, items]; the property is part of the head.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Final

from msgspec import msgpack

from holdfast.codec import tags
from holdfast.codec.limits import EQUAL_HASHES
from holdfast.codec.refusal import Refused
from holdfast.records.errors import CodecError, LimitExceeded

Opened = tuple[int, bytes, Any]

_FACTORIES: Final[dict[str | None, Any]] = {
    None: None,
    **{each.__name__: each for each in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)},
    **{each.__name__: each for each in (Counter, OrderedDict, deque)},
}
"""The factories of a defaultdict, by the name that is stored. Nothing else is ever called."""


def refuse_equal_hashes(members: list[Any]) -> None:
    """Raise LimitExceeded if too many of the members have the same hash.

    Building a set or dict takes quadratic time in their number. Hashes of str and bytes differ in every process, but
    those of numbers, and of tuples of numbers, can be made equal on purpose: every multiple of 2**61 - 1 has the hash
    0. So only a few are accepted, at save and at load.
    """
    if len(members) <= EQUAL_HASHES:
        return
    hashes = list(map(hash, members))
    if len(hashes) - len(set(hashes)) < EQUAL_HASHES:
        return
    most = max(Counter(hashes).values())
    if most > EQUAL_HASHES:
        raise LimitExceeded(
            f"a set or dict has {most} members with the same hash, more than the limit of {EQUAL_HASHES}: "
            "it would be slow to load; store a list instead"
        )


def _members(value: Any) -> list[Any]:
    """Return the members of a set. Refuses a set that would be slow to load."""
    members = list(value)
    refuse_equal_hashes(members)
    return members


def _pairs(value: Mapping[Any, Any]) -> list[Any]:
    """Return the keys and values of a dict, alternating. Refuses a dict that would be slow to load."""
    pairs = list(chain.from_iterable(value.items()))
    refuse_equal_hashes(pairs[::2])
    return pairs


def _bare_pairs(value: Any) -> list[Any]:
    """Return the keys and values of a dict of a class that allows attributes; refuses one that has some."""
    for name in vars(value):
        raise Refused(f"attributes of {type(value).__name__} objects cannot be stored", step=f".{name}")
    return _pairs(value)


def _head(beside: Any) -> bytes:
    return b"\x92" + msgpack.encode(beside)


def _open_defaultdict(value: defaultdict[Any, Any]) -> Opened:
    name = getattr(value.default_factory, "__name__", None)
    if _FACTORIES.get(name, Refused) is not value.default_factory:
        known = ", ".join(str(each) for each in _FACTORIES)
        raise Refused(f"only these factories can be stored: {known}; store dict(...) instead", step=".default_factory")
    return tags.DEFAULTDICT, _head(name), _pairs(value)


OPENERS: Final[dict[type, Callable[[Any], Opened]]] = {
    tuple: lambda value: (tags.TUPLE, b"", list(value)),
    set: lambda value: (tags.SET, b"", _members(value)),
    frozenset: lambda value: (tags.FROZENSET, b"", _members(value)),
    dict: lambda value: (tags.MAPPING, b"", _pairs(value)),
    deque: lambda value: (tags.DEQUE, _head(value.maxlen), list(value)),
    defaultdict: _open_defaultdict,
    OrderedDict: lambda value: (tags.ORDERED_DICT, b"", _bare_pairs(value)),
    Counter: lambda value: (tags.COUNTER, b"", _bare_pairs(value)),
    range: lambda value: (tags.RANGE, b"", [value.start, value.stop, value.step]),
}


def _fill_set(kind: type, items: list[Any]) -> Any:
    refuse_equal_hashes(items)
    return _all_kept(kind(items), items)


def _fill_pairs(empty: Any, items: list[Any]) -> Any:
    refuse_equal_hashes(items[::2])
    dict.update(empty, zip(items[::2], items[1::2], strict=True))
    return _all_kept(empty, items[::2])


def _fill_ordered(items: list[Any]) -> Any:
    refuse_equal_hashes(items[::2])
    filled = OrderedDict(zip(items[::2], items[1::2], strict=True))
    return _all_kept(filled, items[::2])


def _fill_defaultdict(items: list[Any]) -> Any:
    name, pairs = items
    return _fill_pairs(defaultdict(_FACTORIES[name]), pairs)


def _fill_deque(items: list[Any]) -> Any:
    longest, content = items
    return _all_kept(deque(content, longest), content)


def _fill_range(items: list[Any]) -> range:
    if [int] * 3 != list(map(type, items)):
        raise CodecError("not a range as Holdfast writes it")
    return range(*items)


def _all_kept(filled: Any, items: Iterable[Any]) -> Any:
    if type(items) is not list or len(filled) != len(items):
        raise CodecError("a container has fewer items than stored: one is stored twice, or there are too many")
    return filled


FILLERS: Final[dict[int, Callable[[list[Any]], Any]]] = {
    tags.TUPLE: tuple,
    tags.SET: lambda items: _fill_set(set, items),
    tags.FROZENSET: lambda items: _fill_set(frozenset, items),
    tags.MAPPING: lambda items: _fill_pairs({}, items),
    tags.DEQUE: _fill_deque,
    tags.DEFAULTDICT: _fill_defaultdict,
    tags.ORDERED_DICT: _fill_ordered,
    tags.COUNTER: lambda items: _fill_pairs(Counter(), items),
    tags.RANGE: _fill_range,
}
