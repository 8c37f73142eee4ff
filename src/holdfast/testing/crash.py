"""Crash tests: a scenario is killed at every point at which it touches the world, started again, and must end the same.

    from holdfast.testing import crash_everywhere

    crash_everywhere(support, "Where is my money?")

The process does not really die: `holdfast chaos` kills for real. So what stands in `finally` blocks is still executed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging import getLogger
from random import Random
from typing import Any

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.records.request import Request
from holdfast.testing.crash_case import Case, CaseRunner, Scenario, first_choice
from holdfast.testing.exact import difference
from holdfast.testing.places import MemoryPlace, Place


class Failure(msgspec.Struct, frozen=True):
    """One thing that went wrong in one case."""

    crash_point: str
    going_on: str
    problem: str


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an enumeration did and found."""

    points: list[str]
    """Every point at which the scenario can be killed, in the order of an undisturbed run."""
    point_count: int
    """At so many of them it was killed."""
    case_count: int
    pair_count: int
    """Cases with two crashes in a row."""
    possible_pair_count: int
    result: Any
    """That of the undisturbed run."""
    executions: dict[tuple[str, str], int]
    """How often an undisturbed run executes each step: by thread id and key."""
    failures: list[Failure]

    @property
    def ok(self) -> bool:
        """True if nothing went wrong."""
        return not self.failures

    @property
    def _tried_points(self) -> str:
        every = len(self.points)
        return str(every) if self.point_count == every else f"{self.point_count} of {every}"

    def table(self) -> str:
        """Crash point, what was going on, and what went wrong; the first lines say how much was tried."""
        pairs = f"{self.pair_count} of {self.possible_pair_count} pairs tried"
        problems = f"{len(self.failures)} {'problem' if len(self.failures) == 1 else 'problems'}"
        lines = [f"{problems} in {self.case_count} cases ({self._tried_points} crash points, {pairs})"]
        if self.failures:
            lines += _aligned([("crash point", "going on", "what went wrong"), *map(_row, self.failures)])
        return "\n".join(lines)


def _row(failure: Failure) -> tuple[str, str, str]:
    return failure.crash_point, failure.going_on, failure.problem


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{row[0]:<{first}}  {row[1]:<{second}}  {row[2]}" for row in rows]


