"""Errors that a step raises as themselves, the first time and when its failure is replayed.

What is stored is the name of the class, its arguments and its attributes, as far as they can be stored. On replay the
class is looked for among those that the program gives in `raises=`, and those below them: none is ever imported. No
constructor of a user's class is called, since those of many SDKs need objects that cannot be stored.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from holdfast.codec import decode, encode
from holdfast.history.entries import StepError
from holdfast.records.errors import CodecError, Corrupt
from holdfast.records.naming import name_of
from holdfast.runs.failures import mark_failed, text_of

Classes = tuple[type[Exception], ...]


def noted(error: Exception, memo: StepError) -> Exception:
    """The error, with a note that names the step it comes from."""
    error.add_note(f"raised by step {memo.name!r} after {memo.attempts} attempt(s)")
    mark_failed(error, memo.key)
    return error


def packed_error(error: Exception, raises: Classes) -> bytes:
    """An error as a row keeps it; empty unless it is of a class in `raises` and can be made again."""
    given = next((cls for cls in raises if isinstance(error, cls)), None)
    if given is None:
        return b""
    _, arguments, *state = _builtin_base(type(error)).__reduce__(error)
    kept_arguments = [*map(_storable, arguments)]
    if _made(type(error), kept_arguments) is None:  # a group of errors: they cannot be stored
        return b""
    attributes = state[0] if state and state[0] else {}
    return encode([[name_of(type(error)), name_of(given)], kept_arguments, _kept(attributes)])


def rebuilt(memo: StepError, raises: Classes) -> Exception | None:
    """The error that a step ended with; None if it cannot be made of any class that the program gives in `raises`."""
    if not memo.raised:
        return None
    names, arguments, attributes = _read(memo.raised)
    known = {name_of(cls): cls for cls in (*_with_subclasses(raises), *raises)}
    cls = next((known[name] for name in names if name in known), None)
    error = None if cls is None else _made(cls, arguments)
    if error is None:
        return None
    for name, value in _kept(attributes).items():
        _set(error, name, value)
    return noted(error, memo)


def _read(raised: bytes) -> tuple[list[str], list[Any], dict[str, Any]]:
    match decode(raised):
        case [list() as names, list() as arguments, dict() as attributes]:
            return names, arguments, attributes
    raise Corrupt("the error of a step cannot be read", record="journal")


def _made(cls: type[Exception], arguments: list[Any]) -> Exception | None:
    """An error made without its own constructor; None if Python itself refuses these arguments."""
    base = _builtin_base(cls)
    try:
        error: Exception = base.__new__(cls, *arguments)
        base.__init__(error, *arguments)
    except (TypeError, ValueError):
        return None
    return error


def _set(error: Exception, name: str, value: Any) -> None:
    """Set an attribute as Python itself would; a setter of the user's class is not called."""
    field: Any = getattr(_builtin_base(type(error)), name, None)
    if not hasattr(field, "__set__"):
        error.__dict__[name] = value
        return
    with suppress(AttributeError, TypeError, ValueError):  # Python refuses this value: it is not one of its own
        field.__set__(error, value)


def _with_subclasses(classes: Classes) -> Iterator[type[Exception]]:
    for cls in classes:
        yield cls
        yield from _with_subclasses(tuple(cls.__subclasses__()))


def _builtin_base(cls: type[Exception]) -> Any:
    """The class of Python itself that this one is built on: it knows the fields that are no attributes of an object."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _kept(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes that can be stored, without those of Python and ours."""
    return {
        name: value
        for name, value in attributes.items()
        if isinstance(name, str) and not name.startswith("__") and _is_storable(value)
    }


def _storable(value: Any) -> Any:
    return value if _is_storable(value) else text_of(value)


def _is_storable(value: Any) -> bool:
    try:
        encode(value)
    except CodecError:
        return False
    return True
