"""Turns of a session: what each returned and used, and what they amount to."""

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
    """Its place among the turns, from 1. A turn that failed and was executed again is there twice."""
    idempotency_key: str | None
    role: str
    phase: str
    model: str | None
    usage: UsageSnapshot
    cost_usd: float | None
    """None if its model has no price."""
    value: Any
    """What it returned: of a stream, the list of its chunks. None if it failed."""
    error: str | None
    ended_at: datetime
    seconds: float


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the turns of a thread amount to, over all processes that took any."""

    thread_id: str
    role: str
    phase: str
    turn_count: int
    """Turns taken; a replay is none, and one that failed and came again is one."""
    failed_count: int
    """Executions that failed."""
    usage: UsageSnapshot
    cost_usd: float
    models: dict[str, UsageSnapshot]
    """The usage of each model that was named."""
    unpriced_count: int = 0
    """Turns with a result that `cost_usd` knows nothing of: their model had no price, or nobody told their usage."""

    def __str__(self) -> str:
        turns = f"{self.turn_count} {'turn' if self.turn_count == 1 else 'turns'}"
        failed = f" ({self.failed_count} failed)" if self.failed_count else ""
        return f"{turns}{failed}, {self.usage.tokens:,} tokens, {self.price}"

    @property
    def price(self) -> str:
        """What they cost, in words, and how many have no known price."""
        if not self.unpriced_count:
            return f"{self.cost_usd:.4f} USD"
        known = f"{self.cost_usd:.4f} USD and {self.unpriced_count} of them " if self.cost_usd else ""
        return f"{known}at an unknown price"
