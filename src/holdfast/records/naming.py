"""The name under which others would import a class or function."""

import sys
from functools import partial
from os.path import basename, splitext
from typing import Any

MAIN = "__main__"


def importable_module(named: Any) -> str:
    """Where a class or function is; in a program's main module, the name that others would import it by.

    So what was stored by `python agent.py` can be read and resumed by a program that imports `agent`.
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
    """The same in every process: of a partial, that of its function; of an object that can be called, its class's."""
    while isinstance(function, partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{importable_module(named)}:{named.__qualname__}"
