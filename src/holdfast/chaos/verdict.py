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
    ]
    return Row(
        point=point,
        what=first.points[-1] if first.points else "",
        reached=first.killed,
        result_equal=second.end == expected.end,
        executed_again={name_of(key): count for key, count in total.items() if count > usual[key]},
        keys_equal=not changed,
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
