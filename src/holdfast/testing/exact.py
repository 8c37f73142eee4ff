"""Compare values exactly: 1, True and 1.0 differ, so do -0.0 and 0.0; the order of keys counts; nan equals nan."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.records.shown import quoted


def difference(expected: Any, actual: Any, path: str = "state") -> str | None:
    """Describe the first difference of two values in a sentence; None if they are exactly the same."""
    if type(expected) is not type(actual):
        before, after = (f"{type(each).__name__} {quoted(each):.100}" for each in (expected, actual))
        return f"{path}: {before} became {after}"
    if isinstance(expected, Mapping):
        return _mappings(expected, actual, path)
    if isinstance(expected, list | tuple):
        return _sequences(expected, actual, path)
    if isinstance(expected, set | frozenset):
        return _sets(expected, actual, path)
    if isinstance(expected, msgspec.Struct):
        return _structs(expected, actual, path)
    return None if _same_leaf(expected, actual) else f"{path}: {quoted(expected):.200} became {quoted(actual):.200}"


def _mappings(expected: Mapping[Any, Any], actual: Mapping[Any, Any], path: str) -> str | None:
    keys, others = list(expected), list(actual)
    if len(keys) != len(others):
        return f"{path}: keys {quoted(keys):.200} became {quoted(others):.200}"
    for key, other in zip(keys, others, strict=True):
        found = difference(key, other, f"a key of {path}") or difference(
            expected[key], actual[other], f"{path}[{quoted(key)}]"
        )
        if found:
            return found
    return None


def _sequences(expected: Any, actual: Any, path: str) -> str | None:
    if len(expected) != len(actual):
        return f"{path}: {len(expected)} items became {len(actual)}"
    for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
        found = difference(one, other, f"{path}[{index}]")
        if found:
            return found
    return None


def _structs(expected: msgspec.Struct, actual: msgspec.Struct, path: str) -> str | None:
    fields = expected.__struct_fields__
    found = (difference(getattr(expected, name), getattr(actual, name), f"{path}.{name}") for name in fields)
    return next(filter(None, found), None)


def _sets(expected: Any, actual: Any, path: str) -> str | None:
    """Compare without order: each member needs an exactly equal one."""
    left = list(actual)
    for member in expected:
        match = next((other for other in left if difference(member, other) is None), left)
        if match is left:
            return f"{path}: {quoted(member):.100} is missing"
        left.remove(match)
    return f"{path}: {quoted(left):.200} is one too many" if left else None


def _same_leaf(expected: Any, actual: Any) -> bool:
    if type(expected) in {str, bytes, int, bool, type(None)}:
        return bool(expected == actual)
    if isinstance(expected, float):
        if math.isnan(expected) or math.isnan(actual):
            return math.isnan(expected) and math.isnan(actual)
        return bool(expected == actual) and math.copysign(1, expected) == math.copysign(1, actual)
    return bool(expected == actual) and quoted(expected) == quoted(actual)


def assert_exact(expected: Any, actual: Any, what: str = "state") -> None:
    """Raise an AssertionError with the first difference, if there is one."""
    found = difference(expected, actual, what)
    assert found is None, found
