"""An environment that holds Holdfast and its dependencies only, as `pip install holdfast` makes it.

A start is measured there: msgspec loads typing_extensions where some peer has brought it, which takes longer than to
load msgspec itself.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_HOME = _ROOT / ".venv-alone"


@cache
def python_alone() -> str:
    """Its interpreter. It is made here, unless it is there and current."""
    python, stamp, project = _HOME / "bin" / "python", _HOME / ".current", _ROOT / "pyproject.toml"
    if not stamp.exists() or stamp.stat().st_mtime < project.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(_HOME)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", str(_ROOT)]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        stamp.touch()
    return str(python)
