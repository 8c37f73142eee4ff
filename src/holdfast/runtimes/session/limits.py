"""The budget of a thread over all its turns and processes: checked before and after each turn."""

from contextlib import AbstractContextManager
from math import inf
from typing import Any

from holdfast.records.arguments import whole_number
from holdfast.records.errors import BudgetExceeded, ConfigurationError, TurnLimitExceeded
from holdfast.records.usage import Budget, Spent
from holdfast.runtimes.session.record import Turns


class Limits:
    """The limits of a thread; None for no limit. `ConfigurationError` if a limit is invalid."""

    def __init__(self, budget_usd: float | None, budget_tokens: int | None, max_turns: int | None) -> None:
        self._budget = Budget(budget_usd, budget_tokens, ("budget_usd", "budget_tokens"))
        self._most_turns = inf if max_turns is None else whole_number(max_turns, "max_turns")

    def allow(self, turns: Turns, taken: int, key: str, reserve: Spent | None, thread_id: str) -> None:
        """Raise if the budget or `max_turns` has no room for another turn, or for what it reserves."""
        if taken >= self._most_turns:
            raise TurnLimitExceeded(
                f"thread {thread_id!r} has taken all of its {self._most_turns} turns; raise max_turns to continue"
            )
        cost, tokens, counted = turns.cost, turns.tokens, ""
        if (unfinished := turns.reserved(key) if turns.unfinished else None) is not None:
            cost, tokens = cost + unfinished.cost, tokens + unfinished.usage.tokens
            keys = ", ".join(repr(name) for name in turns.unfinished if name != key)
            counted = f" (including the reserve of {keys}, which started and never ended; repeat the key to end it)"
        said = self._budget.used_up(cost, tokens)
        if reserve is not None and not said:
            wanted = self._budget.exceeded(cost + reserve.cost, tokens + reserve.usage.tokens)
            said = wanted and f"no room for this turn's reserve: it would have {wanted}"
        if said:
            raise BudgetExceeded(f"thread {thread_id!r} has {said}{counted}")

    def judge(self, turns: Turns, thread_id: str) -> None:
        """Raise if the turn just recorded exceeded the budget."""
        if said := self._budget.exceeded(turns.cost, turns.tokens):
            raise BudgetExceeded(f"thread {thread_id!r} has {said}")

    def need_price(self, model: str | None) -> ConfigurationError | None:
        """Return the error for a model without a price under a money budget; None if there is no such budget."""
        budget_usd = self._budget.cost_usd
        if budget_usd is None:
            return None
        what = "a turn without model=" if model is None else f"model {model!r}"
        return ConfigurationError(f"{what} has no price in pricing=, and budget_usd={budget_usd} needs one")


class Places:
    """The count of turns a thread has taken, including those of this session that are still running."""

    def __init__(self, taken: int, lock: AbstractContextManager[Any]) -> None:
        self._taken = taken
        self._lock = lock

    def take(self, limits: Limits, turns: Turns, key: str, reserve: Spent | None, thread_id: str) -> bool:
        """Take a place for a turn, or raise why there is none. False if an earlier failure already took one."""
        has_place = key in turns.taken
        with self._lock:
            limits.allow(turns, 0 if has_place else self._taken, key, reserve, thread_id)
            if reserve is not None:
                turns.hold(key, reserve)  # now: its note follows later, and another thread may ask meanwhile
            self._taken += not has_place
        return not has_place

    def give_back(self) -> None:
        """Free the place of a turn that was not recorded."""
        with self._lock:
            self._taken -= 1
