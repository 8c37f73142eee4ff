"""Turns of a session: what each returned and used, and their totals."""

from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.records.usage import UsageSnapshot

T = TypeVar("T")


class TurnResult(NamedTuple, Generic[T]):
    """What a turn returned, and what it used."""

    value: T
    usage: UsageSnapshot


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a session, as it is recorded."""

    number: int
    """The turn's number, from 1. A turn that failed and was executed again appears twice."""
    idempotency_key: str | None
    role: str
    phase: str
    model: str | None
    usage: UsageSnapshot
    cost_usd: float | None
    """None if its model has no price."""
    value: Any
    """The result, for a stream the list of its chunks. None if it failed."""
    error: str | None
    ended_at: datetime
    seconds: float


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a thread in total, over all processes."""

    thread_id: str
    role: str
    phase: str
    turn_count: int
    """Turns taken. Replays do not count, and a turn that failed and was executed again counts once."""
    failed_count: int
    """Failed executions."""
    usage: UsageSnapshot
    cost_usd: float
    models: dict[str, UsageSnapshot]
    """The usage of each model."""
    unpriced_count: int = 0
    """Turns with a result that `cost_usd` does not include: their price or their usage is unknown."""

    def __str__(self) -> str:
        turns = f"{self.turn_count} {'turn' if self.turn_count == 1 else 'turns'}"
        failed = f" ({self.failed_count} failed)" if self.failed_count else ""
        return f"{turns}{failed}, {self.usage.tokens:,} tokens, {self.price}"

    @property
    def price(self) -> str:
        """The cost in words, and how many turns have no known price."""
        if not self.unpriced_count:
            return f"{self.cost_usd:.4f} USD"
        known = f"{self.cost_usd:.4f} USD and {self.unpriced_count} of them " if self.cost_usd else ""
        return f"{known}at an unknown price"
