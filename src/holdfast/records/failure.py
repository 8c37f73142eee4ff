"""What went wrong: the types of failure, and all that a classifier or a policy may want to know about one."""

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.records.checkpoint import Step
from holdfast.records.request import Answer
from holdfast.records.usage import UsageSnapshot


class FailureType(StrEnum):
    """Why an attempt failed, as far as a policy cares."""

    WRONG_TOOL_CALLED = "wrong_tool_called"
    CONSTRAINT_IGNORED = "constraint_ignored"
    LOOP_DETECTED = "loop_detected"
    PLAN_INCOMPLETE = "plan_incomplete"
    SCHEMA_MISMATCH = "schema_mismatch"
    CONTEXT_OVERFLOW = "context_overflow"
    EXTERNAL_FAULT = "external_fault"
    TIMEOUT = "timeout"
    UNKNOWN = "unknown"


class FailureContext(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, and what surrounds it: what classifiers and strategies are called with, and errors carry."""

    type: FailureType = FailureType.UNKNOWN
    error: BaseException | None = None
    """The error itself; None in another process than the one it was raised in."""
    error_type: str = ""
    message: str = ""
    attempt: int = 1
    """The number of this failure among those of the thread, from 1."""
    earlier: tuple[FailureType, ...] = ()
    """The failures before it, the oldest first."""
    thread_id: str = ""
    task: Any = None
    state: dict[str, Any] = {}
    steps: list[Step] = []
    usage: UsageSnapshot = UsageSnapshot()
    cost_usd: float = 0.0
    seconds: float = 0.0
    """Since the first failure."""

    @property
    def repeats(self) -> int:
        """How many of the failures up to this one, without a break, are of its type."""
        count = 1
        for each in reversed(self.earlier):
            if each != self.type:
                break
            count += 1
        return count


class RecoveryContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt gets to know of the ones before it: handed to the agent as `recovery`."""

    thread_id: str
    attempt: int
    """How many attempts have failed; 0 if the process before just died."""
    failure: FailureType | None = None
    message: str = ""
    action: str = ""
    """What was done about the failure; after a SUSPEND, what the person chose."""
    answer: Answer | None = None
    """What the person said, after a SUSPEND: choice, value, comment, by."""
    hint: str = ""
    subgoal: str = ""
    state: dict[str, Any] = {}
    steps: list[Step] = []
    delivered: int = 0
    """How many items of its stream were delivered already."""


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts of an agent's thread amount to, over all processes."""

    thread_id: str
    agent: str
    """The agent's function; empty if the thread is none of an agent's."""
    failures: tuple[FailureType, ...] = ()
    """One for each attempt that failed, the oldest first."""
    actions: tuple[str, ...] = ()
    """What was decided about each."""
    rollbacks: tuple[int, ...] = ()
    """The checkpoints that were gone back to; 0 is the beginning."""
    usage: UsageSnapshot = UsageSnapshot()
    cost_usd: float = 0.0
