"""All trials of one function, one after the other: undisturbed, then killed at each of its points."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from holdfast.chaos.trial import Broken, Laboratory, Seen
from holdfast.chaos.verdict import Row, judge
from holdfast.records.errors import ConfigurationError
from holdfast.stores.locations import locate
from holdfast.testing.crash import sampled


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What to torture, and how."""

    target: str
    arguments: tuple[Any, ...] = ()
    answers: dict[str, str] = {}
    store: str | None = None
    timeout: float = 60
    max_points: int | None = None


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """How the function did."""

    target: str
    result: str
    points: int
    """How many points there are."""
    note: str
    """What has to be said first; empty if nothing has."""
    rows: list[Row]
    sentence: str
    ok: bool


Progress = Callable[[int, int], None]
STEADY = ""
MOVING_STEPS = (
    "Two undisturbed runs gave different results ({0} and {1}), because its steps do. That is fine:"
    " each killed run is compared with a replay of its own steps."
)
MOVING_BODY = (
    "Two runs from the very same recorded steps gave different results ({0} and {1}): it depends on something outside"
    " of its steps, such as the time or chance."
)


def torture(plan: Plan, progress: Progress) -> Verdict:
    """Try it: undisturbed twice, then once for each point."""
    if plan.store is not None and locate(plan.store)[0] == "memory":
        raise ConfigurationError("memory: does not survive a killed process; give another store, or none")
    with TemporaryDirectory(prefix="holdfast-chaos-") as directory:
        laboratory = Laboratory(
            Path(directory),
            plan.store,
            plan.timeout,
            target=plan.target,
            arguments=plan.arguments,
            answers=plan.answers,
        )
        return _Torture(plan, laboratory).verdict(progress)


class _Torture:
    def __init__(self, plan: Plan, laboratory: Laboratory) -> None:
        self._plan = plan
        self._laboratory = laboratory
        self._home = laboratory.new_namespace()
        self._calm = self._undisturbed(self._home)

    def _undisturbed(self, namespace: str) -> Seen:
        seen = self._laboratory.live(namespace)
        if seen.end is None or seen.end[0] != "returned":
            raise Broken(f"{self._plan.target} cannot be tried, undisturbed it fails: {seen.shown or seen.trouble}")
        return seen

    def verdict(self, progress: Progress) -> Verdict:
        """The trials, and what they say."""
        again = self._undisturbed(self._laboratory.new_namespace())
        moving = again.end != self._calm.end
        if moving:
            replayed = self._laboratory.live(self._home, replay=True)
            if replayed.end != self._calm.end:
                return self._concluded(MOVING_BODY.format(self._calm.shown, replayed.shown), [])
        note = MOVING_STEPS.format(self._calm.shown, again.shown) if moving else STEADY
        points = sampled(len(self._calm.points), self._plan.max_points)
        rows = []
        for done, point in enumerate(points):
            progress(done, len(points))
            rows.append(self._trial(point, replay=moving))
        progress(len(points), len(points))
        return self._concluded(note, rows)

    def _trial(self, point: int, *, replay: bool) -> Row:
        """Kill it at a point, and start it again until it ends."""
        namespace = self._laboratory.new_namespace()
        first = self._laboratory.live(namespace, point)
        second = self._laboratory.live(namespace) if first.killed else first
        expected = self._laboratory.live(namespace, replay=True) if replay else self._calm
        return judge(point, self._calm, first, second if first.killed else _after(first), expected)

    def _concluded(self, note: str, rows: list[Row]) -> Verdict:
        bad = [row for row in rows if not row.ok]
        return Verdict(
            target=self._plan.target,
            result=self._calm.shown,
            points=len(self._calm.points),
            note=note,
            rows=rows,
            sentence=_sentence(self._plan.target, rows, bad),
            ok=bool(rows) and not bad,
        )


def _after(only: Seen) -> Seen:
    """The end of a life that was not killed: nothing is done after it."""
    return Seen(end=only.end, shown=only.shown, trouble=only.trouble)


def _sentence(target: str, rows: list[Row], bad: list[Row]) -> str:
    if not rows:
        return f"{target} cannot survive: it gives another result each time it is resumed."
    if not bad:
        return f"{target} survives: killed at {len(rows)} points, always the same result, no finished step done again."
    return f"{target} does not survive: {len(bad)} of {len(rows)} kills made a difference."
