"""The names that other programs would import a class or function by."""

import sys
from functools import partial
from os.path import basename, splitext
from typing import Any

MAIN = "__main__"


def importable_module(named: Any) -> str:
    """Return the module of a class or function; for a program's main module, the name that others import it by.

    So a program that imports `agent` can read and resume what `python agent.py` stored.
    """
    module: str = named.__module__
    main = sys.modules.get(MAIN)
    if module != MAIN or main is None:
        return module
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return splitext(basename(file))[0] if file else MAIN  # noqa: PTH119, PTH122  pathlib is loaded where it is needed


def name_of(function: Any) -> str:
    """Return a name that is the same in every process: a partial's function, a callable object's class."""
    while isinstance(function, partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{importable_module(named)}:{named.__qualname__}"
