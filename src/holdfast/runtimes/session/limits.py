"""What a thread may use, over all its turns and processes: decided here, before a turn and after it."""

from contextlib import AbstractContextManager
from math import inf
from typing import Any

from holdfast.records.arguments import whole_number
from holdfast.records.errors import BudgetExceeded, ConfigurationError, TurnLimitExceeded
from holdfast.records.usage import Budget, Spent
from holdfast.runtimes.session.record import Turns


class Limits:
    """The most that a thread may use; None for no limit. `ConfigurationError` for what makes no sense."""

    def __init__(self, budget_usd: float | None, budget_tokens: int | None, max_turns: int | None) -> None:
        self._budget = Budget(budget_usd, budget_tokens, ("budget_usd", "budget_tokens"))
        self._most_turns = inf if max_turns is None else whole_number(max_turns, "max_turns")

    def allow(self, turns: Turns, taken: int, key: str, reserve: Spent | None, thread_id: str) -> None:
        """Raise if nothing is left for a turn before which so many places were taken, or not what it reserves."""
        if taken >= self._most_turns:
            raise TurnLimitExceeded(
                f"thread {thread_id!r} took its {self._most_turns} turns; raise max_turns to continue"
            )
        cost, tokens, counted = turns.cost, turns.tokens, ""
        if (unfinished := turns.reserved(key) if turns.unfinished else None) is not None:
            cost, tokens = cost + unfinished.cost, tokens + unfinished.usage.tokens
            keys = ", ".join(repr(name) for name in turns.unfinished if name != key)
            counted = f" (with the reserve of {keys}, which began and never ended: repeating the key ends it)"
        said = self._budget.used_up(cost, tokens)
        if reserve is not None and not said:
            wanted = self._budget.exceeded(cost + reserve.cost, tokens + reserve.usage.tokens)
            said = wanted and f"no room for this turn's reserve: it would have {wanted}"
        if said:
            raise BudgetExceeded(f"thread {thread_id!r} has {said}{counted}")

    def judge(self, turns: Turns, thread_id: str) -> None:
        """Raise if the turn that was just recorded went beyond the budget."""
        if said := self._budget.exceeded(turns.cost, turns.tokens):
            raise BudgetExceeded(f"thread {thread_id!r} has {said}")

    def need_price(self, model: str | None) -> ConfigurationError | None:
        """Why a turn without a price cannot be taken, if there is a budget of money."""
        budget_usd = self._budget.cost_usd
        if budget_usd is None:
            return None
        what = "a turn without model=" if model is None else f"model {model!r}"
        return ConfigurationError(f"{what} has no price in pricing=, and budget_usd={budget_usd} needs one")


class Places:
    """How many turns a thread has taken, with those of this session that are under way."""

    def __init__(self, taken: int, lock: AbstractContextManager[Any]) -> None:
        self._taken = taken
        self._lock = lock

    def take(self, limits: Limits, turns: Turns, key: str, reserve: Spent | None, thread_id: str) -> bool:
        """Take a place for a turn, or raise why there is none. False if it has one already: it failed before."""
        has_place = key in turns.taken
        with self._lock:
            limits.allow(turns, 0 if has_place else self._taken, key, reserve, thread_id)
            if reserve is not None:
                turns.hold(key, reserve)  # at once: its note follows, and another thread may ask before
            self._taken += not has_place
        return not has_place

    def give_back(self) -> None:
        """The turn was not recorded: its place is free."""
        with self._lock:
            self._taken -= 1
