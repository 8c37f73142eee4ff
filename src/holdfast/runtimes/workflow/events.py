"""What a run of a workflow is asked for, and what it reports: events as they happen, and its result."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from holdfast.records.arguments import check_options, mapping_or_none, whole_number
from holdfast.records.errors import ConfigurationError
from holdfast.records.outcome import Outcome
from holdfast.records.request import Request
from holdfast.records.words import Status

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


MISSING: Any = ...
"""No message was given."""


class RunOptions(TypedDict, total=False):
    """The keywords of `run`. See `Workflow.run`."""

    thread_id: str | None
    checkpoint_id: str | None
    responses: Mapping[str, Any] | None
    retry: int | None


class Call:
    """One run: what was asked for, checked, and what came of it so far."""

    def __init__(self, message: Any, options: RunOptions) -> None:
        check_options(options, tuple(RunOptions.__annotations__))
        self.message = message
        self.thread_id = options.get("thread_id")
        self.checkpoint_id = options.get("checkpoint_id")
        self.responses = dict(mapping_or_none(options.get("responses"), "responses") or {})
        self.retry = whole_number(options.get("retry") or 0, "retry")
        is_missing = message is MISSING
        if self.checkpoint_id is not None and not is_missing:
            raise ConfigurationError("run takes a message, which starts a workflow, or a checkpoint_id to continue at")
        if is_missing and self.thread_id is None and self.checkpoint_id is None:
            raise ConfigurationError("run needs a message to start with, or a thread_id or checkpoint_id to resume")
        if self.responses and self.thread_id is None:
            raise ConfigurationError("responses are for a thread that waits for them; give its thread_id")
        self.events: list[WorkflowEvent] = []
        self.outputs: list[Any] = []
        self._result: WorkflowResult | None = None

    def seen(self, event: WorkflowEvent) -> WorkflowEvent:
        """Add an event to those of this run."""
        self.events.append(event)
        return event

    def end(self, thread_id: str, status: Status, requests: tuple[Request, ...] = ()) -> None:
        """Keep how the run ended."""
        done: dict[str, Any] = {"result": self.outputs, "outputs": self.outputs, "events": self.events}
        self._result = WorkflowResult(status=status, thread_id=thread_id, requests=requests, **done)

    def result(self) -> WorkflowResult:
        """How the run ended; `ConfigurationError` if it did not."""
        if self._result is None:
            raise ConfigurationError("this stream was left before its end; run its thread again")
        return self._result
