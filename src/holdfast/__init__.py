"""Holdfast resumes your agent where it crashed: every checkpoint is complete, and costs only what changed.

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
    ThreadFailed,
    TurnLimitExceeded,
    UnknownType,
    UnstorableValue,
)
from holdfast.records.event import Event as StoreEvent
from holdfast.records.outcome import Outcome, Recovery
from holdfast.records.reports import Copied, Guarantee, Problem, QueueInfo, Report, Stats
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
    from holdfast.runs.handles import Handle
    from holdfast.runs.kinds import FileStore, MemoryStore, PostgresStore, RedisStore, S3Store, SQLiteStore, open  # noqa: A004  the public name
    from holdfast.runs.options import Done, NotDone
    from holdfast.runs.run import Receipt, Run
    from holdfast.runs.steps import StepHandle
    from holdfast.runs.store import Store
    from holdfast.runs.worker import Worker
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

_MODULES = {
    "holdfast": "codec",
    "holdfast.codec.keys": "KeyRing",
    "holdfast.codec.limits": "Limits",
    "holdfast.codec.registry": "migration register storable",
    "holdfast.ports.pool": "pool",
    "holdfast.records.failure": "AgentSummary FailureContext FailureType RecoveryContext",
    "holdfast.records.loop": "Deferred LoopState Snapshot",
    "holdfast.runs.api": "append ask checkpoint confirm current durable idempotency_key record sleep",
    "holdfast.runs.decorators": "step",
    "holdfast.runs.handles": "Handle",
    "holdfast.runs.kinds": "FileStore MemoryStore PostgresStore RedisStore S3Store SQLiteStore open",
    "holdfast.runs.options": "Done NotDone",
    "holdfast.runs.run": "Receipt Run",
    "holdfast.runs.steps": "StepHandle",
    "holdfast.runs.store": "Store",
    "holdfast.runs.worker": "Worker",
    "holdfast.runtimes.agent.actions": "RecoveryAction",
    "holdfast.runtimes.agent.agent": "Agent agent",
    "holdfast.runtimes.agent.classifier": "RulesClassifier",
    "holdfast.runtimes.agent.context": "record_compensator record_step record_usage replace_state update_state",
    "holdfast.runtimes.agent.policy": "FailurePolicy",
    "holdfast.runtimes.agent.strategies": (
        "backoff_and_retry circuit_breaker compensating_rollback replan resume_from_subgoal retry_with_hint "
        "rollback_to_checkpoint"
    ),
    "holdfast.runtimes.loop.loop": "Loop SnapshotStore",
    "holdfast.runtimes.loop.tools": "tool",
    "holdfast.runtimes.manager.composition": "AgentContext Composite parallel repeat sequential",
    "holdfast.runtimes.manager.config": "CheckpointConfig RecoveryConfig",
    "holdfast.runtimes.manager.events": "Event find_agent_to_run",
    "holdfast.runtimes.manager.hooks": "CheckpointHooks",
    "holdfast.runtimes.manager.manager": "CheckpointManager",
    "holdfast.runtimes.manager.state": (
        "AgentState CheckpointStats Checkpointable ExecutionState PendingToolCall RecoveryReport ToolCallSnapshot"
    ),
    "holdfast.runtimes.session.orchestrator": "Orchestrator",
    "holdfast.runtimes.session.session": "Session",
    "holdfast.runtimes.workflow.checkpoints": "WorkflowCheckpoint latest_workflow_checkpoint workflow_checkpoints",
    "holdfast.runtimes.workflow.context": "WorkflowContext",
    "holdfast.runtimes.workflow.events": "WorkflowEvent WorkflowResult",
    "holdfast.runtimes.workflow.executors": "Executor WorkflowExecutor executor handler response_handler",
    "holdfast.runtimes.workflow.workflow": "Workflow WorkflowBuilder WorkflowStream",
}
"""The modules that are loaded when one of these names is first used."""
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load stores, runs and runtimes at their first use: a program that only needs errors or types starts faster."""
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    where = _LATER[name]
    value = import_module(f"holdfast.{name}") if where == "holdfast" else getattr(import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, including those that are not loaded yet."""
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
    "Handle",
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
    "QueueInfo",
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
    "ThreadFailed",
    "ThreadInfo",
    "ToolCallSnapshot",
    "Turn",
    "TurnLimitExceeded",
    "TurnResult",
    "UnknownType",
    "UnstorableValue",
    "UsageSnapshot",
    "Worker",
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