def sampled(count: int, most: int | None) -> list[int]:
    """The numbers of the points to try: all, or some at even distances, the first and the last among them."""
    if most is None or most >= count:
        return list(range(1, count + 1))
    if most == 1:
        return [(count + 1) // 2]
    return [1 + place * (count - 1) // (most - 1) for place in range(most)]


def enumerate_crashes(
    scenario: Scenario, *, pairs: int | None = 100, limit: int = 50, max_points: int | None = None
) -> CrashReport:
    """Run a scenario undisturbed, then once for every point at which it can die, and for pairs of points in a row.

    `max_points` is the most points that are tried, at even distances; None for all. `pairs` is the most pairs, drawn by
    the scenario's seed; None for all. The second point of a pair is counted in the life that follows the first crash.
    After `limit` problems nothing more is tried. An error of the undisturbed run is raised as it is.
    """
    with _quiet():
        return _Enumeration(scenario, limit).report(pairs, max_points)


@contextmanager
def _quiet() -> Iterator[None]:
    """Thousands of deaths are no news for the log."""
    logger = getLogger("holdfast")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


class _Enumeration:
    """Cases, one after the other, each compared with the undisturbed one."""

    def __init__(self, scenario: Scenario, limit: int) -> None:
        self._scenario = scenario
        self._limit = limit
        self._case_count = 1
        self._failures: list[Failure] = []
        self._calm = CaseRunner(scenario, ()).run()
        if self._calm.error is not None:
            raise self._calm.error
        self._failures += _failures(self._calm, self._calm)

    def report(self, pairs: int | None, max_points: int | None) -> CrashReport:
        """The single crashes, then as many pairs."""
        singles = [(point,) for point in sampled(len(self._calm.points), max_points)]
        lengths = [len(case.points) for case in self._tried(singles)]
        possible = [
            (*single, second)
            for single, length in zip(singles, lengths, strict=False)
            for second in range(1, length + 1)
        ]
        drawn = possible
        if pairs is not None and pairs < len(possible):
            drawn = sorted(Random(self._scenario.seed).sample(possible, pairs))  # noqa: S311  the same each time
        pair_count = len(list(self._tried(drawn)))
        return CrashReport(
            points=self._calm.points,
            point_count=len(lengths),
            case_count=self._case_count,
            pair_count=pair_count,
            possible_pair_count=len(possible),
            result=self._calm.result,
            executions=dict(self._calm.executions),
            failures=self._failures,
        )

    def _tried(self, plans: Sequence[tuple[int, ...]]) -> Iterator[Case]:
        for crash_at in plans:
            if len(self._failures) >= self._limit:
                return
            case = CaseRunner(self._scenario, crash_at).run()
            self._case_count += 1
            self._failures += _failures(self._calm, case, *crash_at)
            yield case


def _failures(calm: Case, case: Case, *crash_at: int) -> Iterator[Failure]:
    where = "; then ".join(f"{at} {what}" for at, what in zip(crash_at, case.crashes, strict=False)) or "(no crash)"
    going_on = "; then ".join(case.going_on)
    for problem in dict.fromkeys((*_differences(calm, case), *case.problems)):
        yield Failure(where, going_on, problem)


def _differences(calm: Case, case: Case) -> Iterator[str]:
    """What an end must have in common with the undisturbed one, and how often things may be done."""
    if case.error is not None and not case.accepted:
        yield f"it ended with {type(case.error).__name__}: {case.error}"
    if case.error is None:
        if case.result != calm.result:
            yield _difference(calm.result, case.result, "result")
        yield from _different_threads(calm, case)
    yield from _too_often(calm, case)


def _too_often(calm: Case, case: Case) -> Iterator[str]:
    for step, count in case.executions.items():
        most = max(calm.executions[step], 1) + len(case.crashes)
        if count > most:
            yield f"step {step[1]!r} ran {count} times; at most {most} with {len(case.crashes)} crash(es)"
    for (_, name, _), keys in case.keys.items():
        if len(keys) > 1:
            yield f"step {name!r} ran with {len(keys)} different idempotency keys"


def _different_threads(calm: Case, case: Case) -> Iterator[str]:
    for thread_id in {**calm.threads, **case.threads}:
        expected, found = calm.threads.get(thread_id), case.threads.get(thread_id)
        if expected is None or found is None:
            yield f"thread {thread_id!r} is {'missing' if found is None else 'one too many'}"
            continue
        for name in ("status", "state", "steps"):
            if getattr(found, name) != getattr(expected, name):
                yield _difference(getattr(expected, name), getattr(found, name), f"{name} of {thread_id!r}")


def _difference(expected: Any, found: Any, name: str) -> str:
    return difference(expected, found, name) or f"{name}: {expected!r:.200} became {found!r:.200}"


def crash_everywhere(
    function: Callable[..., Any],
    /,
    *args: Any,
    thread_id: str = "crash-test",
    answer: Callable[[Request], Any] = first_choice,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
    accept: type[Exception] | tuple[type[Exception], ...] = (),
    pairs: int | None = 100,
    limit: int = 50,
    max_points: int | None = None,
    seed: int = 0,
    place: Callable[[], Place] = MemoryPlace,
    **named: Any,
) -> CrashReport:
    """Kill a function before and after everything it does to the world, and see that it always ends the same.

    `function` is a durable function of either world, run on `thread_id`; or a plain or async one that takes a store. It
    is run undisturbed, then with a crash at each point, then with two crashes in a row (at most `pairs` of them, drawn
    by `seed`; None for all). After each crash it is started again over what was stored. After `limit` problems nothing
    more is tried. For a function that takes long, `max_points` tries so many points at even distances, not all.

    Questions it asks are answered by `answer(request)` with a choice, or a value where there are no choices. `before()`
    is called before each case and makes the world outside new, `after()` asserts at its end that the world is as it
    should be. `accept` names errors that a case may end with instead, such as `StepInDoubt`.

    Raises an AssertionError with a table unless in every case: the result and all threads are the same; no acknowledged
    step ran again; a step ran at most once more per crash, with the same idempotency key, an effect only after its
    intent was stored; every answer was consumed once; the store verifies, and nothing holds a lease.
    """
    _check_no_loop()
    scenario = Scenario(
        function=function,
        arguments=args,
        named=named,
        thread_id=thread_id,
        answer=answer,
        before=before,
        after=after,
        accept=accept if isinstance(accept, tuple) else (accept,),
        place=place,
        seed=seed,
    )
    report = enumerate_crashes(scenario, pairs=pairs, limit=limit, max_points=max_points)
    if not report.ok:
        raise AssertionError(report.table())
    return report


def _check_no_loop() -> None:
    from asyncio import get_running_loop

    try:
        get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError("crash_everywhere runs event loops of its own; call it from a plain function")


__all__ = ["CrashReport", "Failure", "Scenario", "crash_everywhere", "enumerate_crashes"]
