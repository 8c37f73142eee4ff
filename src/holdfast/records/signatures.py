"""What a callable of any kind takes, as the inspect module tells it. Loaded where `callables` cannot tell."""

from collections.abc import Callable, Mapping
from inspect import BoundArguments, Parameter, iscoroutinefunction, signature
from typing import Any

from holdfast.records.callables import Parameters

_PLACES = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}

__all__ = ["bound", "inspected", "iscoroutinefunction"]


def inspected(function: Callable[..., Any]) -> Parameters:
    """The parameters of a callable; raises TypeError or ValueError for one that does not tell."""
    taken = signature(function).parameters
    kinds = {each.kind for each in taken.values()}
    return Parameters(tuple(taken), kinds <= _PLACES, Parameter.VAR_KEYWORD in kinds)


def bound(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> BoundArguments:
    """The arguments of a call by their parameters; TypeError if it could not be called so."""
    try:
        return signature(function).bind(*arguments, **named)
    except TypeError as error:
        raise TypeError(f"{getattr(function, '__qualname__', function)}: {error}") from None
