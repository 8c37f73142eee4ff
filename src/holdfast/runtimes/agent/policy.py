"""Which failure is answered by what: a strategy for each type, and one for the rest."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.records.errors import ConfigurationError
from holdfast.records.failure import FailureContext, FailureType
from holdfast.runtimes.agent import strategies
from holdfast.runtimes.agent.actions import RecoveryAction
from holdfast.runtimes.agent.strategies import Composed, check_strategy

__all__ = ["AnyStrategy", "Chain", "FailurePolicy", "Sequence", "check_strategy", "decide", "functions_of"]

Strategy: TypeAlias = "RecoveryAction | Callable[[FailureContext], RecoveryAction | Awaitable[RecoveryAction]]"
"""What to do about a failure, or a function that decides it."""
MOST_PARTS = 10_000
DEEPEST = 50
Call: TypeAlias = Callable[..., Awaitable[Any]]


class FailurePolicy(Composed):
    """A strategy for each type of failure, by the type's name in lower case; `default` for all others."""

    def __init__(self, /, *, default: "AnyStrategy" = RecoveryAction.ESCALATE, **by_type: "AnyStrategy") -> None:
        known = {each.value for each in FailureType}
        if unknown := set(by_type) - known:
            raise ConfigurationError(f"{min(unknown)!r} is no type of failure; one of {', '.join(sorted(known))}")
        for name, strategy in {**by_type, "default": default}.items():
            check_strategy(strategy, name)
        self.by_type = by_type
        self.default = default
        self.parts = (*by_type.values(), default)

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
        a sequence. Names are taken in any case of letters.
        """
        if not isinstance(plain, Mapping):
            raise ConfigurationError(f"a policy is a dict of strategies by type of failure, not {type(plain).__name__}")
        _check_size(plain)
        _check_once([str(name).lower() for name in plain])
        return cls(**{str(name).lower(): _strategy_of(value) for name, value in plain.items()})

    @classmethod
    def from_yaml(cls, source: str | Path) -> "FailurePolicy":
        """A policy from a YAML file, or from its text. Needs the extra `yaml`."""
        try:
            yaml = import_module("yaml")
        except ImportError:
            raise ConfigurationError("from_yaml needs PyYAML: pip install 'holdfast[yaml]'") from None
        text = _text_of(source)
        try:
            nodes, plain = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
            _check_keys(nodes, set())
        except (ConfigurationError, MemoryError):
            raise
        except Exception as error:  # PyYAML lets errors of all kinds out: IndexError, OverflowError, RecursionError
            raise ConfigurationError(f"this policy is no YAML: {error}") from error
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
    """The functions that a strategy may ask, however deep within it they are."""
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
    """What a strategy does about a failure. `call` calls a user's function, plain or async."""
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
    check_strategy(chosen, "what a strategy returned")
    return await decide(chosen, context, call)


def _check_size(plain: Any) -> None:
    """`ConfigurationError` for a policy that holds itself, or holds so much that making it would not end."""
    count, waiting = 0, [(plain, 0)]
    while waiting:
        each, depth = waiting.pop()
        count += 1
        if count > MOST_PARTS or depth > DEEPEST:
            raise ConfigurationError(
                f"the policy has more than {MOST_PARTS} parts, nests deeper than {DEEPEST}, or holds itself"
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
        raise ConfigurationError(f"{name!r} is no strategy; one of {', '.join(strategies.READY)}, or give an action")
    if maker is strategies.circuit_breaker:
        options["strategy"] = _strategy_of(options.pop("then", "retry"))
    try:
        made: AnyStrategy = maker(**options)
    except TypeError as error:
        raise ConfigurationError(f"strategy {name}: {error}") from None
    return made


def _text_of(source: object) -> str:
    """The text of a policy: a str that does not name a file, or what is in the file."""
    if isinstance(source, str) and ("\n" in source or not source.endswith((".yaml", ".yml"))):
        return source
    if not isinstance(source, str | Path):
        kind = type(source).__name__
        raise ConfigurationError(f"from_yaml takes the path of a file, or YAML as a str, not {kind}")
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the policy {str(source)!r} cannot be read: {error}") from error


def _check_keys(node: Any, seen: set[int]) -> None:
    """`ConfigurationError` for a key that a mapping in a YAML document has twice. An alias is a node seen before."""
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
            raise ConfigurationError(f"{name!r} is given twice in this policy; which is meant?")
