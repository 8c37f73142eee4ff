"""Holdfast continues your agent where it died: every checkpoint complete, each at the price of the change.

    store = holdfast.open("agents.db")
    await store.save("user-42", {"plan": [...], "messages": [...]})
    checkpoint = await store.latest("user-42")

Everything here is awaitable; `import holdfast.sync as holdfast` has the same names, blocking.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.records.checkpoint import Change, Checkpoint, CheckpointInfo, Step
from holdfast.records.errors import (
    Aborted,
    BudgetExceeded,
    CodecError,
    ConfigurationError,
    Conflict,
    Corrupt,
    Deleted,
    Diverged,
    Escalated,
    ExecutorFailed,
    Fenced,
    Finished,
    HoldfastError,
    HoldfastWarning,
    IncompatibleCheckpoint,
    InvalidAnswer,
    InvalidId,
    KeyReused,
    KeyUnavailable,
    LeaseHeld,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    RequestExpired,
    RunCancelled,
    RunError,
    SecretInState,
    StepFailed,
    StepInDoubt,
    StepTimeout,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    SuperstepLimit,
    Suspended,
    TurnLimitExceeded,
    UnknownType,
    UnstorableValue,
)
from holdfast.records.event import Event as StoreEvent
from holdfast.records.outcome import Outcome, Recovery
from holdfast.records.reports import Copied, Guarantee, Problem, Report, Stats
from holdfast.records.request import Answer, Request
from holdfast.records.retention import Freed, Retention
from holdfast.records.secret import Secret
from holdfast.records.thread import Lease, Page, ThreadInfo
from holdfast.records.turn import SessionSummary, Turn, TurnResult
from holdfast.records.usage import ModelPricing, UsageSnapshot
from holdfast.records.words import Cause, Durability, Phase, Status

if TYPE_CHECKING:
    from holdfast import codec
    from holdfast.codec.keys import KeyRing
    from holdfast.codec.limits import Limits
    from holdfast.codec.registry import migration, register, storable
    from holdfast.ports.pool import pool
    from holdfast.records.failure import AgentSummary, FailureContext, FailureType, RecoveryContext
    from holdfast.records.loop import Deferred, LoopState, Snapshot
    from holdfast.runs.api import append, ask, checkpoint, confirm, current, durable, idempotency_key, record, sleep
    from holdfast.runs.decorators import step
    from holdfast.runs.kinds import FileStore, MemoryStore, PostgresStore, RedisStore, S3Store, SQLiteStore, open  # noqa: A004  the public name
    from holdfast.runs.options import Done, NotDone
    from holdfast.runs.run import Receipt, Run
    from holdfast.runs.steps import StepHandle
    from holdfast.runs.store import Store
    from holdfast.runtimes.agent.actions import RecoveryAction
    from holdfast.runtimes.agent.agent import Agent, agent
    from holdfast.runtimes.agent.classifier import RulesClassifier
    from holdfast.runtimes.agent.context import (
        record_compensator,
        record_step,
        record_usage,
        replace_state,
        update_state,
    )
    from holdfast.runtimes.agent.policy import FailurePolicy
    from holdfast.runtimes.agent.strategies import (
        backoff_and_retry,
        circuit_breaker,
        compensating_rollback,
        replan,
        resume_from_subgoal,
        retry_with_hint,
        rollback_to_checkpoint,
    )
    from holdfast.runtimes.loop.loop import Loop, SnapshotStore
    from holdfast.runtimes.loop.tools import tool
    from holdfast.runtimes.manager.composition import AgentContext, Composite, parallel, repeat, sequential
    from holdfast.runtimes.manager.config import CheckpointConfig, RecoveryConfig
    from holdfast.runtimes.manager.events import Event, find_agent_to_run
    from holdfast.runtimes.manager.hooks import CheckpointHooks
    from holdfast.runtimes.manager.manager import CheckpointManager
    from holdfast.runtimes.manager.state import (
        AgentState,
        Checkpointable,
        CheckpointStats,
        ExecutionState,
        PendingToolCall,
        RecoveryReport,
        ToolCallSnapshot,
    )
    from holdfast.runtimes.session.orchestrator import Orchestrator
    from holdfast.runtimes.session.session import Session
    from holdfast.runtimes.workflow.checkpoints import (
        WorkflowCheckpoint,
        latest_workflow_checkpoint,
        workflow_checkpoints,
    )
    from holdfast.runtimes.workflow.context import WorkflowContext
    from holdfast.runtimes.workflow.events import WorkflowEvent, WorkflowResult
    from holdfast.runtimes.workflow.executors import Executor, WorkflowExecutor, executor, handler, response_handler
    from holdfast.runtimes.workflow.workflow import Workflow, WorkflowBuilder, WorkflowStream

__version__ = "0.1.0"

_LATER = {
    "Agent": "holdfast.runtimes.agent.agent",
    "AgentContext": "holdfast.runtimes.manager.composition",
    "AgentState": "holdfast.runtimes.manager.state",
    "AgentSummary": "holdfast.records.failure",
    "CheckpointConfig": "holdfast.runtimes.manager.config",
    "CheckpointHooks": "holdfast.runtimes.manager.hooks",
    "CheckpointManager": "holdfast.runtimes.manager.manager",
    "CheckpointStats": "holdfast.runtimes.manager.state",
    "Checkpointable": "holdfast.runtimes.manager.state",
    "Composite": "holdfast.runtimes.manager.composition",
    "Deferred": "holdfast.records.loop",
    "Done": "holdfast.runs.options",
    "Event": "holdfast.runtimes.manager.events",
    "ExecutionState": "holdfast.runtimes.manager.state",
    "Executor": "holdfast.runtimes.workflow.executors",
    "FailureContext": "holdfast.records.failure",
    "FailurePolicy": "holdfast.runtimes.agent.policy",
    "FailureType": "holdfast.records.failure",
    "FileStore": "holdfast.runs.kinds",
    "KeyRing": "holdfast.codec.keys",
    "Limits": "holdfast.codec.limits",
    "Loop": "holdfast.runtimes.loop.loop",
    "LoopState": "holdfast.records.loop",
    "MemoryStore": "holdfast.runs.kinds",
    "NotDone": "holdfast.runs.options",
    "Orchestrator": "holdfast.runtimes.session.orchestrator",
    "PendingToolCall": "holdfast.runtimes.manager.state",
    "PostgresStore": "holdfast.runs.kinds",
    "Receipt": "holdfast.runs.run",
    "RecoveryAction": "holdfast.runtimes.agent.actions",
    "RecoveryConfig": "holdfast.runtimes.manager.config",
    "RecoveryContext": "holdfast.records.failure",
    "RecoveryReport": "holdfast.runtimes.manager.state",
    "RedisStore": "holdfast.runs.kinds",
    "RulesClassifier": "holdfast.runtimes.agent.classifier",
    "Run": "holdfast.runs.run",
    "S3Store": "holdfast.runs.kinds",
    "SQLiteStore": "holdfast.runs.kinds",
    "Session": "holdfast.runtimes.session.session",
    "Snapshot": "holdfast.records.loop",
    "SnapshotStore": "holdfast.runtimes.loop.loop",
    "StepHandle": "holdfast.runs.steps",
    "Store": "holdfast.runs.store",
    "ToolCallSnapshot": "holdfast.runtimes.manager.state",
    "Workflow": "holdfast.runtimes.workflow.workflow",
    "WorkflowBuilder": "holdfast.runtimes.workflow.workflow",
    "WorkflowCheckpoint": "holdfast.runtimes.workflow.checkpoints",
    "WorkflowContext": "holdfast.runtimes.workflow.context",
    "WorkflowEvent": "holdfast.runtimes.workflow.events",
    "WorkflowExecutor": "holdfast.runtimes.workflow.executors",
    "WorkflowResult": "holdfast.runtimes.workflow.events",
    "WorkflowStream": "holdfast.runtimes.workflow.workflow",
    "agent": "holdfast.runtimes.agent.agent",
    "append": "holdfast.runs.api",
    "ask": "holdfast.runs.api",
    "backoff_and_retry": "holdfast.runtimes.agent.strategies",
    "checkpoint": "holdfast.runs.api",
    "circuit_breaker": "holdfast.runtimes.agent.strategies",
    "codec": "holdfast",
    "compensating_rollback": "holdfast.runtimes.agent.strategies",
    "confirm": "holdfast.runs.api",
    "current": "holdfast.runs.api",
    "durable": "holdfast.runs.api",
    "executor": "holdfast.runtimes.workflow.executors",
    "find_agent_to_run": "holdfast.runtimes.manager.events",
    "handler": "holdfast.runtimes.workflow.executors",
    "idempotency_key": "holdfast.runs.api",
    "latest_workflow_checkpoint": "holdfast.runtimes.workflow.checkpoints",
    "migration": "holdfast.codec.registry",
    "open": "holdfast.runs.kinds",
    "parallel": "holdfast.runtimes.manager.composition",
    "pool": "holdfast.ports.pool",
    "record": "holdfast.runs.api",
    "record_compensator": "holdfast.runtimes.agent.context",
    "record_step": "holdfast.runtimes.agent.context",
    "record_usage": "holdfast.runtimes.agent.context",
    "register": "holdfast.codec.registry",
    "repeat": "holdfast.runtimes.manager.composition",
    "replace_state": "holdfast.runtimes.agent.context",
    "replan": "holdfast.runtimes.agent.strategies",
    "response_handler": "holdfast.runtimes.workflow.executors",
    "resume_from_subgoal": "holdfast.runtimes.agent.strategies",
    "retry_with_hint": "holdfast.runtimes.agent.strategies",
    "rollback_to_checkpoint": "holdfast.runtimes.agent.strategies",
    "sequential": "holdfast.runtimes.manager.composition",
    "sleep": "holdfast.runs.api",
    "step": "holdfast.runs.decorators",
    "storable": "holdfast.codec.registry",
    "tool": "holdfast.runtimes.loop.tools",
    "update_state": "holdfast.runtimes.agent.context",
    "workflow_checkpoints": "holdfast.runtimes.workflow.checkpoints",
}


def __getattr__(name: str) -> Any:
    """Load stores and runs at their first use: a program that only names errors or types starts without them."""
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    where = _LATER[name]
    value = import_module(f"holdfast.{name}") if where == "holdfast" else getattr(import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What there is to use, also what is not loaded yet."""
    return __all__


