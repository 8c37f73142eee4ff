"""Trials in child processes: each life of the function is one, killed at a crash point or not at all."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import msgspec

from holdfast.chaos.killed_life import name_of
from holdfast.chaos.order import ORDER, WITH_KEY, Note, Order, Plan
from holdfast.records.errors import ConfigurationError, HoldfastError
from holdfast.stores.locations import VARIABLE
from holdfast.testing.crash_engine import StepId, Trial, run_lives

KILLED = -9


class Broken(HoldfastError):
    """The function cannot be tried: it fails without being killed."""


class ChaosTrial(Trial):
    """What the children of one trial wrote down."""

    namespace: str = ""
    with_key: set[StepId] = msgspec.field(default_factory=set)
    """The steps whose functions take their idempotency key."""
    replayed: set[StepId] = msgspec.field(default_factory=set)
    """The steps that the last life replayed from the store, or found in doubt."""
    outside: Counter[str] = msgspec.field(default_factory=Counter)
    """Effects outside of any step."""
    result: str = ""
    """The encoded result, to compare."""
    shown: str = ""
    """The result for people."""
    failure: str = ""
    """Why there is no result."""

    @property
    def end(self) -> tuple[str, str]:
        """What makes two ends equal."""
        return self.result, self.failure

    def name_of(self, step: StepId) -> str:
        """Return the name of a step without its fingerprint."""
        return name_of(step[1])

    def begin_life(self) -> None:
        """Forget what belongs to the previous life alone."""
        super().begin_life()
        self.replayed.clear()

    def read(self, notes: Iterable[Note]) -> None:
        """Take in what one child wrote down."""
        for note in notes:
            if note.kind == "returned":
                self.result, self.shown, self.failure = note.value, note.what, ""
            elif note.kind == "raised":
                self.failure = f"it raised {note.what}"
            elif note.kind == "point":
                self.points.append(note.what)
            elif note.kind == "outside":
                self.outside[note.what] += 1
            else:
                self._read_step(note, (note.thread, note.what))

    def _read_step(self, note: Note, step: StepId) -> None:
        if note.kind == "executes":
            self.executes(step, note.key)
            if note.value == WITH_KEY:
                self.with_key.add(step)
        elif note.kind == "replays":
            self.replayed.add(step)
        elif note.kind == "recorded":
            self.acknowledged.add(step)
        elif note.kind == "unanswered":
            choice = f"one of: {note.value}" if note.value else "a value"
            raise ConfigurationError(f"it asks {note.what!r}, and waits: give --answer '{note.what}=...' ({choice})")
        else:
            raise ConfigurationError(note.what)


class Laboratory:
    """Runs trials, each in a new namespace, so that they are independent of each other."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._directory = directory
        self._plan = plan
        self._store = plan.store if plan.store is not None else str(directory / "chaos.db")
        self._prefix = f"chaos-{os.urandom(4).hex()}"
        self._numbers = count(1)

    def run(self, crash_at: tuple[int, ...]) -> ChaosTrial:
        """Kill the function at these points, each in the life that follows the one before; then let it end."""
        trial = ChaosTrial(crash_at=crash_at, namespace=f"{self._prefix}-{next(self._numbers)}")
        return run_lives(trial, lambda _, point: self._live(trial, point))

    def replay(self, recorded: ChaosTrial) -> ChaosTrial:
        """Run the function over the steps that a trial has recorded."""
        trial = ChaosTrial(namespace=recorded.namespace)
        self._live(trial, replay=True)
        return trial

    def _live(self, trial: ChaosTrial, kill_at: int = 0, *, replay: bool = False) -> bool:
        report = self._directory / f"report-{next(self._numbers)}.jsonl"
        report.touch()
        order = Order(
            plan=self._plan,
            directory=os.getcwd(),  # noqa: PTH109  sys.path holds str
            store=self._store,
            namespace=trial.namespace,
            report=str(report),
            kill_at=kill_at,
            replay=replay,
        )
        code, trial.failure = self._run_child(order)
        trial.read(msgspec.json.decode(line, type=Note) for line in report.read_bytes().splitlines())
        return code == KILLED and len(trial.points) == kill_at

    def _run_child(self, order: Order) -> tuple[int, str]:
        """Return the exit code, and why the process ended, should its report not say so. Its output is dropped."""
        own = self._directory / f"{order.namespace}.db"  # for agents and sessions within it that name no store
        # In a variable, not an argument: the store's URL may have a password, and every user can list arguments.
        variables = {ORDER: msgspec.json.encode(order).decode(), VARIABLE: str(own), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "holdfast.chaos.child"],
                capture_output=True,
                timeout=self._plan.timeout,
                check=False,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **variables},
            )
        except subprocess.TimeoutExpired:
            return 1, f"it did not end within {self._plan.timeout:g} s (--timeout)"
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return done.returncode, lines[-1] if lines else f"the process ended by itself, with exit code {done.returncode}"
