"""What a user names in his own program, such as `agent:support`: imported, and found there."""

from importlib import import_module
from typing import Any

from holdfast.records.errors import ConfigurationError


def find_named(text: str) -> Any:
    """What `module:name` names, or the module; `ConfigurationError` if there is no such thing."""
    module_name, _, path = text.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigurationError("give MODULE:FUNCTION, such as agent:support")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f"there is no module {module_name!r} here") from error
    for name in path.split(".") if path else ():
        if not hasattr(found, name):
            raise ConfigurationError(f"{module_name} has no {name!r}")
        found = getattr(found, name)
    return found
