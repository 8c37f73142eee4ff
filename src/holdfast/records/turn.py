"""Turns of a session: what they used, what that costs, what they amount to. Money is counted in whole picodollars."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.records.arguments import LARGEST_COUNT, amount, count

T = TypeVar("T")

PICODOLLARS = 1_000_000_000_000
MILLION = 1_000_000


class UsageSnapshot(msgspec.Struct, frozen=True):
    """What a turn used, or several together."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    tool_calls: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            count(getattr(self, name), name)

    @property
    def tokens(self) -> int:
        """All tokens: read, written and cached."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: object) -> "UsageSnapshot":
        if not isinstance(other, UsageSnapshot):
            return NotImplemented
        return total_usage(msgspec.structs.astuple(self), msgspec.structs.astuple(other))


def total_usage(*usages: Iterable[int]) -> UsageSnapshot:
    """Several together, each as its numbers; what is beyond all counting is counted as that."""
    return UsageSnapshot(*(min(sum(each), LARGEST_COUNT) for each in zip(*usages, strict=True)))


class ModelPricing(msgspec.Struct, frozen=True):
    """What a model takes for a million tokens, in dollars. Cached tokens cost what input costs, unless it is said."""

    input_per_million: float
    output_per_million: float
    cache_read_per_million: float | None = None
    cache_write_per_million: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) is not None:
                amount(getattr(self, name), name)

    def cost(self, usage: UsageSnapshot) -> int:
        """The price of a usage, in picodollars; nine million dollars at most, to be stored whatever it is."""
        dollars_per_million = (
            usage.input_tokens * self.input_per_million + usage.output_tokens * self.output_per_million
        )
        if usage.cache_read_tokens or usage.cache_write_tokens:
            read, write = self.cache_read_per_million, self.cache_write_per_million
            dollars_per_million += usage.cache_read_tokens * (self.input_per_million if read is None else read)
            dollars_per_million += usage.cache_write_tokens * (self.input_per_million if write is None else write)
        return round(min(dollars_per_million * (PICODOLLARS // MILLION), LARGEST_COUNT))


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
        """What they cost, in words, and what nobody knows the price of."""
        if not self.unpriced_count:
            return f"{self.cost_usd:.4f} USD"
        known = f"{self.cost_usd:.4f} USD and {self.unpriced_count} of them " if self.cost_usd else ""
        return f"{known}at an unknown price"
