"""Trials: the function in a child process, killed at a point or not at all, and what was seen of it."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from holdfast.chaos.order import HANDED, ORDER, Note, Order
from holdfast.records.errors import ConfigurationError, HoldfastError
from holdfast.stores.locations import VARIABLE

KILLED = -9


class Broken(HoldfastError):
    """The function cannot be tried: it does not load, asks what nobody answers, or fails undisturbed."""


class Seen(msgspec.Struct):
    """What one life, or several, did."""

    points: list[str] = []
    executed: Counter[str] = msgspec.field(default_factory=Counter)
    """How often each step's function was called, by key."""
    keys: dict[str, set[str]] = {}
    """The idempotency keys that each step was executed with."""
    handed: set[str] = set()
    """The steps whose functions were given their idempotency key."""
    replayed: set[str] = set()
    """The steps that it came by, and found to have an end in the store, or to be in doubt."""
    outside: Counter[str] = msgspec.field(default_factory=Counter)
    """Effects outside of any step."""
    recorded: set[str] = set()
    """The steps that had a result in the store when this life began."""
    end: tuple[str, str] | None = None
    """`returned` and the result in an encoding, or `raised` and the error; None if it did not come to an end."""
    shown: str = ""
    """The end as people read it."""
    killed: bool = False
    trouble: str = ""
    """Why it did not end, if nobody killed it."""


def seen_in(notes: Iterable[Note]) -> Seen:
    """The notes of one life, counted."""
    seen = Seen()
    for note in notes:
        if note.kind == "point":
            seen.points.append(note.what)
        elif note.kind == "executes":
            seen.executed[note.what] += 1
            seen.keys.setdefault(note.what, set()).add(note.key)
            if note.value == HANDED:
                seen.handed.add(note.what)
        elif note.kind == "replays":
            seen.replayed.add(note.what)
        elif note.kind == "outside":
            seen.outside[note.what] += 1
        elif note.kind == "recorded":
            seen.recorded.add(note.what)
        elif note.kind == "refused":
            raise ConfigurationError(note.what)
        elif note.kind == "unanswered":
            choice = f"one of: {note.value}" if note.value else "a value"
            raise ConfigurationError(f"it asks {note.what!r}, and waits: give --answer '{note.what}=...' ({choice})")
        else:
            seen.end, seen.shown = (note.kind, note.value or note.what), note.what
    return seen


class Laboratory:
    """Where trials are made: each in a namespace of its own, so that none knows of another."""

    def __init__(self, directory: Path, store: str | None, timeout: float, **order: Any) -> None:
        self._directory = directory
        self._store = store if store is not None else str(directory / "chaos.db")
        self._timeout = timeout
        self._order = order
        self._prefix = f"chaos-{os.urandom(4).hex()}"
        self._numbers = count(1)

    def new_namespace(self) -> str:
        """A namespace that no trial has used."""
        return f"{self._prefix}-{next(self._numbers)}"

    def live(self, namespace: str, kill_at: int = 0, *, replay: bool = False) -> Seen:
        """One life of the function."""
        report = self._directory / f"report-{next(self._numbers)}.jsonl"
        report.touch()
        order = Order(
            directory=os.getcwd(),  # noqa: PTH109  sys.path holds str
            store=self._store,
            namespace=namespace,
            report=str(report),
            kill_at=kill_at,
            replay=replay,
            **self._order,
        )
        code, last_words = self._run(order)
        seen = seen_in(msgspec.json.decode(line, type=Note) for line in report.read_bytes().splitlines())
        seen.killed = code == KILLED
        if seen.end is None and not seen.killed:
            seen.trouble = last_words or f"the process ended by itself, with exit code {code}"
        return seen

    def _run(self, order: Order) -> tuple[int, str]:
        """The exit code, and the last line of what it said; what the function prints is nobody's concern."""
        command = [sys.executable, "-m", "holdfast.chaos.child"]
        own = self._directory / f"{order.namespace}.db"  # for agents and sessions within it that name no store
        # In a variable, not an argument: the store's URL may have a password, and every user can list arguments.
        ordered = {ORDER: msgspec.json.encode(order).decode(), VARIABLE: str(own)}
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **ordered}
        try:
            done = subprocess.run(  # noqa: S603  our own module, by the interpreter that runs this
                command,
                capture_output=True,
                timeout=self._timeout,
                check=False,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return 1, f"it did not end within {self._timeout:g} s (--timeout)"
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return done.returncode, lines[-1] if lines else ""
