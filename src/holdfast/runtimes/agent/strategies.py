"""Ready strategies: each returns what to do about a failure, from nothing but what is known about it.

Here also stands what counts as a strategy, and which functions a strategy may be made of.
"""

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
    """A strategy that is made of others."""

    parts: tuple[Any, ...] = ()


def check_strategy(strategy: object, name: str) -> None:
    """`ConfigurationError` for what is no strategy, also for what must be called to make one."""
    if isinstance(strategy, type) or any(strategy is maker for maker in READY.values()):
        word = getattr(strategy, "__name__", "")
        raise ConfigurationError(f"{name}={word} is no strategy, but may make one: call it, {name}={word}(…)")
    if not callable(strategy) and not isinstance(strategy, Composed):
        raise ConfigurationError(f"{name}={strategy!r}: a RecoveryAction, or a function that returns one")


def is_plain(function: object) -> bool:
    """True of what can be called and is no `async def`: neither itself, nor within a partial, nor by its `__call__`."""
    while isinstance(function, partial):
        function = function.func
    return callable(function) and not (_is_async(function) or _is_async(type(function).__call__))


def _is_async(function: object) -> bool:
    return iscoroutinefunction(function) or isasyncgenfunction(function)


def backoff_and_retry(base: float = 1.0, factor: float = 2.0, longest: float = 60.0, hint: str = "") -> Choice:
    """Try again after a while, each time after a longer one."""
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
    """Try again with a hint, or with what a plain function makes of the failure."""
    if not isinstance(hint, str) and not is_plain(hint):
        raise ConfigurationError(f"hint={hint!r}: a str, or a plain function that returns one")

    def choose(context: FailureContext) -> RecoveryAction:
        return RecoveryAction.RETRY(hint=hint if isinstance(hint, str) else hint(context))

    return choose


def replan(hint: str = "the plan failed; make another") -> RecoveryAction:
    """Try again with a new plan, keeping what is there."""
    return RecoveryAction.REPLAN(hint=hint)


def rollback_to_checkpoint(checkpoint_id: str | None = None, hint: str = "") -> RecoveryAction:
    """Go back to a checkpoint: this one, or the newest before the failing step."""
    return RecoveryAction.ROLLBACK(checkpoint_id=checkpoint_id, hint=hint)


def compensating_rollback(checkpoint_id: str | None = None, hint: str = "") -> RecoveryAction:
    """As a rollback, but only if each undone step has a compensator or is idempotent; else escalate."""
    return RecoveryAction.ROLLBACK(checkpoint_id=checkpoint_id, hint=hint, strict=True)


def resume_from_subgoal(subgoal: str | None = None) -> Choice:
    """Go on from a sub-goal: this one, or the newest that a step names in its metadata (`subgoal`)."""
    if subgoal is not None and not isinstance(subgoal, str):
        raise ConfigurationError(f"subgoal={subgoal!r}: a str, or None")

    def choose(context: FailureContext) -> RecoveryAction:
        named = [step.metadata["subgoal"] for step in context.steps if "subgoal" in step.metadata]
        return RecoveryAction.RESUME(from_subgoal=subgoal or (str(named[-1]) if named else ""))

    return choose


def circuit_breaker(strategy: Any = RecoveryAction.RETRY, threshold: int = 3) -> Choice:
    """A strategy, until a failure of one type has come so often in a row: then escalate.

    In plain data, where `strategy` is the name of this one, its own is `then`, by default retry:
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
