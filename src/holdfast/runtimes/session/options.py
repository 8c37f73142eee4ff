"""The options of sessions and turns: declared once for both worlds, and checked when they are passed."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from holdfast.records.arguments import check_options, mapping_or_none, text_or_none
from holdfast.records.errors import ConfigurationError
from holdfast.records.usage import ModelPricing, UsageSnapshot
from holdfast.runs.driver import Terms
from holdfast.runtimes.session.limits import Limits

OnUnstorable: TypeAlias = Literal["raise", "warn"]
Usage: TypeAlias = UsageSnapshot | Callable[[Any], Any] | None


class OrchestratorOptions(TypedDict, total=False):
    """The keyword options of an orchestrator, except role, phase and store."""

    budget_usd: float | None
    budget_tokens: int | None
    max_turns: int | None
    pricing: Mapping[str, ModelPricing] | None
    on_unstorable: OnUnstorable
    lease: timedelta | float
    wait: timedelta | float | None


class TurnOptions(TypedDict, total=False):
    """The keyword options of a turn. See `Session.run_turn`."""

    model: str | None
    usage: Usage
    idempotency_key: str | None
    fingerprint: Any
    timeout: timedelta | float | None
    on_unstorable: OnUnstorable | None
    reserve: UsageSnapshot | None


ORCHESTRATOR_NAMES, TURN_NAMES = tuple(OrchestratorOptions.__annotations__), tuple(TurnOptions.__annotations__)


class SessionOptions(msgspec.Struct, frozen=True):
    """The options that all sessions of an orchestrator share."""

    role: str
    phase: str
    pricing: Mapping[str, ModelPricing]
    limits: Limits
    on_unstorable: str
    run: Terms

    def price_of(self, model: str | None) -> ModelPricing | None:
        """Return the price of a model; `ConfigurationError` if it has none and a budget needs one."""
        price = None if model is None else self.pricing.get(model)
        if price is None and self.limits.budget_usd is not None:
            what = "a turn without model=" if model is None else f"model {model!r}"
            budget = f"budget_usd={self.limits.budget_usd}"
            raise ConfigurationError(f"{what} has no price in pricing=, and {budget} needs one")
        return price


def session_options(role: str, phase: str, options: OrchestratorOptions) -> SessionOptions:
    """Check the options of an orchestrator; `ConfigurationError` if one is invalid."""
    check_options(options, ORCHESTRATOR_NAMES)
    given: Callable[..., Any] = options.get
    limits = Limits(given("budget_usd"), given("budget_tokens"), given("max_turns"))
    pricing = mapping_or_none(given("pricing"), "pricing") or {}
    if not all(isinstance(price, ModelPricing) for price in pricing.values()):
        raise ConfigurationError(f"`pricing` must map model names to ModelPricing, got {pricing!r}")
    on_unstorable = check_on_unstorable(given("on_unstorable", "raise"))
    run = Terms(given("lease", 30), given("wait"))
    return SessionOptions(
        required_text(role, "role"), required_text(phase, "phase"), pricing, limits, on_unstorable, run
    )


def required_text(value: object, name: str) -> str:
    """Return a non-empty str, or raise."""
    text = text_or_none(value, name)
    if text is None:
        raise ConfigurationError(f"`{name}` must be a non-empty str, got None")
    return text


def check_turn(function: object, options: TurnOptions) -> None:
    """Raise `ConfigurationError` if a turn is called with an invalid function or option."""
    check_options(options, TURN_NAMES)
    if not callable(function):
        raise ConfigurationError(f"a turn needs a function to call, got {type(function).__name__}; wrap it in a lambda")
    usage, reserve = options.get("usage"), options.get("reserve")
    if not (usage is None or isinstance(usage, UsageSnapshot) or callable(usage)):
        raise ConfigurationError(f"`usage` must be a UsageSnapshot or a function that returns one, got {usage!r}")
    if reserve is not None and not isinstance(reserve, UsageSnapshot):
        raise ConfigurationError(f"`reserve` must be a UsageSnapshot, the most that the turn may use, got {reserve!r}")
    if reserve is not None and not options.get("idempotency_key"):
        raise ConfigurationError(
            "`reserve` needs an idempotency_key: a turn that never ended counts until its key is repeated"
        )


def check_on_unstorable(value: str) -> str:
    """Return what to do with a result that cannot be stored, or raise."""
    if value not in {"raise", "warn"}:
        raise ConfigurationError(f"`on_unstorable` must be 'raise' or 'warn', got {value!r}")
    return value
