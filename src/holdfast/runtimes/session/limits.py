"""The budget of a thread over all its turns and processes: checked before and after each turn."""

from contextlib import AbstractContextManager
from math import inf
from typing import Any

from holdfast.records.arguments import whole_number
from holdfast.records.errors import BudgetExceeded, TurnLimitExceeded
from holdfast.records.usage import Budget, Spent
from holdfast.runtimes.session.record import Turns


class Limits:
    """The limits of a thread; None for no limit. `ConfigurationError` if a limit is invalid."""

    def __init__(self, budget_usd: float | None, budget_tokens: int | None, max_turns: int | None) -> None:
        self.budget_usd = budget_usd
        self._budget = Budget(budget_usd, budget_tokens, ("budget_usd", "budget_tokens"))
        self._max_turns = inf if max_turns is None else whole_number(max_turns, "max_turns")

    def check_before(self, turns: Turns, turn_count: int, key: str, reserve: Spent | None, thread_id: str) -> None:
        """Raise if the budget or `max_turns` has no room for another turn, or for what it reserves."""
        if turn_count >= self._max_turns:
            raise TurnLimitExceeded(
                f"thread {thread_id!r} has taken all of its {self._max_turns} turns; raise max_turns to continue"
            )
        cost, tokens, counted = turns.cost, turns.tokens, ""
        if (unfinished := turns.reserved(key) if turns.unfinished else None) is not None:
            cost, tokens = cost + unfinished.cost, tokens + unfinished.usage.tokens
            keys = ", ".join(repr(name) for name in turns.unfinished if name != key)
            counted = f" (including the reserve of {keys}, which started and never ended; repeat the key to end it)"
        reason = self._budget.used_up(cost, tokens)
        if reserve is not None and not reason:
            excess = self._budget.exceeded(cost + reserve.cost, tokens + reserve.usage.tokens)
            reason = excess and f"no room for this turn's reserve: it would have {excess}"
        if reason:
            raise BudgetExceeded(f"thread {thread_id!r} has {reason}{counted}")

    def check_after(self, turns: Turns, thread_id: str) -> None:
        """Raise if the turn just recorded exceeded the budget."""
        if reason := self._budget.exceeded(turns.cost, turns.tokens):
            raise BudgetExceeded(f"thread {thread_id!r} has {reason}")


class TurnSlots:
    """Counts the turns of a thread, including those of this session that are still running."""

    def __init__(self, count: int, lock: AbstractContextManager[Any]) -> None:
        self._count = count
        self._lock = lock

    def take(self, limits: Limits, turns: Turns, key: str, reserve: Spent | None, thread_id: str) -> bool:
        """Take a slot for a turn, or raise why there is none. False if an earlier failure under its key took one."""
        has_slot = key in turns.taken
        with self._lock:
            limits.check_before(turns, 0 if has_slot else self._count, key, reserve, thread_id)
            if reserve is not None:
                turns.hold(key, reserve)  # its note follows later, and another thread may start a turn meanwhile
            self._count += not has_slot
        return not has_slot

    def release(self) -> None:
        """Release the slot of a turn that was not recorded."""
        with self._lock:
            self._count -= 1
