"""What an agent's function is handed, as functions that act on the attempt they are called in."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.agent.hands import Hands, current_hands


def _hands() -> Hands:
    hands = current_hands.get()
    if hands is None:
        raise ConfigurationError("there is no agent here: call this within the function of an Agent")
    return hands


def record_step(step: Step, *, compensator: Any = None) -> Any:
    """Record a step of the agent this code belongs to. Returns a receipt: await it to know that it is stored.

    `compensator`: how to undo it, as for `record_compensator` (a tuple if it takes arguments), stored with the step.
    """
    return _hands().record_step(step, compensator=compensator)


def update_state(changes: Mapping[str, Any]) -> None:
    """Merge top-level keys into the state of the agent this code belongs to; saved with the next checkpoint."""
    _hands().update_state(changes)


def replace_state(state: Mapping[str, Any]) -> None:
    """Put another state in place of the whole; saved with the next checkpoint."""
    _hands().replace_state(state)


def record_usage(*, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> Any:
    """Add to what the agent this code belongs to has used; `Escalated` once that is more than it may use."""
    return _hands().record_usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)


def record_compensator(compensator: str | Callable[..., Any], *args: Any) -> Any:
    """How to undo the step just recorded: a name of `compensators=`, or a function that dies with this process."""
    return _hands().record_compensator(compensator, *args)
