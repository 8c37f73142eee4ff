"""The usage of models, its cost, and budgets. Money is counted in picodollars."""

from math import inf

import msgspec

from holdfast.records.arguments import LARGEST_COUNT, amount, count, whole_number

PICODOLLARS = 1_000_000_000_000
MILLION = 1_000_000


class UsageSnapshot(msgspec.Struct, frozen=True):
    """The usage of a turn, or of several together."""

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
        """All tokens: input, output and cached."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: object) -> "UsageSnapshot":
        if not isinstance(other, UsageSnapshot):
            return NotImplemented
        pairs = zip(_counts(self), _counts(other), strict=True)
        return UsageSnapshot(*(min(sum(pair), LARGEST_COUNT) for pair in pairs))


def _counts(usage: UsageSnapshot) -> tuple[int, ...]:
    """Return the counts, without fields of a subclass."""
    return msgspec.structs.astuple(usage)[: len(UsageSnapshot.__struct_fields__)]


class ModelPricing(msgspec.Struct, frozen=True):
    """A model's prices for a million tokens, in dollars. Cached tokens cost as much as input by default."""

    input_per_million: float
    output_per_million: float
    cache_read_per_million: float | None = None
    cache_write_per_million: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) is not None:
                amount(getattr(self, name), name)

    def cost(self, usage: UsageSnapshot) -> int:
        """Return the price of a usage in picodollars, capped at nine million dollars so that it can be stored."""
        dollars_per_million = (
            usage.input_tokens * self.input_per_million + usage.output_tokens * self.output_per_million
        )
        if usage.cache_read_tokens or usage.cache_write_tokens:
            read, write = self.cache_read_per_million, self.cache_write_per_million
            dollars_per_million += usage.cache_read_tokens * (self.input_per_million if read is None else read)
            dollars_per_million += usage.cache_write_tokens * (self.input_per_million if write is None else write)
        return round(min(dollars_per_million * (PICODOLLARS // MILLION), LARGEST_COUNT))


class Spent(msgspec.Struct, frozen=True):
    """A usage and its price."""

    usage: UsageSnapshot = UsageSnapshot()
    cost: int = 0
    """In picodollars."""

    @property
    def cost_usd(self) -> float:
        """The price in dollars."""
        return self.cost / PICODOLLARS

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.usage + other.usage, self.cost + other.cost)


class Budget:
    """The most that a thread may use, over all processes; None for no limit."""

    def __init__(self, cost_usd: float | None, tokens: int | None, names: tuple[str, str]) -> None:
        self.cost_usd = cost_usd
        self._names = names
        self._cost = inf if cost_usd is None else round(amount(cost_usd, names[0]) * PICODOLLARS)
        self._tokens = inf if tokens is None else whole_number(tokens, names[1])

    def exceeded(self, cost: int, tokens: int) -> str:
        """Return which limit this exceeds, in words; empty if none."""
        return self._message(cost, tokens) if cost > self._cost or tokens > self._tokens else ""

    def used_up(self, cost: int, tokens: int) -> str:
        """Return which limit this uses up, in words; empty if none."""
        return self._message(cost, tokens) if cost >= self._cost or tokens >= self._tokens else ""

    def _message(self, cost: int, tokens: int) -> str:
        if cost >= self._cost:
            return f"used {cost / PICODOLLARS:.6g} of {self.cost_usd:.6g} USD; raise {self._names[0]} to continue"
        return f"used {tokens:,} of {self._tokens:,} tokens; raise {self._names[1]} to continue"
