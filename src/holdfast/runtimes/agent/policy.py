"""Which failure is answered by what: a strategy for each type, and one for the rest."""

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.records.errors import ConfigurationError
from holdfast.records.failure import FailureContext, FailureType
from holdfast.runtimes.agent import strategies
from holdfast.runtimes.agent.actions import RecoveryAction

Strategy: TypeAlias = "RecoveryAction | Callable[[FailureContext], RecoveryAction | Awaitable[RecoveryAction]]"
"""What to do about a failure, or a function that decides it."""
Call: TypeAlias = Callable[..., Awaitable[Any]]


class FailurePolicy:
    """A strategy for each type of failure, by the type's name in lower case; `default` for all others."""

    def __init__(self, *, default: "AnyStrategy" = RecoveryAction.ESCALATE, **by_type: "AnyStrategy") -> None:
        known = {each.value for each in FailureType}
        if unknown := set(by_type) - known:
            raise ConfigurationError(f"{min(unknown)!r} is no type of failure; one of {', '.join(sorted(known))}")
        for name, strategy in {**by_type, "default": default}.items():
            check_strategy(strategy, name)
        self.by_type = by_type
        self.default = default

    def for_type(self, failure: FailureType) -> "AnyStrategy":
        """The strategy for a type of failure."""
        return self.by_type.get(failure.value, self.default)

    @staticmethod
    def sequence(*several: "AnyStrategy") -> "Sequence":
        """The n-th of these at the n-th failure of the thread, and the last from then on."""
        return Sequence(several)

    @staticmethod
    def chain(*several: "AnyStrategy") -> "Chain":
        """The first of these that does not escalate."""
        return Chain(several)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "FailurePolicy":
        """A policy from plain data, by type: an action's or a strategy's name, a dict with its options, or a list.

        `{"timeout": "retry", "external_fault": {"action": "rollback"}, "default": {"strategy": "replan"}}`; a list is
        a sequence.
        """
        if not isinstance(plain, Mapping):
            raise ConfigurationError(f"a policy is a dict of strategies by type of failure, not {type(plain).__name__}")
        return cls(**{str(name).lower(): _strategy_of(value) for name, value in plain.items()})

    @classmethod
    def from_yaml(cls, source: str | Path) -> "FailurePolicy":
        """A policy from a YAML file, or from its text. Needs the extra `yaml`."""
        try:
            yaml = import_module("yaml")
        except ImportError:
            raise ConfigurationError("from_yaml needs PyYAML: pip install 'holdfast[yaml]'") from None
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
        if "\n" not in text and text.endswith((".yaml", ".yml")):
            text = Path(text).read_text(encoding="utf-8")
        try:
            plain = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigurationError(f"this policy is no YAML: {error}") from error
        return cls.from_dict(plain or {})


class Sequence:
    """See `FailurePolicy.sequence`."""

    def __init__(self, several: "tuple[AnyStrategy, ...]") -> None:
        self.several = _some(several, "sequence")


class Chain:
    """See `FailurePolicy.chain`."""

    def __init__(self, several: "tuple[AnyStrategy, ...]") -> None:
        self.several = _some(several, "chain")


AnyStrategy: TypeAlias = "Strategy | FailurePolicy | Sequence | Chain"


def check_strategy(strategy: object, name: str) -> None:
    """`ConfigurationError` for what is no strategy."""
    if not callable(strategy) and not isinstance(strategy, FailurePolicy | Sequence | Chain):
        raise ConfigurationError(f"{name}={strategy!r}: a RecoveryAction, or a function that returns one")


def _some(several: "tuple[AnyStrategy, ...]", name: str) -> "tuple[AnyStrategy, ...]":
    if not several:
        raise ConfigurationError(f"a {name} needs at least one strategy")
    for each in several:
        check_strategy(each, name)
    return several


async def decide(strategy: AnyStrategy, context: FailureContext, call: Call) -> RecoveryAction:
    """What a strategy does about a failure. `call` calls a user's function, plain or async."""
    if isinstance(strategy, RecoveryAction):
        return strategy
    if isinstance(strategy, FailurePolicy):
        return await decide(strategy.for_type(context.type), context, call)
    if isinstance(strategy, Sequence):
        return await decide(strategy.several[min(context.attempt, len(strategy.several)) - 1], context, call)
    if isinstance(strategy, Chain):
        for each in strategy.several:
            action = await decide(each, context, call)
            if action.kind != "escalate":
                break
        return action
    chosen = await call(strategy, context)
    check_strategy(chosen, "what a strategy returned")
    return await decide(chosen, context, call)


def _strategy_of(plain: Any) -> AnyStrategy:
    if isinstance(plain, list):
        return Sequence(tuple(map(_strategy_of, plain)))
    if isinstance(plain, Mapping):
        options = {str(name): value for name, value in plain.items()}
        if "action" in options:
            return RecoveryAction.named(options.pop("action"), **options)
        return _ready(options.pop("strategy", None), options)
    if isinstance(plain, str) and plain.lower() not in strategies.READY:
        return RecoveryAction.named(plain)
    return _ready(plain, {})


def _ready(name: Any, options: dict[str, Any]) -> AnyStrategy:
    maker = strategies.READY.get(name) if isinstance(name, str) else None
    if maker is None:
        raise ConfigurationError(f"{name!r} is no strategy; one of {', '.join(strategies.READY)}, or give an action")
    if "strategy" in options or maker is strategies.circuit_breaker:
        options["strategy"] = _strategy_of(options.get("then", "retry"))
        options.pop("then", None)
    try:
        made: AnyStrategy = maker(**options)
    except TypeError as error:
        raise ConfigurationError(f"strategy {name}: {error}") from None
    return made
