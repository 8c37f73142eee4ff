"""An environment that holds Holdfast and its dependencies only, in the versions that are installed here.

A start is measured there: msgspec loads typing_extensions where some peer has brought it, which takes longer than to
load msgspec itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.metadata import requires, version
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_HOME = _ROOT / ".venv-alone"


@cache
def python_alone() -> str:
    """Its interpreter. It is made here, unless it is there and holds these versions."""
    python, stamp = _HOME / "bin" / "python", _HOME / "versions.txt"
    wanted = _versions()
    if not stamp.exists() or stamp.read_text().split() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(_HOME)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted, "-e", str(_ROOT)], check=True, stdout=sys.stderr)
        stamp.write_text("\n".join(wanted))
    return str(python)


def _versions() -> list[str]:
    """What the core depends on, pinned."""
    needed = [each.partition(";") for each in requires("holdfast") or ()]
    names = [re.split(r"[^\w.-]", name)[0] for name, _, condition in needed if "extra" not in condition]
    return [f"{name}=={version(name)}" for name in names]
