"""The fixed vocabularies: stored as plain lower-case words, compared as strings."""

from enum import StrEnum
from typing import Final, Literal, TypeAlias


class Status(StrEnum):
    """The status of a thread. Always explicit, never inferred."""

    QUEUED = "queued"
    WORKING = "working"
    IDLE = "idle"
    INPUT_REQUIRED = "input_required"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """Why a checkpoint was taken."""

    EVENT = "event"
    INTERVAL = "interval"
    MANUAL = "manual"
    ERROR = "error"


class Phase(StrEnum):
    """Where in the agent loop a checkpoint was taken."""

    INITIALIZED = "initialized"
    PRE_LLM = "pre_llm"
    POST_LLM = "post_llm"
    TOOL_EXECUTION = "tool_execution"
    POST_TOOL = "post_tool"
    ITERATION_END = "iteration_end"
    TOOL_APPROVAL = "tool_approval"
    ERROR = "error"


STATUS_WORDS = {status: status.value for status in Status}
CAUSE_WORDS = {cause: cause.value for cause in Cause}
PHASE_WORDS: dict[Phase | None, str | None] = {None: None, **{phase: phase.value for phase in Phase}}
"""The plain word of each member, found by the member or by the word."""


class Durability(StrEnum):
    """What an acknowledged save survives: nothing, the death of the process, power loss, the loss of a node."""

    NONE = "none"
    PROCESS = "process"
    DURABLE = "durable"
    REPLICATED = "replicated"


KeepInputs: TypeAlias = Literal["preview", "full", "none"]
"""How much of a step's arguments its row keeps."""
KEEP_INPUTS_WORDS: Final = {"preview": "preview", "full": "full", "none": "none"}
