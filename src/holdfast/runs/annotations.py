"""What a function says it returns is registered as storable, so that its results can be recorded."""

import builtins
from collections.abc import Callable
from typing import Any

from holdfast.records.loading import loading


def register_result(function: Callable[..., Any]) -> None:
    """Register the classes that a function's return annotation names, and the classes that their fields name.

    A name that is not defined yet is looked up when a result is recorded.
    """
    hint = getattr(function, "__annotations__", {"return": ...}).get("return")
    if hint is None or _is_builtin(hint):
        return
    with loading():
        from holdfast.codec.discovery import return_annotation
        from holdfast.codec.registry import adopt_named
    adopt_named(return_annotation(function), evaluate=True)


def _is_builtin(hint: Any) -> bool:
    """True for `str` and the like: nothing is loaded for them."""
    if isinstance(hint, str):
        return hasattr(builtins, hint)
    return isinstance(hint, type) and getattr(builtins, hint.__name__, None) is hint
