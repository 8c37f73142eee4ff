"""What a session is told by its orchestrator, and a turn by its caller: checked when it is given."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from holdfast.records.arguments import mapping_or_none, text_or_none
from holdfast.records.errors import ConfigurationError
from holdfast.records.turn import ModelPricing, UsageSnapshot
from holdfast.runtimes.session.limits import Limits

OnUnstorable: TypeAlias = Literal["raise", "warn"]


class SessionOptions(msgspec.Struct, frozen=True):
    """What all sessions of an orchestrator have in common."""

    role: str
    phase: str
    pricing: Mapping[str, ModelPricing]
    limits: Limits
    on_unstorable: str

    def check(self) -> None:
        """`ConfigurationError` for what makes no sense."""
        prices = mapping_or_none(self.pricing, "pricing") or {}
        if not all(isinstance(price, ModelPricing) for price in prices.values()):
            raise ConfigurationError(f"pricing={self.pricing!r}: a mapping of model names to ModelPricing")
        check_policy(self.on_unstorable)

    def price_of(self, model: str | None) -> ModelPricing | None:
        """The price of a model; `ConfigurationError` if it has none and needs one."""
        price = None if model is None else self.pricing.get(model)
        if price is None and (refusal := self.limits.need_price(model)) is not None:
            raise refusal
        return price


def needed_text(value: object, name: str) -> str:
    """A non-empty str."""
    text = text_or_none(value, name)
    if text is None:
        raise ConfigurationError(f"{name}=None: a non-empty str")
    return text


def check_call(function: object, usage: object) -> None:
    """`ConfigurationError` for what cannot be a turn."""
    if not callable(function):
        raise ConfigurationError(f"a turn takes a function to call, not {type(function).__name__}; wrap it in a lambda")
    if not (usage is None or isinstance(usage, UsageSnapshot) or callable(usage)):
        raise ConfigurationError(f"usage={usage!r}: a UsageSnapshot, or a function of the result that returns one")


def check_policy(value: str) -> str:
    """What to do with a result that cannot be stored."""
    if value not in {"raise", "warn"}:
        raise ConfigurationError(f"on_unstorable={value!r}: 'raise' or 'warn'")
    return value
