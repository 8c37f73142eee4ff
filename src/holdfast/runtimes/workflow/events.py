"""The options of a workflow run, its events, and its result."""

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
    """An event of a run. Outputs and requests are stored before their events are emitted."""

    type: WorkflowEventType
    data: Any = None
    executor_id: str | None = None
    checkpoint_id: str | None = None
    request_id: str | None = None


class WorkflowResult(Outcome, frozen=True, kw_only=True):
    """How a run of a workflow ended: complete with its outputs, or waiting for responses to its requests."""

    outputs: list[Any]
    """All outputs of the thread, in order."""
    events: list[WorkflowEvent]
    """The events of this run."""

    def get_outputs(self) -> list[Any]:
        """Return `outputs`."""
        return self.outputs


MISSING: Any = ...
"""Stands for a message that was not passed."""


class RunOptions(TypedDict, total=False):
    """The keyword options of `Workflow.run`."""

    thread_id: str | None
    checkpoint_id: str | None
    responses: Mapping[str, Any] | None
    retry: int | None


class Call:
    """One run: its checked options, and its events and outputs so far."""

    def __init__(self, message: Any, options: RunOptions) -> None:
        check_options(options, tuple(RunOptions.__annotations__))
        self.message = message
        self.thread_id = options.get("thread_id")
        self.checkpoint_id = options.get("checkpoint_id")
        self.responses = dict(mapping_or_none(options.get("responses"), "responses") or {})
        self.retry = whole_number(options.get("retry") or 0, "retry")
        is_missing = message is MISSING
        if self.checkpoint_id is not None and not is_missing:
            raise ConfigurationError(
                "run takes a message to start a workflow, or a checkpoint_id to resume from, not both"
            )
        if is_missing and self.thread_id is None and self.checkpoint_id is None:
            raise ConfigurationError("run needs a message to start with, or a thread_id or checkpoint_id to resume")
        if self.responses and self.thread_id is None:
            raise ConfigurationError("responses need the thread_id of the thread that waits for them")
        self.events: list[WorkflowEvent] = []
        self.outputs: list[Any] = []
        self._result: WorkflowResult | None = None

    def seen(self, event: WorkflowEvent) -> WorkflowEvent:
        """Record an event of this run and return it."""
        self.events.append(event)
        return event

    def end(self, thread_id: str, status: Status, requests: tuple[Request, ...] = ()) -> None:
        """Record how the run ended."""
        done: dict[str, Any] = {"result": self.outputs, "outputs": self.outputs, "events": self.events}
        self._result = WorkflowResult(status=status, thread_id=thread_id, requests=requests, **done)

    def result(self) -> WorkflowResult:
        """Return how the run ended; `ConfigurationError` if it has not ended."""
        if self._result is None:
            raise ConfigurationError("this stream was closed before its end; run its thread again")
        return self._result
