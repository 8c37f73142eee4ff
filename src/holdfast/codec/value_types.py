"""Types of values as plain data: a stored question includes the type of its answer.

Like stored values, a stored type names classes, and only registered classes are ever used.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat
from types import NoneType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from holdfast.codec.discovery import Annotation
from holdfast.codec.registry import adopt_named, class_named, is_registrable, name_of
from holdfast.records.errors import UnknownType
from holdfast.records.type_hints import fits, hint_name, members

_SEQUENCES = (list, tuple, set, frozenset)
_CONTAINERS = (*_SEQUENCES, dict)
_LEAVES = (bool, int, float, str, bytes, NoneType, datetime, date, time, timedelta, Decimal)
_PLAIN: Final[dict[str, type]] = {each.__name__: each for each in (*_CONTAINERS, *_LEAVES)}
_ANYTHING, _UNION, _LITERAL, _REPEATED = "", "|", "=", "..."
_WORDS = frozenset({*_PLAIN, _ANYTHING, _UNION, _LITERAL, _REPEATED})


def described(hint: Any) -> Any:
    """Return a type as plain data: a name, or a list of a name and its parameters. Registers the classes in it.

    A type that cannot be checked at run time, such as a protocol, becomes any value.
    """
    kinds = members(hint)
    if len(kinds) != 1:
        return [_UNION, *map(described, kinds)]
    origin, inner = get_origin(kinds[0]) or kinds[0], get_args(kinds[0])
    if origin is Literal:
        return [_LITERAL, *inner]
    if is_typeddict(origin):
        return dict.__name__
    if origin in _PLAIN.values():
        parameters = [_REPEATED if each is ... else described(each) for each in inner]
        return [origin.__name__, *parameters] if parameters else origin.__name__
    if not (isinstance(origin, type) and is_registrable(origin)):
        return _ANYTHING
    adopt_named([Annotation(origin, {})], evaluate=True)
    return name_of(origin)


def resolved(description: Any) -> Any:
    """Return the type of a description; raise `UnknownType` if it names a class that is not registered here.

    Of a union it is enough to know one member.
    """
    name, *inner = [description] if isinstance(description, str) else description
    if name == _ANYTHING:
        return Any
    if name == _LITERAL:
        return Literal[tuple(inner)]
    if name == _UNION:
        known = [each for each in inner if is_known(each)]
        return Union[tuple(map(resolved, known or inner))]  # noqa: UP007  the parameters are not known here
    parameters = tuple(... if each == _REPEATED else resolved(each) for each in inner)
    kind: Any = _PLAIN.get(name) or class_named(name)
    return kind[parameters] if parameters else kind


def is_known(description: Any) -> bool:
    """True if all classes that a description names are registered here."""
    try:
        for name in _class_names(description):
            if name not in _WORDS:
                class_named(name)
    except UnknownType:
        return False
    return True


def is_object(value: Any) -> bool:
    """True for an object of a class that is neither a JSON value nor another plain value."""
    return type(value) not in _PLAIN.values()


def adopt_given(value: Any, description: Any) -> None:
    """Register the classes of objects in a value that a description names."""
    names, waiting = {*_class_names(description)}, [value]
    while waiting:
        given = waiting.pop()
        if type(given) in _CONTAINERS:
            waiting.extend(given.values() if isinstance(given, dict) else given)
        elif name_of(type(given)) in names and is_registrable(type(given)):
            adopt_named([Annotation(type(given), {})], evaluate=True)


def _class_names(description: Any) -> Iterator[str]:
    name, *inner = [description] if isinstance(description, str) else description
    if name != _LITERAL:
        yield name
        for each in inner:
            yield from _class_names(each)


def converted(value: Any, hint: Any) -> Any:
    """Convert a value to a type: itself if it fits, else objects made from mappings, as from JSON. May raise."""
    mistake = _mistake(value, hint)
    if mistake:
        raise TypeError(mistake)
    return value if fits(value, hint) else msgspec.convert(value, hint, builtin_types=(bytes,), dec_hook=_model)


def _mistake(value: Any, hint: Any) -> str:
    """Return what a conversion would ignore: an unknown field, a bool for a number. Empty if nothing."""
    found = [each for kind in members(hint) if (each := _mistake_of(value, kind)) is not None]
    return "" if "" in found or not found else found[0]


def _mistake_of(value: Any, kind: Any) -> str | None:
    """Return the same for one type; None if the value is not of that kind at all."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if type(value) is bool and kind in {int, float}:
        return f"{value} is a bool"
    if isinstance(value, Mapping) and (fields := fields_of(kind)):
        return _unknown_fields(value, kind, fields) or _first_mistake((value[key], fields[key]) for key in value)
    if type(value) is dict and origin is dict and inner:
        return _first_mistake((each, inner[1]) for each in value.values())
    if type(value) in _SEQUENCES and origin in _SEQUENCES and inner:
        hints = inner if origin is tuple and inner[-1] is not ... else repeat(inner[0])
        return _first_mistake(zip(value, hints, strict=False))
    return "" if fits(value, kind) else None


def _first_mistake(parts: Iterable[tuple[Any, Any]]) -> str:
    return next(filter(None, (_mistake(value, hint) for value, hint in parts)), "")


def _unknown_fields(value: Mapping[Any, Any], kind: Any, fields: Mapping[str, Any]) -> str:
    unknown = [repr(name) for name in value if name not in fields]
    what = f"{kind.__qualname__} has no field {', '.join(unknown)}; its fields are {', '.join(fields)}"
    return what if unknown else ""


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, Struct, pydantic model or TypedDict, by their JSON names.

    Empty for any other class, and for one that accepts other fields too.
    """
    if not isinstance(kind, type):
        return {}
    if issubclass(kind, msgspec.Struct):
        tag = kind.__struct_config__.tag_field
        return {each.encode_name: each.type for each in msgspec.structs.fields(kind)} | ({tag: Any} if tag else {})
    if is_typeddict(kind):
        return get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {each.name: hints[each.name] for each in dataclasses.fields(kind) if each.init}
    found: Mapping[str, Any] = getattr(kind, "model_fields", {})
    settings: Mapping[str, Any] = getattr(kind, "model_config", {})
    if settings.get("extra") == "allow" or any(each.validation_alias for each in found.values()):
        return {}
    return {name: each.annotation for name, each in found.items()}


def signature(hint: Any) -> str:
    """Return a type in words, a class with its fields: `Decision(approved: bool, limit: int)`."""
    return " | ".join(map(_signature, members(hint))) or hint_name(hint)


def _signature(kind: Any) -> str:
    try:
        fields = fields_of(kind)
    except (NameError, AttributeError, TypeError, SyntaxError):  # an annotation that cannot be evaluated
        fields = {}
    inner = ", ".join(f"{name}: {hint_name(each)}" for name, each in fields.items())
    return f"{hint_name(kind)}({inner})" if inner else hint_name(kind)


def _model(kind: Any, value: Any) -> Any:
    """Make an object of a class that msgspec does not know: a pydantic model."""
    if not hasattr(kind, "model_validate"):
        raise TypeError(f"{value!r} is not of type {kind.__qualname__}")
    return kind.model_validate(value)
