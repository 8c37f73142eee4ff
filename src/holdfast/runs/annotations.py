"""What a function says it returns is registered as storable, so that its results can be recorded."""

import builtins
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_args, get_type_hints

from holdfast.records.errors import ConfigurationError
from holdfast.records.loading import loading


def register_result(function: Callable[..., Any]) -> None:
    """Register the classes in the function's return annotation that can be and are not yet."""
    try:
        result = get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return  # an annotation that cannot be read now; its class can still be registered by hand
    for cls in _classes(result):
        if getattr(builtins, cls.__name__, None) is not cls:
            _register(cls)


def _register(cls: type) -> None:
    with loading():
        from holdfast.codec.registry import entry_of, is_registrable, register
    if entry_of(cls) is None and is_registrable(cls):
        with suppress(ConfigurationError):
            register(cls)


def _classes(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for inner in get_args(annotation):
        yield from _classes(inner)
