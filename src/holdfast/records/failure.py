"""Failures: their types, and what classifiers, policies and later attempts are given about them."""

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.records.checkpoint import Step
from holdfast.records.request import Answer
from holdfast.records.usage import UsageSnapshot


class FailureType(StrEnum):
    """Why an attempt failed, as a policy sees it."""

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
    """A failure in its context: the argument of classifiers and strategies, and `context` of errors."""

    type: FailureType = FailureType.UNKNOWN
    error: BaseException | None = None
    """The error itself; None in a process other than the one that raised it."""
    error_type: str = ""
    message: str = ""
    attempt: int = 1
    """The number of this failure in the thread, from 1."""
    earlier: tuple[FailureType, ...] = ()
    """The failures before it, oldest first."""
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
        """How many failures in a row, up to this one, are of its type."""
        count = 1
        for each in reversed(self.earlier):
            if each != self.type:
                break
            count += 1
        return count


class RecoveryContext(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt knows about earlier ones: passed to the agent as `recovery`."""

    thread_id: str
    attempt: int
    """How many attempts have failed; 0 if the last process just died."""
    failure: FailureType | None = None
    message: str = ""
    action: str = ""
    """The action taken after the failure; after a SUSPEND, what the person chose."""
    answer: Answer | None = None
    """The person's answer after a SUSPEND."""
    hint: str = ""
    subgoal: str = ""
    state: dict[str, Any] = {}
    steps: list[Step] = []
    delivered: int = 0
    """How many items of its stream were already delivered."""


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of an agent's thread in total, over all processes."""

    thread_id: str
    agent: str
    """The agent's function; empty if the thread does not belong to an agent."""
    failures: tuple[FailureType, ...] = ()
    """One for each failed attempt, oldest first."""
    actions: tuple[str, ...] = ()
    """The action taken after each."""
    rollbacks: tuple[int, ...] = ()
    """The checkpoints it was rolled back to; 0 is the beginning."""
    usage: UsageSnapshot = UsageSnapshot()
    cost_usd: float = 0.0
