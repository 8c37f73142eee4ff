"""What a caller hands in, checked before anything is done with it: each refusal names the argument."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike, fspath
from typing import Any

from holdfast.records.errors import ConfigurationError, UnstorableValue


def whole_number(value: object, name: str, least: int = 0, most: int | None = None) -> int:
    """An int of that range; a bool is none."""
    if type(value) is not int or value < least or (most is not None and value > most):
        reach = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigurationError(f"{name}={value!r}: an int {reach}")
    return value


def duration_us(value: object, name: str) -> int:
    """A duration in microseconds, given as timedelta or seconds; not negative."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ConfigurationError(f"{name}={value!r}: a timedelta or seconds, not negative")
    return round(seconds * 1_000_000)


def text_or_none(value: object, name: str) -> str | None:
    """A str with something in it, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{name}={value!r}: a non-empty str, or None")
    return value


def mapping_or_none(value: object, name: str) -> Mapping[str, Any] | None:
    """A mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"{name}={value!r}: a mapping, or None")
    return value


def function_or_none(value: object, name: str) -> Callable[..., Any] | None:
    """What can be called, or None."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name}={value!r} cannot be called: a function, or None")
    return value


def path_text(value: object, name: str = "path") -> str:
    """A path in the file system, as str. An int, which `open` would take for a descriptor, is none."""
    text = fspath(value) if isinstance(value, str | PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigurationError(f"{name}={value!r} is not a path: a str or a pathlib.Path")
    return text


def path_of_keys(value: object) -> tuple[Any, ...]:
    """Where in a state: one key, or several."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence):
        raise UnstorableValue(f"append to path {value!r}: a path is one str, or several", path="state")
    return tuple(value)


def several(value: object, name: str) -> list[Any]:
    """One word, None for none, or the words of a collection."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else sequence(value, name)


def sequence(value: object, name: str) -> list[Any]:
    """The words of a collection; a str is none."""
    if not isinstance(value, Sequence | set | frozenset) or isinstance(value, str | bytes):
        raise ConfigurationError(f"{name}={value!r}: a sequence of words")
    return list(value)
