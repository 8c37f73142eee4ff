"""The parameters of a callable, and whether it is async."""

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
    """True if all can be passed by position, in the order of the names."""
    any_keyword: bool
    """True if it accepts any keyword."""


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Return the parameters of a callable; raises TypeError or ValueError if it has no signature."""
    taken = signature(function).parameters
    kinds = {each.kind for each in taken.values()}
    return Parameters(tuple(taken), kinds <= _PLACES, Parameter.VAR_KEYWORD in kinds)


def bound(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> BoundArguments:
    """Return the arguments of a call by parameter; raises TypeError if they do not fit."""
    try:
        return signature(function).bind(*arguments, **named)
    except TypeError as error:
        raise TypeError(f"{getattr(function, '__qualname__', function)}: {error}") from None
