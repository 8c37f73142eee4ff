"""Ready strategies: each returns what to do about a failure, from nothing but what is known about it."""

from collections.abc import Callable
from typing import Any

from holdfast.records.arguments import amount, whole_number
from holdfast.records.failure import FailureContext
from holdfast.runtimes.agent.actions import RecoveryAction

Choice = Callable[[FailureContext], Any]


def backoff_and_retry(base: float = 1.0, factor: float = 2.0, longest: float = 60.0, hint: str = "") -> Choice:
    """Try again after a while, each time after a longer one."""
    for name, value in {"base": base, "factor": factor, "longest": longest}.items():
        amount(value, name)

    def choose(context: FailureContext) -> RecoveryAction:
        return RecoveryAction.RETRY(delay=_grown(base, factor, context.attempt - 1, longest), hint=hint)

    return choose


def _grown(base: float, factor: float, times: int, longest: float) -> float:
    try:
        return min(base * factor**times, longest)
    except OverflowError:
        return longest


def retry_with_hint(hint: str | Callable[[FailureContext], str]) -> Choice:
    """Try again with a hint, or with what a function makes of the failure."""

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

    def choose(context: FailureContext) -> RecoveryAction:
        named = [step.metadata["subgoal"] for step in context.steps if "subgoal" in step.metadata]
        return RecoveryAction.RESUME(from_subgoal=subgoal or (str(named[-1]) if named else ""))

    return choose


def circuit_breaker(strategy: Any = RecoveryAction.RETRY, threshold: int = 3) -> Choice:
    """A strategy, until a failure of one type has come so often in a row: then escalate."""
    whole_number(threshold, "threshold", least=1)

    def choose(context: FailureContext) -> Any:
        if context.repeats >= threshold:
            return RecoveryAction.ESCALATE(message=f"{context.repeats} failures in a row: {context.type.value}")
        return strategy

    return choose


READY: dict[str, Callable[..., Any]] = {
    "backoff_and_retry": backoff_and_retry,
    "retry_with_hint": retry_with_hint,
    "replan": replan,
    "rollback_to_checkpoint": rollback_to_checkpoint,
    "compensating_rollback": compensating_rollback,
    "resume_from_subgoal": resume_from_subgoal,
    "circuit_breaker": circuit_breaker,
}
