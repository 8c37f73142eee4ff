"""Figures of what the library weighs: the CPU time of its import, and the room its installation takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from benchmarks.alone import python_alone
from benchmarks.figure import Figure

TRIES = 7
_UNWANTED = ("COVERAGE_", "PYTHONDONTWRITEBYTECODE")  # an import is measured as users have it: from its bytecode
_TIMED = "import time; start = time.process_time(); import {}; print(time.process_time() - start)"


def weight() -> list[Figure]:
    """The import beyond Python itself, and the core with its dependencies, without extras and bytecode."""
    note = f"least of {TRIES}, each in a new interpreter"
    return [
        Figure(
            "import holdfast, CPU", _import_milliseconds(python_alone(), "holdfast"), floor=40, unit="ms", note=note
        ),
        Figure(
            "the same beside typing_extensions",
            _import_milliseconds(sys.executable, "holdfast"),
            floor=40,
            unit="ms",
            note=note,
        ),
        Figure(
            "import holdfast.sync, CPU", _import_milliseconds(python_alone(), "holdfast.sync"), unit="ms", note=note
        ),
        _installed(),
    ]


def _import_milliseconds(python: str, module: str) -> float:
    """The least of several tries, since a busy machine only adds to it. The first one writes the bytecode."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED)}
    command = [python, "-c", _TIMED.format(module)]
    tries = [subprocess.run(command, capture_output=True, check=True, env=environment).stdout for _ in range(TRIES)]
    return min(map(float, tries)) * 1e3


def _installed() -> Figure:
    import holdfast

    sizes = {"holdfast": _bytes(Path(holdfast.__file__).parent.rglob("*"))}
    for requirement in distribution("holdfast").requires or ():
        name, _, condition = requirement.partition(";")
        if "extra" not in condition:
            found = distribution(re.split(r"[^\w.-]", name)[0])
            sizes[found.name] = _bytes(Path(str(found.locate_file(path))) for path in found.files or ())
    note = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in sizes.items())
    return Figure("the core with its dependencies, on disk", sum(sizes.values()) / 1e6, 5, unit="MB", note=note)


def _bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())
