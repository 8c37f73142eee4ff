"""Type annotations at run time: whether a value fits one, whether two are compatible, and their names."""

import types
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, Never, NoReturn, TypeVar, Union, get_args, get_origin, is_typeddict

_ITEMS: tuple[Any, ...] = (list, set, frozenset)
"""Containers whose items are checked."""
_NOTHING: tuple[Any, ...] = (Never, NoReturn)


def members(hint: Any) -> tuple[Any, ...]:
    """Return the types that an annotation allows: those of a union; none for `Never`."""
    if hint in _NOTHING:
        return ()
    if hint is None:
        return (types.NoneType,)
    if get_origin(hint) in {Union, types.UnionType}:
        return tuple(each for part in get_args(hint) for each in members(part))
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if isinstance(hint, TypeVar):
        return members(hint.__bound__) if hint.__bound__ is not None else (Any,)
    return members(hint.__supertype__) if hasattr(hint, "__supertype__") else (hint,)


def fits(value: Any, hint: Any) -> bool:
    """True if an annotation allows a value."""
    return any(_is_one(value, each) for each in members(hint))


def _is_one(value: Any, hint: Any) -> bool:
    if hint is Any or hint is object:
        return True
    origin = get_origin(hint)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(hint))
    kind = hint if origin is None else origin
    if not isinstance(kind, type):
        return True  # what only a type checker understands
    if not _is_instance(value, kind):
        return False
    inner = get_args(hint)
    return not inner or _parts_fit(value, kind, inner)


def _parts_fit(value: Any, kind: type, inner: tuple[Any, ...]) -> bool:
    if kind is dict:
        return _all_fit(value.keys(), inner[0]) and _all_fit(value.values(), inner[1])
    if kind is tuple and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(fits, value, inner))
    return kind not in {*_ITEMS, tuple} or _all_fit(value, inner[0])


def _all_fit(items: Collection[Any], hint: Any) -> bool:
    """True if all items fit. If plain classes are allowed, each class among the items is checked once."""
    allowed = members(hint)
    if Any in allowed:  # which is a class itself since Python 3.11
        return True
    if all(isinstance(each, type) and not get_args(each) for each in allowed):
        return all(_is_subclass(each, allowed) for each in set(map(type, items)))
    return all(fits(each, hint) for each in items)


def _is_subclass(kind: type, allowed: tuple[Any, ...]) -> bool:
    try:
        return any(issubclass(kind, _at_run_time(each)) for each in allowed)
    except TypeError:  # a protocol that is not for run time
        return True


def _is_instance(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, _at_run_time(kind))
    except TypeError:  # a protocol that is not for run time
        return True


def _at_run_time(kind: type) -> tuple[type, ...]:
    """Return the classes that a type checker accepts for a type: dict for a `TypedDict`, also int for float."""
    if kind is float:
        return (float, int)
    return (dict,) if is_typeddict(kind) else (kind,)


def may_meet(sent: Any, taken: Any) -> bool:
    """True if some value of the one type can be of the other."""
    return any(_may(one, other) for one in members(sent) for other in members(taken))


def _may(sent: Any, taken: Any) -> bool:
    if Any in {sent, taken} or object in {sent, taken}:
        return True
    one, other = get_origin(sent) or sent, get_origin(taken) or taken
    if not (isinstance(one, type) and isinstance(other, type)):
        return True
    if not _are_related(one, other):
        return False
    inner, wanted = get_args(sent), get_args(taken)
    return not inner or not wanted or one not in _ITEMS or may_meet(inner[0], wanted[0])


def _are_related(one: type, other: type) -> bool:
    try:
        return issubclass(one, _at_run_time(other)) or issubclass(other, _at_run_time(one))
    except TypeError:
        return True


def hint_name(hint: Any) -> str:
    """Return the name of an annotation in errors and signatures: without modules, so that a class may move."""
    return " | ".join(_names(hint)) or "nothing"


def _names(hint: Any) -> Iterator[str]:
    for each in members(hint):
        inner = get_args(each)
        name = getattr(get_origin(each) or each, "__qualname__", str(each))
        if get_origin(each) is Literal:
            yield f"Literal[{', '.join(map(repr, inner))}]"
        else:
            yield f"{name}[{', '.join(map(hint_name, inner))}]" if inner else name
