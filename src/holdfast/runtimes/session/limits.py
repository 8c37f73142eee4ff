"""What a thread may use, over all its turns and processes: decided here, before a turn and after it."""

from contextlib import AbstractContextManager
from math import inf
from typing import Any, NoReturn

from holdfast.history.turns import Turns
from holdfast.records.arguments import amount, whole_number
from holdfast.records.errors import BudgetExceeded, ConfigurationError, TurnLimitExceeded
from holdfast.records.turn import PICODOLLARS


class Limits:
    """The most that a thread may use; None for no limit. `ConfigurationError` for what makes no sense."""

    def __init__(self, budget_usd: float | None, budget_tokens: int | None, max_turns: int | None) -> None:
        self.budget_usd = budget_usd
        self._most_cost = inf if budget_usd is None else round(amount(budget_usd, "budget_usd") * PICODOLLARS)
        self._most_tokens = None if budget_tokens is None else whole_number(budget_tokens, "budget_tokens")
        self._most_turns = inf if max_turns is None else whole_number(max_turns, "max_turns")

    def allow(self, turns: Turns, taken: int, thread_id: str) -> None:
        """Raise if nothing is left for a turn before which so many places were taken."""
        if taken >= self._most_turns:
            raise TurnLimitExceeded(f"thread {thread_id!r} took its {self._most_turns} turns; raise max_turns to go on")
        most_tokens = self._most_tokens
        if turns.cost >= self._most_cost or (most_tokens is not None and turns.tokens >= most_tokens):
            self._refuse(turns, thread_id, is_spent=turns.cost >= self._most_cost)

    def judge(self, turns: Turns, thread_id: str) -> None:
        """Raise if the turn that was just recorded went beyond the budget."""
        most_tokens = self._most_tokens
        if turns.cost > self._most_cost or (most_tokens is not None and turns.tokens > most_tokens):
            self._refuse(turns, thread_id, is_spent=turns.cost > self._most_cost)

    def _refuse(self, turns: Turns, thread_id: str, *, is_spent: bool) -> NoReturn:
        if is_spent:
            used = f"{turns.cost / PICODOLLARS:.6g} of {self.budget_usd:.6g} USD"
            raise BudgetExceeded(f"thread {thread_id!r} has used {used}; raise budget_usd to go on")
        used = f"{turns.tokens:,} of {self._most_tokens:,} tokens"
        raise BudgetExceeded(f"thread {thread_id!r} has used {used}; raise budget_tokens to go on")

    def need_price(self, model: str | None) -> ConfigurationError | None:
        """Why a turn without a price cannot be taken, if there is a budget of money."""
        if self.budget_usd is None:
            return None
        what = "a turn without model=" if model is None else f"model {model!r}"
        return ConfigurationError(f"{what} has no price in pricing=, and budget_usd={self.budget_usd} needs one")


class Places:
    """How many turns a thread has taken, with those of this session that are under way."""

    def __init__(self, taken: int, lock: AbstractContextManager[Any]) -> None:
        self._taken = taken
        self._lock = lock

    def take(self, limits: Limits, turns: Turns, key: str, thread_id: str) -> bool:
        """Take a place for a turn, or raise why there is none. False if it has one already: it failed before."""
        if key in turns.taken:
            limits.allow(turns, 0, thread_id)
            return False
        with self._lock:
            limits.allow(turns, self._taken, thread_id)
            self._taken += 1
        return True

    def give_back(self) -> None:
        """The turn was not recorded: its place is free."""
        with self._lock:
            self._taken -= 1
