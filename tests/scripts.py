"""Scripts of tests as real processes."""

import subprocess
import sys
from pathlib import Path

from patience import GIVE_UP_SECONDS


def start(script: Path, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", str(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]", code: int = 0) -> str:
    printed, errors = process.communicate(timeout=GIVE_UP_SECONDS)
    assert process.returncode == code, errors
    return printed.strip()
