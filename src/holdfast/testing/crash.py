"""Crash tests: stop a scenario at every effect it has on the world, start it again, and compare how it ends.

    from holdfast.testing import crash_everywhere

    crash_everywhere(support, "Where is my money?")

The process does not really die, so `finally` blocks still run; `holdfast chaos` kills for real.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from logging import getLogger
from typing import Any

import msgspec

from holdfast.records.errors import ConfigurationError
from holdfast.records.request import Request
from holdfast.testing.crash_case import Case, CaseRunner, Scenario, first_choice
from holdfast.testing.crash_engine import Enumeration
from holdfast.testing.exact import difference
from holdfast.testing.places import MemoryPlace, Place

SHOWN = 5
"""How many different problems a table shows."""


class Failure(msgspec.Struct, frozen=True):
    """One thing that went wrong in one case."""

    crash_point: str
    going_on: str
    """The last event before the crash."""
    problem: str


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried and found."""

    points: list[str]
    """Every crash point, in the order of an undisturbed run."""
    point_count: int
    """How many of them were tried."""
    case_count: int
    pair_count: int
    """Cases with two crashes in a row."""
    possible_pair_count: int
    result: Any
    """The result of the undisturbed run."""
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
        """Return what was tried, then each different problem once: in how many cases it was, and in which first."""
        pairs = f"{self.pair_count} of {self.possible_pair_count} pairs tried"
        problems = f"{len(self.failures)} {'problem' if len(self.failures) == 1 else 'problems'}"
        lines = [f"{problems} in {self.case_count} cases ({self._tried_points} crash points, {pairs})"]
        counts = Counter(failure.problem for failure in self.failures)
        first = {failure.problem: failure for failure in reversed(self.failures)}
        for problem in list(counts)[:SHOWN]:
            where, going_on = first[problem].crash_point, first[problem].going_on
            during = f", during {going_on}" if going_on else ""
            lines += [problem, f"  ({counts[problem]} of {self.case_count} cases, first at {where}{during})"]
        if len(counts) > SHOWN:
            lines.append(f"and {len(counts) - SHOWN} other problems: see `failures` of the report")
        return "\n".join(lines)


def enumerate_crashes(
    scenario: Scenario, *, pairs: int | None = 100, limit: int = 50, max_points: int | None = None
) -> CrashReport:
    """Run a scenario undisturbed, then stop it at every crash point, and at pairs of points in a row.

    Tries up to `max_points` points, at even distances, and up to `pairs` pairs, drawn by the scenario's seed; None for
    all. The second point of a pair belongs to the life that follows the first crash. Stops after `limit` problems. An
    error of the undisturbed run is raised as it is.
    """
    with _quiet():
        cases = Enumeration(lambda crash_at: CaseRunner(scenario, crash_at).run())
        calm = cases.undisturbed
        if calm.error is not None:
            raise calm.error
        failures = list(_failures(calm, calm))
        tried = chain(cases.singles(max_points), cases.pairs(pairs, scenario.seed))
        counts = Counter({0: 1})  # the cases by their number of crashes
        while len(failures) < limit and (case := next(tried, None)) is not None:
            failures += _failures(calm, case)
            counts[len(case.crash_at)] += 1
        return CrashReport(
            points=calm.points,
            point_count=counts[1],
            case_count=counts.total(),
            pair_count=counts[2],
            possible_pair_count=len(cases.possible_pairs()),
            result=calm.result,
            executions=dict(calm.executions),
            failures=failures,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log: it would report each of the crashes."""
    logger = getLogger("holdfast")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


def _failures(calm: Case, case: Case) -> Iterator[Failure]:
    where = "; then ".join(map("{} {}".format, case.crash_at, case.crashes)) or "(no crash)"
    going_on = "; then ".join(case.going_on)
    for problem in dict.fromkeys((*_differences(calm, case), *case.problems)):
        yield Failure(where, going_on, problem)


def _differences(calm: Case, case: Case) -> Iterator[str]:
    """Compare a case with the undisturbed one."""
    if case.error is not None and not case.accepted:
        yield f"it raised {type(case.error).__name__}: {case.error}"
    if case.error is None:
        if case.result != calm.result:
            yield _difference(calm.result, case.result, "result")
        yield from _different_threads(calm, case)
    yield from case.step_problems(calm)


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
    """Stop a function before and after everything it does to the world, and check that it always ends the same.

    `function` is a durable function of either world, run on `thread_id`; or a plain or async one that takes a store. It
    runs undisturbed, then with a crash at each point, then with two crashes in a row (up to `pairs` of them, drawn by
    `seed`; None for all). After each crash it is started again over what was stored. For a slow function, `max_points`
    tries up to that many points, at even distances. Stops after `limit` problems.

    `answer(request)` answers its questions with a choice, or with a value where there are no choices. `before()` is
    called before each case to reset the world outside; `after()` asserts at its end that the world is right. `accept`
    names errors that a case may end with instead, such as `StepInDoubt`.

    Raises an AssertionError with a table unless in every case: the result and all threads are the same; no acknowledged
    step ran again; a step ran at most once more per crash, with the same idempotency key, an effect only after its
    intent was stored; every answer was consumed once; the store verifies, and no lease is held.
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
    raise ConfigurationError("crash_everywhere starts its own event loops; call it from a plain function")


__all__ = ["CrashReport", "Failure", "Scenario", "crash_everywhere", "enumerate_crashes"]
