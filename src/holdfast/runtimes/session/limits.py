"""What a thread may use, over all its turns and processes: decided here, before a turn and after it."""

from contextlib import AbstractContextManager
from typing import Any

import msgspec

from holdfast.history.turns import Turns
from holdfast.records.arguments import amount, whole_number
from holdfast.records.errors import BudgetExceeded, ConfigurationError, TurnLimitExceeded
from holdfast.records.turn import PICODOLLARS


class Limits(msgspec.Struct, frozen=True):
    """The most that a thread may use; None for no limit."""

    budget_usd: float | None = None
    budget_tokens: int | None = None
    max_turns: int | None = None

    def check(self) -> None:
        """`ConfigurationError` for limits that make no sense."""
        if self.budget_usd is not None:
            amount(self.budget_usd, "budget_usd")
        for name in ("budget_tokens", "max_turns"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name)

    def allow(self, turns: Turns, under_way: int, key: str, thread_id: str) -> None:
        """Raise if nothing is left for this turn. One that failed before is the same turn, and costs no further one."""
        most = self.max_turns
        if most is not None and turns.count + under_way >= most and not turns.knows(key):
            raise TurnLimitExceeded(f"thread {thread_id!r} took its {most} turns; raise max_turns to go on")
        self._check(turns, thread_id, least=0)

    def judge(self, turns: Turns, thread_id: str) -> None:
        """Raise if the turn that was just recorded went beyond the budget."""
        self._check(turns, thread_id, least=1)

    def _check(self, turns: Turns, thread_id: str, least: int) -> None:
        dollars, tokens = self.budget_usd, self.budget_tokens
        if dollars is not None and turns.cost - round(dollars * PICODOLLARS) >= least:
            used = f"{turns.cost / PICODOLLARS:.6g} of {dollars:.6g} USD"
            raise BudgetExceeded(f"thread {thread_id!r} has used {used}; raise budget_usd to go on")
        if tokens is not None and turns.tokens - tokens >= least:
            used = f"{turns.tokens:,} of {tokens:,} tokens"
            raise BudgetExceeded(f"thread {thread_id!r} has used {used}; raise budget_tokens to go on")

    def need_price(self, model: str | None) -> ConfigurationError | None:
        """Why a turn without a price cannot be taken, if there is a budget of money."""
        if self.budget_usd is None:
            return None
        what = "a turn without model=" if model is None else f"model {model!r}"
        return ConfigurationError(f"{what} has no price in pricing=, and budget_usd={self.budget_usd} needs one")


class UnderWay:
    """The new turns of a session that are under way: each has its place among the turns before it is recorded."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._names: set[str] = set()
        self._lock = lock

    def begin(self, name: str, limits: Limits, turns: Turns, key: str, thread_id: str) -> None:
        """Take a place, if there is any."""
        with self._lock:
            limits.allow(turns, len(self._names), key, thread_id)
            if not turns.knows(key):
                self._names.add(name)

    def end(self, name: str) -> None:
        """It is recorded, or will not be."""
        self._names.discard(name)
