"""What a caller hands in, checked before anything is done with it: each refusal names the argument."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from os import PathLike, fsencode, fspath
from typing import Any, TypeVar

from holdfast.records.errors import ConfigurationError, UnstorableValue
from holdfast.records.shown import quoted
from holdfast.records.urls import redacted

W = TypeVar("W", str, str | None)

LONGEST_SECONDS = 1000 * 365 * 86400
LARGEST_COUNT = 2**63 - 1
LARGEST_AMOUNT = 10**15


def whole_number(value: object, name: str, least: int = 0, most: int | None = None) -> int:
    """An int of that range; a bool is none."""
    if type(value) is not int or value < least or (most is not None and value > most):
        reach = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigurationError(f"{name}={quoted(value)}: an int {reach}")
    return value


def duration_us(value: object, name: str) -> int:
    """A duration in microseconds, given as timedelta or seconds; not negative, and its end is a date."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_SECONDS:
        raise ConfigurationError(
            f"{name}={quoted(value)}: a timedelta or seconds, not negative, at most a thousand years"
        )
    return round(seconds * 1_000_000)


def amount(value: object, name: str) -> float:
    """A number that is not negative, such as a sum of money; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_AMOUNT:
        raise ConfigurationError(f"{name}={quoted(value)}: a number, not negative, at most 10**15")
    return value


def count(value: object, name: str) -> int:
    """A whole number that is not negative, and that a record can hold."""
    return whole_number(value, name, most=LARGEST_COUNT)


def text_or_none(value: object, name: str) -> str | None:
    """A str with something in it that can be stored, or None. Of a subclass, an enum among them, its plain text."""
    if value is not None and not (isinstance(value, str) and value and (value.isascii() or _is_utf8(value))):
        raise ConfigurationError(f"{name}={quoted(value)}: a non-empty str without lone surrogates, or None")
    return value if value is None or type(value) is str else str.__str__(value)


def _is_utf8(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def mapping_or_none(value: object, name: str) -> Mapping[str, Any] | None:
    """A mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"{name}={quoted(value)}: a mapping, or None")
    return value


def function_or_none(value: object, name: str) -> Callable[..., Any] | None:
    """What can be called, or None."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name}={quoted(value)} cannot be called: a function, or None")
    return value


def path_text(value: object, name: str = "path") -> str:
    """A path in the file system, as str. An int, which `open` would take for a descriptor, is none."""
    text = fspath(value) if isinstance(value, str | PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text or not _is_encodable(text):
        given = repr(redacted(value)) if isinstance(value, str) else f"a {type(value).__name__}"
        raise ConfigurationError(f"{name} is {given}, which is not a path: a str or a pathlib.Path")
    return text


def _is_encodable(path: str) -> bool:
    try:
        fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def path_of_keys(value: object) -> tuple[Any, ...]:
    """Where in a state: one key, or several."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence):
        raise UnstorableValue(f"append to path {quoted(value)}: a path is one str, or several", path="state")
    return tuple(value)


def several(value: object, name: str) -> list[Any]:
    """One word, None for none, or the words of a collection."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else sequence(value, name)


def sequence(value: object, name: str) -> list[Any]:
    """The words of a collection; a str is none."""
    if not isinstance(value, Sequence | set | frozenset) or isinstance(value, str | bytes):
        raise ConfigurationError(f"{name}={quoted(value)}: a sequence of words")
    return list(value)


def check_options(given: Iterable[str], valid: Sequence[str]) -> None:
    """`ConfigurationError` for a keyword that is no valid option: it names the one that was meant, and all others."""
    for name in given:
        if name not in valid:
            from difflib import get_close_matches

            hint = "".join(f" did you mean {close!r}?" for close in get_close_matches(name, valid, n=1))
            raise ConfigurationError(f"unknown option {name!r};{hint} valid: {', '.join(valid)}")


def check_metadata(metadata: object) -> dict[str, Any]:
    """Metadata as a dict with str keys, or a clear refusal."""
    if not isinstance(metadata, Mapping) or not all(type(key) is str for key in metadata):
        raise UnstorableValue(f"metadata is a mapping with str keys, not {quoted(metadata)}", path="metadata")
    return dict(metadata)


def check_labels(labels: Mapping[Any, Any] | None) -> dict[str, str] | None:
    """Labels as a dict of str to str, or a clear refusal."""
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise UnstorableValue(f"labels are a mapping of str to str, not {quoted(labels)}", path="labels")
    for name, value in labels.items():
        if type(name) is not str or type(value) is not str:
            raise UnstorableValue(
                f"label {quoted(name)}={quoted(value)}: names and values are str", path=f"labels[{quoted(name)}]"
            )
    return dict(labels)


def check_idempotency_key(key: object) -> str | None:
    """An idempotency key, or a clear refusal."""
    if key is None or (type(key) is str and key):
        return key
    raise ConfigurationError(f"idempotency_key={quoted(key)}: a non-empty str, or None")


def plain_word(words: Mapping[Any, W], word: object, what: str) -> W:
    """The plain word of a status, cause or phase, or a clear refusal."""
    if (isinstance(word, str) or word is None) and word in words:
        return words[word]
    raise ConfigurationError(f"{quoted(word)} is not a {what}; those are {', '.join(filter(None, words.values()))}")
