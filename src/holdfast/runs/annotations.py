"""The classes that annotations of users' functions name are registered as storable: results, messages."""

from collections.abc import Callable
from typing import Any

from holdfast.codec.discovery import Annotation, caller_names, return_annotation
from holdfast.codec.registry import adopt_named
from holdfast.records.errors import ConfigurationError


def register_result(function: Callable[..., Any]) -> None:
    """Register the classes that a function's return annotation names, and the classes that their fields name.

    A name that is not defined yet is looked up when a result is recorded.
    """
    adopt_named(return_annotation(function), evaluate=True)


def annotations_of(function: Callable[..., Any], where: str) -> dict[str, Any]:
    """What the annotations of a function mean, by parameter. The classes that they name are registered as storable.

    `ConfigurationError` for a name that is not defined; `where` begins its text.
    """
    names, local = getattr(function, "__globals__", {}), caller_names()
    found = {
        name: Annotation(hint, names, None, local) for name, hint in getattr(function, "__annotations__", {}).items()
    }
    adopt_named(found.values(), evaluate=True)
    try:
        return {name: annotation.evaluated() for name, annotation in found.items()}
    except NameError as error:
        raise ConfigurationError(f"{where}: an annotation names {error.name!r}, which is not defined here") from error
