"""Ready-made strategies: each chooses an action from the context of a failure. Also the checks of strategies."""

from collections.abc import Callable
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

from holdfast.records.arguments import amount, duration_us, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.records.failure import FailureContext
from holdfast.runtimes.agent.actions import RecoveryAction

Choice = Callable[[FailureContext], Any]


class Composed:
    """A strategy composed of others."""

    parts: tuple[Any, ...] = ()


def check_strategy(strategy: object, name: str) -> None:
    """Raise `ConfigurationError` for anything but a strategy, also for a function that returns one when called."""
    if isinstance(strategy, type) or any(strategy is maker for maker in READY.values()):
        word = getattr(strategy, "__name__", "")
        raise ConfigurationError(f"{name} must be a strategy; {word} creates one: call it, {word}(…)")
    if not callable(strategy) and not isinstance(strategy, Composed):
        raise ConfigurationError(f"{name} must be a RecoveryAction or a function that returns one, got {strategy!r}")


def is_plain(function: object) -> bool:
    """True if it is callable and not async: neither itself, nor inside a partial, nor by its `__call__`."""
    while isinstance(function, partial):
        function = function.func
    return callable(function) and not (_is_async(function) or _is_async(type(function).__call__))


def _is_async(function: object) -> bool:
    return iscoroutinefunction(function) or isasyncgenfunction(function)


def backoff_and_retry(base: float = 1.0, factor: float = 2.0, longest: float = 60.0, hint: str = "") -> Choice:
    """Retry with exponential backoff."""
    for name, value in {"base": base, "factor": factor, "longest": longest}.items():
        amount(value, name)
    duration_us(longest, "longest")
    hinted = RecoveryAction.RETRY(hint=hint)

    def choose(context: FailureContext) -> RecoveryAction:
        return hinted(delay=_grown(base, factor, context.attempt - 1, longest))

    return choose


def _grown(base: float, factor: float, times: int, longest: float) -> float:
    try:
        return min(base * factor**times, longest)
    except OverflowError:
        return longest


def retry_with_hint(hint: str | Callable[[FailureContext], str]) -> Choice:
    """Retry with a hint, or with the hint that a plain function returns for the failure."""
    if not isinstance(hint, str) and not is_plain(hint):
        raise ConfigurationError(f"`hint` must be a str or a plain function that returns one, got {hint!r}")

    def choose(context: FailureContext) -> RecoveryAction:
        return RecoveryAction.RETRY(hint=hint if isinstance(hint, str) else hint(context))

    return choose


def replan(hint: str = "the plan failed; make another") -> RecoveryAction:
    """Retry with a new plan, and keep the state."""
    return RecoveryAction.REPLAN(hint=hint)


def rollback_to_checkpoint(checkpoint_id: str | None = None, hint: str = "") -> RecoveryAction:
    """Roll back to this checkpoint, or to the newest before the failing step."""
    return RecoveryAction.ROLLBACK(checkpoint_id=checkpoint_id, hint=hint)


def compensating_rollback(checkpoint_id: str | None = None, hint: str = "") -> RecoveryAction:
    """Roll back only if each undone step has a compensator or is idempotent; else escalate."""
    return RecoveryAction.ROLLBACK(checkpoint_id=checkpoint_id, hint=hint, strict=True)


def resume_from_subgoal(subgoal: str | None = None) -> Choice:
    """Resume from this sub-goal, or from the newest that a step names in its metadata (`subgoal`)."""
    if subgoal is not None and not isinstance(subgoal, str):
        raise ConfigurationError(f"`subgoal` must be a str or None, got {subgoal!r}")

    def choose(context: FailureContext) -> RecoveryAction:
        named = [step.metadata["subgoal"] for step in context.steps if "subgoal" in step.metadata]
        return RecoveryAction.RESUME(from_subgoal=subgoal or (str(named[-1]) if named else ""))

    return choose


def circuit_breaker(strategy: Any = RecoveryAction.RETRY, threshold: int = 3) -> Choice:
    """Use a strategy until failures of one type occur `threshold` times in a row, then escalate.

    In plain data the inner strategy is `then` (default: retry):
    `{"strategy": "circuit_breaker", "then": "rollback", "threshold": 2}`.
    """
    check_strategy(strategy, "strategy")
    return _Breaker(strategy, whole_number(threshold, "threshold", least=1))


class _Breaker(Composed):
    """See `circuit_breaker`."""

    def __init__(self, strategy: Any, threshold: int) -> None:
        self.parts = (strategy,)
        self._threshold = threshold

    def __call__(self, context: FailureContext) -> Any:
        if context.repeats >= self._threshold:
            return RecoveryAction.ESCALATE(message=f"{context.repeats} failures in a row: {context.type.value}")
        return self.parts[0]


READY: dict[str, Callable[..., Any]] = {
    "backoff_and_retry": backoff_and_retry,
    "retry_with_hint": retry_with_hint,
    "replan": replan,
    "rollback_to_checkpoint": rollback_to_checkpoint,
    "compensating_rollback": compensating_rollback,
    "resume_from_subgoal": resume_from_subgoal,
    "circuit_breaker": circuit_breaker,
}
