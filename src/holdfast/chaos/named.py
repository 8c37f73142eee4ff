"""Objects of a user's program, found by a name such as `agent:support`."""

from importlib import import_module
from typing import Any

from holdfast.records.errors import ConfigurationError


def find_named(text: str) -> Any:
    """Import what `module:name` names, or the module; `ConfigurationError` if it does not exist."""
    module_name, _, path = text.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigurationError("give MODULE:FUNCTION, such as agent:support")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f"no module {module_name!r} found here") from error
    for name in path.split(".") if path else ():
        if not hasattr(found, name):
            raise ConfigurationError(f"{module_name} has no {name!r}")
        found = getattr(found, name)
    return found
