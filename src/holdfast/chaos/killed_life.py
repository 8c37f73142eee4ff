"""One life in a process that kills itself with SIGKILL at the chosen crash point, and writes down what it does.

Nothing is cleaned up or flushed. Renewals of a lease happen at any time, so they are no crash points.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import msgspec

from holdfast.chaos.order import WITH_KEY, Note
from holdfast.records.head import decode_head
from holdfast.records.rows import Swap
from holdfast.runs.scope import Frame
from holdfast.testing.crash_effects import EffectCounter, step_of

STEP = "executing "


def name_of(key: str) -> str:
    """Return the name in a step's key, without its fingerprint; within another step, after the name of that one."""
    return " / ".join(part.split(":")[0] for part in key.split("/"))


class KilledLife(EffectCounter):
    """Counts crash points in any thread. Also the witness of the steps that are executed."""

    def __init__(self, report: str, kill_at: int) -> None:
        super().__init__(kill_at)
        self._file = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = RLock()
        self._returned = ""
        """The step whose function has returned, and whose result is not yet on its way to the store."""

    def note(self, kind: str, what: str = "", **more: str) -> None:
        """Write a line, in one call: a kill right after it cannot lose it."""
        os.write(self._file, msgspec.json.encode(Note(kind=kind, what=what, **more)) + b"\n")

    def point(self, what: str) -> None:
        """Pass one point, or die there."""
        with self._lock:
            self.note("point", what)
            super().point(what)

    @contextmanager
    def effect(self, what: str) -> Iterator[None]:
        """Pass a point before the block and one after it; remember a step that returned."""
        with super().effect(what):
            yield
            if what.startswith(STEP):
                self._returned = what.removeprefix(STEP)

    def die(self, point: str) -> None:
        """Kill this process."""
        os.kill(os.getpid(), signal.SIGKILL)

    def name_step(self, key: str) -> str:
        """Return the name of a step's call."""
        return STEP + name_of(key)

    def name_write(self, call: str, args: Sequence[Any]) -> str:
        """Return the name of a write; empty for one that renews a lease."""
        if call == "post":
            return f"message {args[1]}"
        swaps: Sequence[Swap] = args[0]
        rows = [row.seq for swap in swaps for row in swap.rows]
        if rows:
            step, self._returned = self._returned, ""
            return f"saving the result of {step}" if step else f"writing row {rows[0]}"
        return ", ".join(filter(None, map(_described, swaps)))

    def executes(self, frame: Frame, *, with_key: bool) -> None:
        """Write down that a step's function is called."""
        thread_id, key = step_of(frame)
        value = WITH_KEY if with_key else ""
        self.note("executes", key, thread=thread_id, key=frame.idempotency_key, value=value)

    def failed(self, frame: Frame) -> None:
        """Write nothing: failed attempts count."""


def _described(swap: Swap) -> str:
    old = decode_head(swap.thread, swap.expected) if swap.expected else None
    if not swap.head.owner:
        return "the release of the thread"
    return "" if old is not None and old.token == swap.head.token else "the claim on the thread"
