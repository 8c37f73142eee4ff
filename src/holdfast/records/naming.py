"""The name under which others would import a class or function, and what is found under one."""

import sys
from importlib import import_module
from os.path import basename, splitext
from typing import Any

from holdfast.records.errors import ConfigurationError

MAIN = "__main__"


def importable_module(named: Any) -> str:
    """Where a class or function is; in a program's main module, the name that others would import it by.

    So what was stored by `python agent.py` can be read, and gone on with, by whoever imports `agent`.
    """
    module: str = named.__module__
    main = sys.modules.get(MAIN)
    if module != MAIN or main is None:
        return module
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return splitext(basename(file))[0] if file else MAIN  # noqa: PTH119, PTH122  pathlib is loaded where it is needed


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
