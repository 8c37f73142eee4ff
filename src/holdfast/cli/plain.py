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


def plain(value: Any) -> Any:
    """The value made of dicts with str keys, lists, str, int, float, bool and None."""
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
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(type(value), "model_fields"):
        return {str(name): plain(field) for name, field in vars(value).items()}
    return str(value)


def _number(value: float) -> Any:
    return value if isfinite(value) else str(value)


def _tuple(value: tuple[Any, ...]) -> Any:
    names = getattr(value, "_fields", None)
    items = [plain(item) for item in value]
    return items if names is None else dict(zip(names, items, strict=True))


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {_key(key): plain(item) for key, item in value.items()}


def _key(key: Any) -> str:
    return key if type(key) is str else str(plain(key))


def _set(value: Any) -> list[Any]:
    return sorted((plain(item) for item in value), key=repr)


_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (Opaque, lambda value: {"class": value.name, "fields": plain(value.content)}),
    (Enum, lambda value: plain(value.value)),
    (str, str),
    (int, int),
    (float, _number),
    (bytes | bytearray, lambda value: b64encode(value).decode()),
    (datetime | date | time, lambda value: value.isoformat()),
    (timedelta, lambda value: value.total_seconds()),
    (Mapping, _mapping),
    (tuple, _tuple),
    (list, lambda value: [plain(item) for item in value]),
    (set | frozenset, _set),
)
