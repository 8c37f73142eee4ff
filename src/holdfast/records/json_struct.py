"""Structures that are stored, and exchanged with other programs, as plain values with JSON names."""

from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Self

import msgspec

from holdfast.records.errors import Corrupt, UnstorableValue


class JsonStruct(msgspec.Struct):
    """A structure whose fields have JSON names; empty fields are left out."""

    _always: ClassVar[frozenset[str]] = frozenset()
    """Fields that are written even if empty."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values by their JSON names."""
        written: dict[str, Any] = {}
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            is_empty = value is None if default is None else bool(value == default)
            if field.name in self._always or not is_empty:
                written[field.name] = _plain(value)
        return written

    @classmethod
    def from_dict(cls, fields: Any) -> Self:
        """Make the structure from plain values, ignoring unknown fields; raise `Corrupt` if they do not fit."""
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise Corrupt(f"not the fields of {cls.__name__}: {error}", record=cls.__name__) from error


def check_loadable(value: JsonStruct, what: str) -> None:
    """Raise `UnstorableValue` if this could be stored but not loaded."""
    try:
        value.from_dict(value.to_dict())
    except Corrupt as error:
        raise UnstorableValue(f"this {what} could not be loaded again: {error}", path=what) from error


def _plain(value: Any) -> Any:
    if isinstance(value, JsonStruct):
        return value.to_dict()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.value if isinstance(value, Enum) else value