__all__ = [
    "Aborted",
    "Agent",
    "AgentContext",
    "AgentState",
    "AgentSummary",
    "Answer",
    "BudgetExceeded",
    "Cause",
    "Change",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointHooks",
    "CheckpointInfo",
    "CheckpointManager",
    "CheckpointStats",
    "Checkpointable",
    "CodecError",
    "Composite",
    "ConfigurationError",
    "Conflict",
    "Copied",
    "Corrupt",
    "Deferred",
    "Deleted",
    "Diverged",
    "Done",
    "Durability",
    "Escalated",
    "Event",
    "ExecutionState",
    "Executor",
    "ExecutorFailed",
    "FailureContext",
    "FailurePolicy",
    "FailureType",
    "Fenced",
    "FileStore",
    "Finished",
    "Freed",
    "Guarantee",
    "HoldfastError",
    "HoldfastWarning",
    "IncompatibleCheckpoint",
    "InvalidAnswer",
    "InvalidId",
    "KeyReused",
    "KeyRing",
    "KeyUnavailable",
    "Lease",
    "LeaseHeld",
    "LimitExceeded",
    "Limits",
    "Loop",
    "LoopState",
    "MemoryStore",
    "ModelPricing",
    "NotDone",
    "NotFound",
    "Orchestrator",
    "Outcome",
    "OutcomeUnknown",
    "Page",
    "PendingToolCall",
    "Phase",
    "PostgresStore",
    "Problem",
    "Receipt",
    "Recovery",
    "RecoveryAction",
    "RecoveryConfig",
    "RecoveryContext",
    "RecoveryReport",
    "RedisStore",
    "Report",
    "Request",
    "RequestExpired",
    "Retention",
    "RulesClassifier",
    "Run",
    "RunCancelled",
    "RunError",
    "S3Store",
    "SQLiteStore",
    "Secret",
    "SecretInState",
    "Session",
    "SessionSummary",
    "Snapshot",
    "SnapshotStore",
    "Stats",
    "Status",
    "Step",
    "StepFailed",
    "StepHandle",
    "StepInDoubt",
    "StepTimeout",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreEvent",
    "StoreUnavailable",
    "SuperstepLimit",
    "Suspended",
    "ThreadInfo",
    "ToolCallSnapshot",
    "Turn",
    "TurnLimitExceeded",
    "TurnResult",
    "UnknownType",
    "UnstorableValue",
    "UsageSnapshot",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowCheckpoint",
    "WorkflowContext",
    "WorkflowEvent",
    "WorkflowExecutor",
    "WorkflowResult",
    "WorkflowStream",
    "__version__",
    "agent",
    "append",
    "ask",
    "backoff_and_retry",
    "checkpoint",
    "circuit_breaker",
    "codec",
    "compensating_rollback",
    "confirm",
    "current",
    "durable",
    "executor",
    "find_agent_to_run",
    "handler",
    "idempotency_key",
    "latest_workflow_checkpoint",
    "migration",
    "open",
    "parallel",
    "pool",
    "record",
    "record_compensator",
    "record_step",
    "record_usage",
    "register",
    "repeat",
    "replace_state",
    "replan",
    "response_handler",
    "resume_from_subgoal",
    "retry_with_hint",
    "rollback_to_checkpoint",
    "sequential",
    "sleep",
    "step",
    "storable",
    "tool",
    "update_state",
    "workflow_checkpoints",
]
