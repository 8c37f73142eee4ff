"""The judgement: what a killed run did, compared with an undisturbed one. Pure."""

import msgspec

from holdfast.chaos.killing import name_of
from holdfast.chaos.trial import Seen


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: where it was killed, and how it went."""

    point: int
    what: str
    reached: bool
    """False if the run ended before it came to that point: its effects have another order each time."""
    result_equal: bool
    executed_again: dict[str, int]
    """The steps that were executed more often than undisturbed, and how often they were."""
    keys_equal: bool
    without_key: list[str]
    """Those among them that were not handed an idempotency key."""
    problems: list[str]

    @property
    def ok(self) -> bool:
        """True if nothing is wrong with it."""
        return not self.problems


def judge(point: int, calm: Seen, first: Seen, second: Seen, expected: Seen) -> Row:
    """Compare the two lives of a trial with the calm one; its end with the one that is expected of it."""
    total = first.executed + second.executed
    usual = {key: calm.executed.get(key, 1) for key in total}
    changed = [key for key in total if len(first.keys.get(key, set()) | second.keys.get(key, set())) > 1]
    problems = [
        *_wrong_end(second, expected),
        *_repeated(total, usual, first, second),
        *(f"{name_of(key)} was executed with another idempotency key" for key in changed),
        *_outside(calm, first, second),
        *_passed_by(first, second),
    ]
    again = [key for key, count in total.items() if count > usual[key]]
    return Row(
        point=point,
        what=first.points[-1] if first.points else "",
        reached=first.killed,
        result_equal=second.end == expected.end,
        executed_again={name_of(key): total[key] for key in again},
        keys_equal=not changed,
        without_key=[name_of(key) for key in again if key not in first.handed | second.handed],
        problems=problems,
    )


def _wrong_end(second: Seen, expected: Seen) -> list[str]:
    if second.end is None:
        return [second.trouble or "it was not started again"]
    if second.end == expected.end:
        return []
    if second.end[0] == "raised":
        return [f"it raised {second.shown}"]
    return [f"its result is {second.shown}, and undisturbed it is {expected.shown}"]


def _repeated(total: dict[str, int], usual: dict[str, int], first: Seen, second: Seen) -> list[str]:
    """A step with a result is never executed again, and the one that was under way at most once more."""
    problems = []
    for key, executed in total.items():
        if key in second.recorded and second.executed.get(key):
            problems.append(f"{name_of(key)} was executed again, though its result was stored")
        elif executed > usual[key] + (key in first.executed):
            problems.append(f"{name_of(key)} was executed {executed} times, undisturbed {usual[key]}")
    return problems


def _outside(calm: Seen, first: Seen, second: Seen) -> list[str]:
    done = first.outside + second.outside
    return [
        f"outside of any step: {what}, done {times} times, undisturbed {calm.outside[what]}; put it into a step"
        for what, times in done.items()
        if times > max(calm.outside[what], 1)
    ]


def _passed_by(first: Seen, second: Seen) -> list[str]:
    """Report the steps of the first life that the second did not reach, except those within another step.

    A second life that reached no step had nothing left to do.
    """
    met = second.replayed | set(second.executed)
    if not met or second.end is None or second.end[0] == "raised":
        return []
    return [
        f"started again it took other steps, and not {name_of(key)}: that depends on something outside of its steps,"
        " such as the time or chance"
        for key in sorted({*first.executed, *second.recorded} - met)
        if "/" not in key
    ]
