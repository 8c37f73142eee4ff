"""Equality that `==` does not give: of types, of the order of dicts, of NaN and -0.0, of folds and time zones."""

import enum
import re
import struct
from collections import deque
from collections.abc import Callable
from datetime import datetime, time, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic


def portrait(value: Any) -> object:
    """A picture of a value, in which nothing looks like anything else."""
    return type(value), _content(value)


def same(one: Any, other: Any) -> bool:
    """True if nothing tells the two values apart but their identity."""
    return portrait(one) == portrait(other)


def _content(value: Any) -> object:
    if isinstance(value, enum.Enum):
        return value.name, id(value)
    if type(value) is float:
        return struct.pack(">d", value)
    if type(value) in {list, tuple}:
        return [portrait(item) for item in value]
    if type(value) in {set, frozenset}:
        return sorted(repr(portrait(item)) for item in value)
    if isinstance(value, dict):
        return getattr(value, "default_factory", None), [(portrait(key), portrait(item)) for key, item in value.items()]
    return _details(value)


def _details(value: Any) -> object:
    for kind, picture in _PICTURES.items():
        if isinstance(value, kind):
            return picture(value)
    return _object(value)


def _object(value: Any) -> object:
    if isinstance(value, datetime | time):
        return value.replace(tzinfo=None).isoformat(), value.fold, _zone(value.tzinfo)
    if isinstance(value, pydantic.BaseModel):
        beside = (value.__pydantic_fields_set__, value.__pydantic_extra__, value.__pydantic_private__)
        return portrait(value.__dict__), [portrait(part) for part in beside]
    if isinstance(value, msgspec.Struct):
        return [portrait(item) for item in msgspec.structs.astuple(value)]
    if isinstance(value, tuple):
        return [portrait(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return [(name, portrait(getattr(value, name))) for name in value.__dataclass_fields__]
    return value


def _zone(zone: Any) -> object:
    if zone is None:
        return None
    return type(zone), getattr(zone, "key", None), repr(zone)


_PICTURES: dict[type, Callable[[Any], object]] = {
    Decimal: str,
    UUID: lambda value: (value.bytes, value.is_safe),
    complex: lambda value: struct.pack(">dd", value.real, value.imag),
    deque: lambda value: (value.maxlen, [portrait(item) for item in value]),
    range: lambda value: (value.start, value.stop, value.step),
    re.Pattern: lambda value: (portrait(value.pattern), value.flags),
    tzinfo: _zone,
}
