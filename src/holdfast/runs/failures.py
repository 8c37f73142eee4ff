"""What is kept of an error: its text, the failed steps behind it, and the error itself if a step may raise it.

Of an error in `raises=` the name of its class, its arguments and its attributes are stored, as far as they can be. On
replay the class is looked up among those in `raises=` and their subclasses: nothing is imported. No constructor of a
user's class is called, since those of many SDKs need objects that cannot be stored.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from holdfast.codec import decode, encode
from holdfast.history.entries import StepError
from holdfast.records.errors import CodecError, Corrupt, StepFailed, StepTimeout
from holdfast.records.naming import name_of

Classes = tuple[type[Exception], ...]
STEP = "__holdfast_step__"
"""The attribute that names the step an error comes from, if it is raised as itself."""
LONGEST_TEXT = 8192
"""The error of a thread is in its head, which every write replaces."""


def text_of(error: object) -> str:
    """Return the text of an error so that it can be stored: the beginning of a very long one."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  a user's __str__ may raise anything
        return "(its text could not be read)"
    kept = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}… ({len(text)} characters)"
    return kept.encode(errors="backslashreplace").decode()


def explain(error: BaseException | None, plain_step: str) -> None:
    """Add a note that names the plain step that was awaited by mistake, if that is what the error is about."""
    if plain_step and isinstance(error, TypeError) and "can't be used in 'await' expression" in str(error):
        error.add_note(f"step {plain_step!r} is a plain function: call it without await, or make it an async def")


def failed_steps(error: object) -> tuple[str, ...]:
    """Return the keys of the failed steps behind an error: those it was raised from, and those in a group."""
    return tuple(dict.fromkeys(filter(None, map(_step_of, _origins(error, set())))))


def _step_of(error: BaseException) -> str:
    found: str = error.key if isinstance(error, StepFailed) else vars(error).get(STEP, "")
    return found


def _origins(error: object, seen: set[int]) -> Iterator[BaseException]:
    if not isinstance(error, BaseException) or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _origins(each, seen)
    yield from _origins(error.__cause__ or error.__context__, seen)


# The error of a step that failed for good


def failure_of(memo: StepError) -> StepFailed:
    """Return the `StepFailed` of a step that failed for good, from its record."""
    kind = StepTimeout if memo.type == StepTimeout.__name__ else StepFailed
    text = f"step {memo.name!r} failed after {memo.attempts} attempt(s): {memo.type}: {memo.message}"
    return kind(text, type=memo.type, message=memo.message, key=memo.key)


def name_step(error: Exception, memo: StepError) -> Exception:
    """Name in an error the step it comes from: if the error leaves the run, that step is executed again."""
    error.add_note(f"raised by step {memo.name!r} after {memo.attempts} attempt(s)")
    vars(error)[STEP] = memo.key
    return error


def packed_error(error: Exception, raises: Classes) -> bytes:
    """Encode an error for its row; empty unless it is of a class in `raises` and can be rebuilt."""
    given = next((cls for cls in raises if isinstance(error, cls)), None)
    if given is None:
        return b""
    _, arguments, *state = _builtin_base(type(error)).__reduce__(error)
    kept_arguments = [*map(_storable, arguments)]
    if _made(type(error), kept_arguments) is None:  # a group: its errors cannot be stored
        return b""
    attributes = state[0] if state and state[0] else {}
    return encode([[name_of(type(error)), name_of(given)], kept_arguments, _kept(attributes)])


def rebuilt(memo: StepError, raises: Classes) -> Exception | None:
    """Return the error that a step ended with; None if it cannot be made of any class in `raises`."""
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
    return name_step(error, memo)


def _read(raised: bytes) -> tuple[list[str], list[Any], dict[str, Any]]:
    match decode(raised):
        case [list() as names, list() as arguments, dict() as attributes]:
            return names, arguments, attributes
    raise Corrupt("the error of a step cannot be read", record="journal")


def _made(cls: type[Exception], arguments: list[Any]) -> Exception | None:
    """Make an error without its own constructor; None if Python itself rejects these arguments."""
    base = _builtin_base(cls)
    try:
        error: Exception = base.__new__(cls, *arguments)
        base.__init__(error, *arguments)
    except (TypeError, ValueError):
        return None
    return error


def _set(error: Exception, name: str, value: Any) -> None:
    """Set an attribute as Python itself would, without calling a setter of the user's class."""
    field: Any = getattr(_builtin_base(type(error)), name, None)
    if not hasattr(field, "__set__"):
        error.__dict__[name] = value
        return
    with suppress(AttributeError, TypeError, ValueError):  # Python rejects this value
        field.__set__(error, value)


def _with_subclasses(classes: Classes) -> Iterator[type[Exception]]:
    for cls in classes:
        yield cls
        yield from _with_subclasses(tuple(cls.__subclasses__()))


def _builtin_base(cls: type[Exception]) -> Any:
    """Return the built-in class below a class: it knows the fields that are not in `__dict__`."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _kept(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the attributes that can be stored, without those of Python and ours."""
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
