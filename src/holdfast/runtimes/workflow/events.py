"""What a run of a workflow reports: events as they happen, and its result."""

from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.records.outcome import Outcome

WorkflowEventType: TypeAlias = Literal[
    "started",
    "status",
    "superstep_started",
    "superstep_completed",
    "executor_invoked",
    "executor_completed",
    "executor_failed",
    "executor_replayed",
    "output",
    "request_info",
    "checkpoint_saved",
    "failed",
]


class WorkflowEvent(msgspec.Struct, frozen=True):
    """Something that happened. What an event shows of outputs and requests is stored already."""

    type: WorkflowEventType
    data: Any = None
    executor_id: str | None = None
    checkpoint_id: str | None = None
    request_id: str | None = None


class WorkflowResult(Outcome, frozen=True, kw_only=True):
    """How a run of a workflow ended: complete with its outputs, or waiting for the responses to its requests."""

    outputs: list[Any]
    """All outputs of the thread, in the order in which they were yielded."""
    events: list[WorkflowEvent]
    """The events of this run."""

    def get_outputs(self) -> list[Any]:
        """The same as `outputs`."""
        return self.outputs
