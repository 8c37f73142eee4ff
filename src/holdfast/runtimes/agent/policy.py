"""Failure policies: a strategy for each type of failure, and a default."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.records.errors import ConfigurationError, missing_extra
from holdfast.records.failure import FailureContext, FailureType
from holdfast.runtimes.agent import strategies
from holdfast.runtimes.agent.actions import RecoveryAction
from holdfast.runtimes.agent.strategies import Composed, check_strategy

__all__ = ["AnyStrategy", "Chain", "FailurePolicy", "Sequence", "check_strategy", "decide", "functions_of"]

Strategy: TypeAlias = "RecoveryAction | Callable[[FailureContext], RecoveryAction | Awaitable[RecoveryAction]]"
"""An action, or a function that chooses one."""
MOST_PARTS = 10_000
DEEPEST = 50
Call: TypeAlias = Callable[..., Awaitable[Any]]


class FailurePolicy(Composed):
    """A strategy for each type of failure, by the type's name in lower case; `default` for all others."""

    def __init__(self, /, *, default: "AnyStrategy" = RecoveryAction.ESCALATE, **by_type: "AnyStrategy") -> None:
        known = {each.value for each in FailureType}
        if unknown := set(by_type) - known:
            raise ConfigurationError(f"unknown failure type {min(unknown)!r}; use one of {', '.join(sorted(known))}")
        for name, strategy in {**by_type, "default": default}.items():
            check_strategy(strategy, name)
        self.by_type = by_type
        self.default = default
        self.parts = (*by_type.values(), default)

    def for_type(self, failure: FailureType) -> "AnyStrategy":
        """Return the strategy for a type of failure."""
        return self.by_type.get(failure.value, self.default)

    @staticmethod
    def sequence(*several: "AnyStrategy") -> "Sequence":
        """Use the n-th strategy for the n-th failure of the thread, and the last one from then on."""
        return Sequence(several)

    @staticmethod
    def chain(*several: "AnyStrategy") -> "Chain":
        """Use the first strategy that does not escalate."""
        return Chain(several)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "FailurePolicy":
        """Build a policy from plain data: per failure type the name of an action or strategy, a dict, or a list.

        `{"timeout": "retry", "external_fault": {"action": "rollback"}, "default": {"strategy": "replan"}}`. A dict
        adds options, a list is a sequence. The case of names does not matter.
        """
        if not isinstance(plain, Mapping):
            raise ConfigurationError(f"a policy must map failure types to strategies, got {type(plain).__name__}")
        _check_size(plain)
        _check_once([str(name).lower() for name in plain])
        return cls(**{str(name).lower(): _strategy_of(value) for name, value in plain.items()})

    @classmethod
    def from_yaml(cls, source: str | Path) -> "FailurePolicy":
        """Build a policy from a YAML file or YAML text. Needs the extra `yaml`."""
        try:
            yaml = import_module("yaml")
        except ImportError:
            raise missing_extra("from_yaml needs PyYAML", "yaml") from None
        text = _text_of(source)
        try:
            nodes, plain = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
            _check_keys(nodes, set())
        except (ConfigurationError, MemoryError):
            raise
        except Exception as error:  # PyYAML lets errors of all kinds out: IndexError, OverflowError, RecursionError
            raise ConfigurationError(f"the policy is not valid YAML: {error}") from error
        return cls.from_dict({} if plain is None else plain)


class Sequence(Composed):
    """See `FailurePolicy.sequence`."""

    def __init__(self, several: "tuple[AnyStrategy, ...]") -> None:
        self.parts = _some(several, "sequence")


class Chain(Composed):
    """See `FailurePolicy.chain`."""

    def __init__(self, several: "tuple[AnyStrategy, ...]") -> None:
        self.parts = _some(several, "chain")


AnyStrategy: TypeAlias = "Strategy | FailurePolicy | Sequence | Chain"


def functions_of(strategy: AnyStrategy) -> Iterator[Callable[..., Any]]:
    """Yield the functions a strategy may call, at any depth."""
    if isinstance(strategy, Composed):
        for part in strategy.parts:
            yield from functions_of(part)
    elif not isinstance(strategy, RecoveryAction):
        yield strategy


def _some(several: "tuple[AnyStrategy, ...]", name: str) -> "tuple[AnyStrategy, ...]":
    if not several:
        raise ConfigurationError(f"a {name} needs at least one strategy")
    for each in several:
        check_strategy(each, name)
    return several


async def decide(strategy: AnyStrategy, context: FailureContext, call: Call) -> RecoveryAction:
    """Return the action a strategy chooses for a failure. `call` calls a user's function, plain or async."""
    if isinstance(strategy, RecoveryAction):
        return strategy
    if isinstance(strategy, FailurePolicy):
        return await decide(strategy.for_type(context.type), context, call)
    if isinstance(strategy, Sequence):
        return await decide(strategy.parts[min(context.attempt, len(strategy.parts)) - 1], context, call)
    if isinstance(strategy, Chain):
        for each in strategy.parts:
            action = await decide(each, context, call)
            if action.kind != "escalate":
                break
        return action
    chosen = await call(strategy, context)
    check_strategy(chosen, "the result of a strategy")
    return await decide(chosen, context, call)


def _check_size(plain: Any) -> None:
    """Raise `ConfigurationError` for a policy that contains itself, or is too large or too deep to build."""
    count, waiting = 0, [(plain, 0)]
    while waiting:
        each, depth = waiting.pop()
        count += 1
        if count > MOST_PARTS or depth > DEEPEST:
            raise ConfigurationError(
                f"the policy has more than {MOST_PARTS} parts, is nested deeper than {DEEPEST}, or contains itself"
            )
        inner = each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ()
        waiting.extend((part, depth + 1) for part in inner)


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
    maker = strategies.READY.get(name.lower()) if isinstance(name, str) else None
    if maker is None:
        raise ConfigurationError(f"unknown strategy {name!r}; use one of {', '.join(strategies.READY)}, or an action")
    if maker is strategies.circuit_breaker:
        options["strategy"] = _strategy_of(options.pop("then", "retry"))
    try:
        made: AnyStrategy = maker(**options)
    except TypeError as error:
        raise ConfigurationError(f"strategy {name}: {error}") from None
    return made


def _text_of(source: object) -> str:
    """Return the text of a policy: the str itself, or the content of the file it names."""
    if isinstance(source, str) and ("\n" in source or not source.endswith((".yaml", ".yml"))):
        return source
    if not isinstance(source, str | Path):
        kind = type(source).__name__
        raise ConfigurationError(f"`source` must be a path or YAML text, got {kind}")
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the policy {str(source)!r}: {error}") from error


def _check_keys(node: Any, seen: set[int]) -> None:
    """Raise `ConfigurationError` for a duplicate key in a YAML mapping. `seen` holds nodes, as aliases repeat them."""
    inner = getattr(node, "value", None)
    if not isinstance(inner, list) or id(node) in seen:
        return
    seen.add(id(node))
    pairs = [each for each in inner if isinstance(each, tuple)]
    _check_once([key.value for key, _ in pairs if isinstance(key.value, str)])
    for each in [value for _, value in pairs] or inner:
        _check_keys(each, seen)


def _check_once(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"the policy defines {name!r} twice; remove one")
