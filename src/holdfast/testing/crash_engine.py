"""The engine of all crash tests: run a function undisturbed, stop it at each crash point, start it again, and compare.

A trial is one or more lives of the function. `crash_everywhere` runs them within this process and stops them with an
exception (`crash_case.py`); `holdfast chaos` runs each in a child process and kills it (`holdfast.chaos.trial`).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Generic, TypeAlias, TypeVar

import msgspec

StepId: TypeAlias = tuple[str, str]
"""A thread id, and the key of a step."""


class Trial(msgspec.Struct, kw_only=True):
    """What was seen of one trial."""

    crash_at: tuple[int, ...] = ()
    """The crash point to stop each life at, by number; the life after the last one runs to its end."""
    crashes: list[str] = []
    """The names of the points at which lives were stopped."""
    points: list[str] = []
    """The points of the last life."""
    executions: Counter[StepId] = msgspec.field(default_factory=Counter)
    """How often each step was executed."""
    stopped_executions: Counter[StepId] = msgspec.field(default_factory=Counter)
    """How many of the stopped lives executed each step."""
    keys: dict[tuple[StepId, int], set[str]] = {}
    """The idempotency keys that each step was executed with, for each time that a rollback undid it."""
    acknowledged: set[StepId] = set()
    """The steps whose results are stored."""
    executed_now: set[StepId] = set()
    """The steps that the current life executed."""
    problems: list[str] = []

    def executes(self, step: StepId, idempotency_key: str, undone_count: int = 0) -> None:
        """Record that the function of a step is called."""
        self.executions[step] += 1
        self.executed_now.add(step)
        self.keys.setdefault((step, undone_count), set()).add(idempotency_key)
        if step in self.acknowledged and not undone_count:
            self.problems.append(f"step {self.name_of(step)} ran again after it was acknowledged")

    def name_of(self, step: StepId) -> str:
        """Return the name of a step in a problem."""
        return repr(step[1])

    def begin_life(self) -> None:
        """Forget what belongs to the previous life alone."""
        self.points = []
        self.executed_now.clear()

    def end_life(self, *, stopped: bool) -> None:
        """Record whether the life was stopped at its last point."""
        if stopped:
            self.crashes.append(self.points[-1])
            self.stopped_executions.update(self.executed_now)

    def step_problems(self, undisturbed: "Trial") -> Iterator[str]:
        """Find steps that ran too often, or with another idempotency key. A crash allows what it stopped once more."""
        for step, count in self.executions.items():
            most = max(undisturbed.executions[step], 1) + self.stopped_executions[step]
            if count > most:
                yield f"step {self.name_of(step)} ran {count} times, expected at most {most}"
        for (step, _), keys in self.keys.items():
            if len(keys) > 1:
                yield f"step {self.name_of(step)} ran with {len(keys)} different idempotency keys"


T = TypeVar("T", bound=Trial)


def run_lives(trial: T, live: Callable[[int, int], bool]) -> T:
    """Run the lives of a trial: `live(number, crash_at)` returns True if the life was stopped at its crash point."""
    for number, crash_at in enumerate((*trial.crash_at, 0), 1):
        trial.begin_life()
        stopped = live(number, crash_at)
        trial.end_life(stopped=stopped)
        if not stopped:
            break
    return trial


class Enumeration(Generic[T]):
    """An undisturbed trial, then one for every crash point, then some with two crashes in a row.

    `run` executes the trial that is stopped at the given points.
    """

    def __init__(self, run: Callable[[tuple[int, ...]], T]) -> None:
        self._run = run
        self.undisturbed = run(())
        self._next_counts: dict[int, int] = {}

    def singles(self, max_points: int | None = None) -> Iterator[T]:
        """Run a trial for each point, or for up to `max_points` of them at even distances."""
        for point in sampled(len(self.undisturbed.points), max_points):
            trial = self._run((point,))
            self._next_counts[point] = len(trial.points)
            yield trial

    def possible_pairs(self) -> list[tuple[int, int]]:
        """Return each tried point with each point of the life that followed it."""
        return [(first, second) for first, count in self._next_counts.items() for second in range(1, count + 1)]

    def pairs(self, most: int | None, seed: int) -> Iterator[T]:
        """Run a trial for up to `most` of the possible pairs, drawn by `seed`; None for all."""
        drawn = self.possible_pairs()
        if most is not None and most < len(drawn):
            drawn = sorted(Random(seed).sample(drawn, most))  # noqa: S311  the same each time
        yield from map(self._run, drawn)


def sampled(count: int, most: int | None) -> list[int]:
    """Return the numbers of the points to try: all, or `most` at even distances with the first and the last."""
    if most is None or most >= count:
        return list(range(1, count + 1))
    if most == 1:
        return [(count + 1) // 2]
    return [1 + place * (count - 1) // (most - 1) for place in range(most)]
