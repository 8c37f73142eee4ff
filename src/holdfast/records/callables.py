"""What a function takes, and whether it is async: read off its code where it is an ordinary one.

The inspect module knows about every kind of callable, and is asked about all others. To load it takes a good part of
the time in which a new process is back at its step.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from msgspec import Struct

from holdfast.records.loading import loading

_POSITIONAL, _KEYWORDS, _COROUTINE = 0x04, 0x08, 0x80  # flags of a code object, as the inspect module names them


class Parameters(Struct, frozen=True):
    """The parameters of a function."""

    names: tuple[str, ...]
    by_place: bool
    """True if each can be given by its place, so that the names are in the order of the places."""
    any_keyword: bool
    """True if it takes keywords of any name."""


def is_async(function: Callable[..., Any]) -> bool:
    """True of an `async def`."""
    if _is_ordinary(function):
        return bool(function.__code__.co_flags & _COROUTINE)
    with loading():
        from holdfast.records.signatures import iscoroutinefunction
    return iscoroutinefunction(function)


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """What a function takes; raises TypeError or ValueError for a callable that does not tell."""
    if not _is_ordinary(function):
        with loading():
            from holdfast.records.signatures import inspected
        return inspected(function)
    code = function.__code__
    has_rest, any_keyword = bool(code.co_flags & _POSITIONAL), bool(code.co_flags & _KEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + has_rest + any_keyword
    return Parameters(code.co_varnames[:count], count == code.co_argcount, any_keyword)


def _is_ordinary(function: Any) -> bool:
    """True of a `def` to which nothing was added that could say otherwise, as decorators do."""
    return type(function) is FunctionType and not function.__dict__
