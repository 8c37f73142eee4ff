"""Values as JSON: any value that a state may hold, in the form that a reader of JSON expects. Not a way back.

Tuples and sets become lists, times ISO 8601, decimals and ids text, bytes base64, objects their fields.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from enum import Enum
from math import isfinite
from typing import Any, Final

import msgspec

from holdfast.codec.opaque import Opaque
from holdfast.history.lazy_steps import LazySteps
from holdfast.records.shown import shown


def plain(value: Any) -> Any:
    """The value made of dicts with str keys, lists, str, int, float, bool and None. Nothing recurses."""
    root = [value]
    sets: list[list[Any]] = []
    waiting: list[Any] = [root]
    for parts in waiting:  # it grows meanwhile
        for place, part in enumerate(parts) if type(parts) is list else list(parts.items()):
            parts[place] = made = _opened(part)
            if type(made) in _HOLDING:
                waiting.append(made)
                if isinstance(part, set | frozenset):
                    sets.append(made)
    for members in reversed(sets):
        members.sort(key=repr)
    return root[0]


def _opened(value: Any) -> Any:
    """A plain value, or a new list or dict of parts that may still be of any kind."""
    if value is None or isinstance(value, bool):
        return value
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    return _fields(value)


def dump(value: Any, indent: int | None = 2) -> str:
    """The value as a JSON document; what a terminal would obey is escaped."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=True)


def _fields(value: Any) -> Any:
    """The fields of an object, or its text if it has none."""
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(type(value), "model_fields"):
        return {str(name): field for name, field in vars(value).items()}
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # a number of more digits than Python writes
        return shown(value)


def _whole(value: int) -> Any:
    """An int, or its text if it has more digits than Python writes."""
    number = int(value)
    text = _text(number)
    return text if text.startswith(("0x", "-0x")) else number


def _number(value: float) -> Any:
    return value if isfinite(value) else str(value)


def _tuple(value: tuple[Any, ...]) -> Any:
    names = getattr(value, "_fields", None)
    return list(value) if names is None else dict(zip(names, value, strict=True))


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {_key(key): item for key, item in value.items()}


def _key(key: Any) -> str:
    return key if type(key) is str else str(plain(key))


_HOLDING: Final = frozenset({list, dict})
_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (Opaque, lambda value: {"class": value.name, "fields": value.content}),
    (Enum, lambda value: plain(value.value)),
    (str, str),
    (int, _whole),
    (float, _number),
    (bytes | bytearray, lambda value: b64encode(value).decode()),
    (datetime | date | time, lambda value: value.isoformat()),
    (timedelta, lambda value: value.total_seconds()),
    (Mapping, _mapping),
    (tuple, _tuple),
    (list | set | frozenset, list),
    (LazySteps, LazySteps.all),
)
