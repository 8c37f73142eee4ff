"""The same names, blocking: `import holdfast.sync as holdfast`. No event loop, no portal, no thread but the heartbeat.

Every method is one line: the awaitable one, stepped to its end over `BlockingPorts`. Names without I/O are the same
objects as in `holdfast`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast import __version__, codec
from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import Limits
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
from holdfast.records.thread import Lease, ThreadInfo
from holdfast.records.turn import SessionSummary, Turn, TurnResult
from holdfast.records.usage import ModelPricing, UsageSnapshot
from holdfast.records.words import Cause, Durability, Phase, Status
from holdfast.sync.run import Receipt, Run
from holdfast.sync.store import (
    FileStore,
    MemoryStore,
    Page,
    PostgresStore,
    RedisStore,
    S3Store,
    SQLiteStore,
    Store,
    open,  # noqa: A004  the public name
)

if TYPE_CHECKING:
    from holdfast.codec.registry import migration, register, storable
    from holdfast.ports.pool import pool
    from holdfast.records.failure import AgentSummary, FailureContext, FailureType, RecoveryContext
    from holdfast.records.loop import Deferred, LoopState, Snapshot
    from holdfast.runs.api import idempotency_key
    from holdfast.runs.decorators import step
    from holdfast.runs.options import Done, NotDone
    from holdfast.runs.steps import StepHandle
    from holdfast.runtimes.agent.actions import RecoveryAction
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
    from holdfast.runtimes.loop.tools import tool
    from holdfast.runtimes.manager.composition import AgentContext
    from holdfast.runtimes.manager.config import CheckpointConfig, RecoveryConfig
    from holdfast.runtimes.manager.events import Event, find_agent_to_run
    from holdfast.runtimes.manager.state import (
        AgentState,
        Checkpointable,
        CheckpointStats,
        ExecutionState,
        PendingToolCall,
        RecoveryReport,
        ToolCallSnapshot,
    )
    from holdfast.runtimes.workflow.checkpoints import WorkflowCheckpoint
    from holdfast.runtimes.workflow.events import WorkflowEvent, WorkflowResult
    from holdfast.runtimes.workflow.executors import Executor, WorkflowExecutor, executor, handler, response_handler
    from holdfast.sync.agents import Agent, agent
    from holdfast.sync.composition import Composite, parallel, repeat, sequential
    from holdfast.sync.functions import append, ask, checkpoint, confirm, current, durable, record, sleep
    from holdfast.sync.loops import Loop, SnapshotStore
    from holdfast.sync.manager import CheckpointHooks, CheckpointManager
    from holdfast.sync.session import Orchestrator, Session
    from holdfast.sync.workflows import (
        Workflow,
        WorkflowBuilder,
        WorkflowContext,
        WorkflowStream,
        latest_workflow_checkpoint,
        workflow_checkpoints,
    )

_LATER = {
    "Agent": "holdfast.sync.agents",
    "AgentContext": "holdfast.runtimes.manager.composition",
    "AgentState": "holdfast.runtimes.manager.state",
    "AgentSummary": "holdfast.records.failure",
    "CheckpointConfig": "holdfast.runtimes.manager.config",
    "CheckpointHooks": "holdfast.sync.manager",
    "CheckpointManager": "holdfast.sync.manager",
    "CheckpointStats": "holdfast.runtimes.manager.state",
    "Checkpointable": "holdfast.runtimes.manager.state",
    "Composite": "holdfast.sync.composition",
    "Deferred": "holdfast.records.loop",
    "Done": "holdfast.runs.options",
    "Event": "holdfast.runtimes.manager.events",
    "ExecutionState": "holdfast.runtimes.manager.state",
    "Executor": "holdfast.runtimes.workflow.executors",
    "FailureContext": "holdfast.records.failure",
    "FailurePolicy": "holdfast.runtimes.agent.policy",
    "FailureType": "holdfast.records.failure",
    "Loop": "holdfast.sync.loops",
    "LoopState": "holdfast.records.loop",
    "NotDone": "holdfast.runs.options",
    "Orchestrator": "holdfast.sync.session",
    "PendingToolCall": "holdfast.runtimes.manager.state",
    "RecoveryAction": "holdfast.runtimes.agent.actions",
    "RecoveryConfig": "holdfast.runtimes.manager.config",
    "RecoveryContext": "holdfast.records.failure",
    "RecoveryReport": "holdfast.runtimes.manager.state",
    "RulesClassifier": "holdfast.runtimes.agent.classifier",
    "Session": "holdfast.sync.session",
    "Snapshot": "holdfast.records.loop",
    "SnapshotStore": "holdfast.sync.loops",
    "StepHandle": "holdfast.runs.steps",
    "ToolCallSnapshot": "holdfast.runtimes.manager.state",
    "Workflow": "holdfast.sync.workflows",
    "WorkflowBuilder": "holdfast.sync.workflows",
    "WorkflowCheckpoint": "holdfast.runtimes.workflow.checkpoints",
    "WorkflowContext": "holdfast.sync.workflows",
    "WorkflowEvent": "holdfast.runtimes.workflow.events",
    "WorkflowExecutor": "holdfast.runtimes.workflow.executors",
    "WorkflowResult": "holdfast.runtimes.workflow.events",
    "WorkflowStream": "holdfast.sync.workflows",
    "agent": "holdfast.sync.agents",
    "append": "holdfast.sync.functions",
    "ask": "holdfast.sync.functions",
    "backoff_and_retry": "holdfast.runtimes.agent.strategies",
    "checkpoint": "holdfast.sync.functions",
    "circuit_breaker": "holdfast.runtimes.agent.strategies",
    "compensating_rollback": "holdfast.runtimes.agent.strategies",
    "confirm": "holdfast.sync.functions",
    "current": "holdfast.sync.functions",
    "durable": "holdfast.sync.functions",
    "executor": "holdfast.runtimes.workflow.executors",
    "find_agent_to_run": "holdfast.runtimes.manager.events",
    "handler": "holdfast.runtimes.workflow.executors",
    "idempotency_key": "holdfast.runs.api",
    "latest_workflow_checkpoint": "holdfast.sync.workflows",
    "migration": "holdfast.codec.registry",
    "parallel": "holdfast.sync.composition",
    "pool": "holdfast.ports.pool",
    "record": "holdfast.sync.functions",
    "record_compensator": "holdfast.runtimes.agent.context",
    "record_step": "holdfast.runtimes.agent.context",
    "record_usage": "holdfast.runtimes.agent.context",
    "register": "holdfast.codec.registry",
    "repeat": "holdfast.sync.composition",
    "replace_state": "holdfast.runtimes.agent.context",
    "replan": "holdfast.runtimes.agent.strategies",
    "response_handler": "holdfast.runtimes.workflow.executors",
    "resume_from_subgoal": "holdfast.runtimes.agent.strategies",
    "retry_with_hint": "holdfast.runtimes.agent.strategies",
    "rollback_to_checkpoint": "holdfast.runtimes.agent.strategies",
    "sequential": "holdfast.sync.composition",
    "sleep": "holdfast.sync.functions",
    "step": "holdfast.runs.decorators",
    "storable": "holdfast.codec.registry",
    "tool": "holdfast.runtimes.loop.tools",
    "update_state": "holdfast.runtimes.agent.context",
    "workflow_checkpoints": "holdfast.sync.workflows",
}


def __getattr__(name: str) -> Any:
    """Load what a program may do without at its first use: it starts sooner."""
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast.sync' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
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
