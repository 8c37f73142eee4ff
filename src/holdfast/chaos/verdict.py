"""Kill a function at each of its crash points, and judge each trial by an undisturbed one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from holdfast.chaos.order import Plan
from holdfast.chaos.trial import Broken, ChaosTrial, Laboratory
from holdfast.records.errors import ConfigurationError
from holdfast.stores.locations import locate
from holdfast.testing.crash_engine import Enumeration, sampled

Progress = Callable[[int, int], None]
MOVING_STEPS = (
    "Two undisturbed runs gave different results ({0} and {1}), because their steps did. That is fine: each killed run"
    " is compared with a replay of its own steps."
)
MOVING_BODY = (
    "Two runs from the same recorded steps gave different results ({0} and {1}): the function depends on something"
    " outside of its steps, such as the time or chance."
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: where it was killed, and how it ended."""

    point: int
    what: str
    reached: bool
    """False if the run ended before it came to that point: the order of its effects varies."""
    result_equal: bool
    executed_again: dict[str, int]
    """The steps that were executed more often than undisturbed, and how often."""
    keys_equal: bool
    without_key: list[str]
    """Those of them whose functions do not take the idempotency key."""
    problems: list[str]

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """How the function did."""

    target: str
    result: str
    points: int
    """How many crash points there are."""
    note: str
    """What to say first; may be empty."""
    rows: list[Row]
    sentence: str
    ok: bool


def kill_everywhere(plan: Plan, progress: Progress) -> Verdict:
    """Run the function undisturbed twice, then kill it once at each crash point."""
    if plan.store is not None and locate(plan.store)[0] == "memory":
        raise ConfigurationError("a memory: store does not survive a killed process; give another store, or none")
    with TemporaryDirectory(prefix="holdfast-chaos-") as directory:
        return _Verdict(plan, Laboratory(Path(directory), plan)).reached(progress)


class _Verdict:
    def __init__(self, plan: Plan, laboratory: Laboratory) -> None:
        self._plan = plan
        self._laboratory = laboratory
        self._trials = Enumeration(laboratory.run)
        self._calm = self._sound(self._trials.undisturbed)

    def _sound(self, undisturbed: ChaosTrial) -> ChaosTrial:
        if undisturbed.failure:
            raise Broken(f"{self._plan.target} fails without being killed: {undisturbed.failure}")
        return undisturbed

    def reached(self, progress: Progress) -> Verdict:
        """Run the trials, and conclude."""
        calm, note = self._calm, ""
        again = self._sound(self._laboratory.run(()))
        moving = again.end != calm.end
        if moving:
            replayed = self._laboratory.replay(calm)
            if replayed.end != calm.end:
                return self._concluded(MOVING_BODY.format(calm.shown, replayed.shown), [])
            note = MOVING_STEPS.format(calm.shown, again.shown)
        count = len(sampled(len(calm.points), self._plan.max_points))
        rows: list[Row] = []
        progress(0, count)
        for trial in self._trials.singles(self._plan.max_points):
            rows.append(judge(trial, calm, self._laboratory.replay(trial) if moving else calm))
            progress(len(rows), count)
        return self._concluded(note, rows)

    def _concluded(self, note: str, rows: list[Row]) -> Verdict:
        target, bad_count = self._plan.target, sum(not row.ok for row in rows)
        if not rows:
            sentence = f"{target} cannot survive: it gives another result each time it is resumed."
        elif bad_count:
            sentence = f"{target} does not survive: {bad_count} of {len(rows)} kills made a difference."
        else:
            survived = f"killed at {len(rows)} points, always the same result, no finished step done again"
            sentence = f"{target} survives: {survived}."
        return Verdict(
            target=target,
            result=self._calm.shown,
            points=len(self._calm.points),
            note=note,
            rows=rows,
            sentence=sentence,
            ok=bool(rows) and not bad_count,
        )


def judge(trial: ChaosTrial, calm: ChaosTrial, expected: ChaosTrial) -> Row:
    """Compare a trial with the undisturbed one, and its end with the expected one."""
    again = {step: count for step, count in trial.executions.items() if count > max(calm.executions[step], 1)}
    return Row(
        point=trial.crash_at[0],
        what=next(iter((*trial.crashes, *trial.points[-1:])), ""),
        reached=bool(trial.crashes),
        result_equal=trial.end == expected.end,
        executed_again={trial.name_of(step): count for step, count in again.items()},
        keys_equal=all(len(keys) == 1 for keys in trial.keys.values()),
        without_key=[trial.name_of(step) for step in again if step not in trial.with_key],
        problems=list(_problems(trial, calm, expected)),
    )


def _problems(trial: ChaosTrial, calm: ChaosTrial, expected: ChaosTrial) -> Iterator[str]:
    if trial.end != expected.end:
        yield trial.failure or f"its result is {trial.shown}, but undisturbed it is {expected.shown}"
    yield from dict.fromkeys(trial.problems)
    yield from trial.step_problems(calm)
    for what, times in trial.outside.items():
        if times > max(calm.outside[what], 1):
            yield f"outside of any step: {what}, done {times} times, undisturbed {calm.outside[what]}; put it in a step"
    yield from _missed_steps(trial)


def _missed_steps(trial: ChaosTrial) -> Iterator[str]:
    """Find steps of the killed life that the last one did not reach, except those within another step.

    A last life that reached no step had nothing left to do.
    """
    reached = trial.replayed | trial.executed_now
    if not reached or trial.failure:
        return
    for step in sorted({*trial.stopped_executions, *trial.acknowledged} - reached):
        if "/" not in step[1]:
            yield (
                f"when it was started again it took other steps, and not {trial.name_of(step)}: it depends on something"
                " outside of its steps, such as the time or chance"
            )
