"""The recording functions as module-level functions: they act on the attempt in which they are called."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError
from holdfast.runtimes.agent.recorder import Recorder, current_recorder


def _recorder() -> Recorder:
    recorder = current_recorder.get()
    if recorder is None:
        raise ConfigurationError("no agent is running here: call this inside the function of an Agent")
    return recorder


def record_step(step: Step, *, compensator: Any = None) -> Any:
    """Record a step of the running agent. Returns a receipt: await it to know that the step is stored.

    `compensator` undoes the step, as in `record_compensator`; a tuple adds its arguments.
    """
    return _recorder().record_step(step, compensator=compensator)


def update_state(changes: Mapping[str, Any]) -> None:
    """Merge top-level keys into the state of the running agent. The next checkpoint saves it."""
    _recorder().update_state(changes)


def replace_state(state: Mapping[str, Any]) -> None:
    """Replace the whole state of the running agent. The next checkpoint saves it."""
    _recorder().replace_state(state)


def record_usage(*, input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> Any:
    """Add to the usage of the running agent. Raises `Escalated` once that exceeds its budget."""
    return _recorder().record_usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)


def record_compensator(compensator: str | Callable[..., Any], *args: Any) -> Any:
    """Say how to undo the step just recorded: a name from `compensators=`, or a function of this process."""
    return _recorder().record_compensator(compensator, *args)
