"""Checks of what a caller passes in, before anything is done with it: each error names the argument."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from os import PathLike, fsencode, fspath
from typing import Any, TypeVar

from holdfast.records.errors import ConfigurationError, UnstorableValue
from holdfast.records.shown import kind_of, quoted
from holdfast.records.urls import redacted

W = TypeVar("W", str, str | None)

LONGEST_SECONDS = 1000 * 365 * 86400
LARGEST_COUNT = 2**63 - 1
LARGEST_AMOUNT = 10**15


def _wrong(name: str, wanted: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"`{name}` must be {wanted}, got {quoted(value)}")


def whole_number(value: object, name: str, least: int = 0, most: int | None = None) -> int:
    """Return an int in this range. A bool is refused."""
    if type(value) is not int or value < least or (most is not None and value > most):
        raise _wrong(name, f"an int of at least {least}" if most is None else f"an int from {least} to {most}", value)
    return value


def duration_us(value: object, name: str) -> int:
    """Return a duration, given as timedelta or seconds, in microseconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_SECONDS:
        raise _wrong(name, "a timedelta or seconds, from 0 to a thousand years", value)
    return round(seconds * 1_000_000)


def amount(value: object, name: str) -> float:
    """Return a number from 0 to 10**15, such as a sum of money. A bool is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_AMOUNT:
        raise _wrong(name, "a number from 0 to 10**15", value)
    return value


def count(value: object, name: str) -> int:
    """Return an int from 0 up that a record can hold."""
    return whole_number(value, name, most=LARGEST_COUNT)


def text_or_none(value: object, name: str) -> str | None:
    """Return a non-empty str that can be stored, or None. A subclass, such as an enum, becomes plain text."""
    if value is not None and not (isinstance(value, str) and value and (value.isascii() or _is_utf8(value))):
        raise _wrong(name, "a non-empty str without lone surrogates, or None", value)
    return value if value is None or type(value) is str else str.__str__(value)


def _is_utf8(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def mapping_or_none(value: object, name: str) -> Mapping[str, Any] | None:
    """Return a mapping, or None."""
    if value is not None and not isinstance(value, Mapping):
        raise _wrong(name, "a mapping or None", value)
    return value


def function_or_none(value: object, name: str) -> Callable[..., Any] | None:
    """Return a callable, or None."""
    if value is not None and not callable(value):
        raise _wrong(name, "a function or None", value)
    return value


def path_text(value: object, name: str = "path") -> str:
    """Return a file system path as str. An int, which `open` would use as a descriptor, is refused."""
    text = fspath(value) if isinstance(value, str | PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text or not _is_encodable(text):
        given = repr(redacted(value)) if isinstance(value, str) else kind_of(value)
        raise ConfigurationError(f"`{name}` must be a path, as str or pathlib.Path, got {given}")
    return text


def _is_encodable(path: str) -> bool:
    try:
        fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def path_of_keys(value: object) -> tuple[Any, ...]:
    """Return a path in a state, given as one key or several."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence):
        raise UnstorableValue(f"`path` must be a str or a sequence of str, got {quoted(value)}", path="state")
    return tuple(value)


def several(value: object, name: str) -> list[Any]:
    """Return the words that were given: none for None, one, or those of a sequence."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else sequence(value, name)


def sequence(value: object, name: str) -> list[Any]:
    """Return the words of a sequence or set. A str is refused."""
    if not isinstance(value, Sequence | set | frozenset) or isinstance(value, str | bytes):
        raise _wrong(name, "a sequence of words", value)
    return list(value)


def check_options(given: Iterable[str], valid: Sequence[str]) -> None:
    """Raise `ConfigurationError` for an unknown keyword; it names the closest valid option, and all of them."""
    for name in given:
        if name not in valid:
            from difflib import get_close_matches

            hint = "".join(f" did you mean {close!r}?" for close in get_close_matches(name, valid, n=1))
            raise ConfigurationError(f"unknown option {name!r};{hint} valid: {', '.join(valid)}")


def check_metadata(metadata: object) -> dict[str, Any]:
    """Return metadata as a dict with str keys."""
    if not isinstance(metadata, Mapping) or not all(type(key) is str for key in metadata):
        raise UnstorableValue(f"`metadata` must be a mapping with str keys, got {quoted(metadata)}", path="metadata")
    return dict(metadata)


def check_labels(labels: Mapping[Any, Any] | None) -> dict[str, str] | None:
    """Return labels as a dict of str to str, or None."""
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise UnstorableValue(f"`labels` must be a mapping of str to str, got {quoted(labels)}", path="labels")
    for name, value in labels.items():
        if type(name) is not str or type(value) is not str:
            text = f"label names and values must be str, got {quoted(name)}: {quoted(value)}"
            raise UnstorableValue(text, path=f"labels[{quoted(name)}]")
    return dict(labels)


def check_texts(**given: object) -> None:
    """Raise `ConfigurationError` unless each argument is a str."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise ConfigurationError(f"{name} must be a str, got {value!r}")


def check_idempotency_key(key: object) -> str | None:
    """Return an idempotency key, or None."""
    if key is None or (type(key) is str and key):
        return key
    raise _wrong("idempotency_key", "a non-empty str or None", key)


def plain_word(words: Mapping[Any, W], word: object, what: str) -> W:
    """Return the plain word of a status, cause or phase, given as member or word."""
    if (isinstance(word, str) or word is None) and word in words:
        return words[word]
    raise ConfigurationError(f"{quoted(word)} is not a {what}; use one of {', '.join(filter(None, words.values()))}")
