"""What a callable takes, and whether it is async."""

from collections.abc import Callable, Mapping
from inspect import BoundArguments, Parameter, signature
from inspect import iscoroutinefunction as is_async
from typing import Any

from msgspec import Struct

_PLACES = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}

__all__ = ["Parameters", "bound", "is_async", "parameters_of"]


class Parameters(Struct, frozen=True):
    """The parameters of a function."""

    names: tuple[str, ...]
    by_place: bool
    """True if each can be given by its place, so that the names are in the order of the places."""
    any_keyword: bool
    """True if it takes keywords of any name."""


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Return what a callable takes; raises TypeError or ValueError for one that does not say."""
    taken = signature(function).parameters
    kinds = {each.kind for each in taken.values()}
    return Parameters(tuple(taken), kinds <= _PLACES, Parameter.VAR_KEYWORD in kinds)


def bound(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> BoundArguments:
    """Return the arguments of a call by their parameters; raises TypeError if the call is not possible."""
    try:
        return signature(function).bind(*arguments, **named)
    except TypeError as error:
        raise TypeError(f"{getattr(function, '__qualname__', function)}: {error}") from None
