"""A child process of a benchmark: it says `ready`, begins when told, and answers in lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Child:
    """`python -m MODULE WORDS...`, waiting until it is told to begin."""

    def __init__(self, module: str, *words: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        if self.answer() != "ready":
            raise RuntimeError(f"{module} did not start")

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """The next line of its output; empty if it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def started(module: str, *words: object) -> Child:
    """A child that has begun."""
    child = Child(module, *words)
    child.begin()
    return child
