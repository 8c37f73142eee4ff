"""The same names, blocking: `import holdfast.sync as holdfast`. No event loop, and no thread except the heartbeat.

Every method is one line: it steps the awaitable one to its end over `BlockingPorts`. Names without I/O are the same
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
from holdfast.records.thread import Lease, ThreadInfo
from holdfast.records.turn import SessionSummary, Turn, TurnResult
from holdfast.records.usage import ModelPricing, UsageSnapshot
from holdfast.records.words import Cause, Durability, Phase, Status
from holdfast.runs.handles import BlockingHandle as Handle
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
    from holdfast.sync.workers import Worker
    from holdfast.sync.workflows import (
        Workflow,
        WorkflowBuilder,
        WorkflowContext,
        WorkflowStream,
        latest_workflow_checkpoint,
        workflow_checkpoints,
    )

_MODULES = {
    "holdfast.codec.registry": "migration register storable",
    "holdfast.ports.pool": "pool",
    "holdfast.records.failure": "AgentSummary FailureContext FailureType RecoveryContext",
    "holdfast.records.loop": "Deferred LoopState Snapshot",
    "holdfast.runs.api": "idempotency_key",
    "holdfast.runs.decorators": "step",
    "holdfast.runs.options": "Done NotDone",
    "holdfast.runs.steps": "StepHandle",
    "holdfast.runtimes.agent.actions": "RecoveryAction",
    "holdfast.runtimes.agent.classifier": "RulesClassifier",
    "holdfast.runtimes.agent.context": "record_compensator record_step record_usage replace_state update_state",
    "holdfast.runtimes.agent.policy": "FailurePolicy",
    "holdfast.runtimes.agent.strategies": (
        "backoff_and_retry circuit_breaker compensating_rollback replan resume_from_subgoal retry_with_hint "
        "rollback_to_checkpoint"
    ),
    "holdfast.runtimes.loop.tools": "tool",
    "holdfast.runtimes.manager.composition": "AgentContext",
    "holdfast.runtimes.manager.config": "CheckpointConfig RecoveryConfig",
    "holdfast.runtimes.manager.events": "Event find_agent_to_run",
    "holdfast.runtimes.manager.state": (
        "AgentState CheckpointStats Checkpointable ExecutionState PendingToolCall RecoveryReport ToolCallSnapshot"
    ),
    "holdfast.runtimes.workflow.checkpoints": "WorkflowCheckpoint",
    "holdfast.runtimes.workflow.events": "WorkflowEvent WorkflowResult",
    "holdfast.runtimes.workflow.executors": "Executor WorkflowExecutor executor handler response_handler",
    "holdfast.sync.agents": "Agent agent",
    "holdfast.sync.composition": "Composite parallel repeat sequential",
    "holdfast.sync.functions": "append ask checkpoint confirm current durable record sleep",
    "holdfast.sync.loops": "Loop SnapshotStore",
    "holdfast.sync.manager": "CheckpointHooks CheckpointManager",
    "holdfast.sync.session": "Orchestrator Session",
    "holdfast.sync.workers": "Worker",
    "holdfast.sync.workflows": (
        "Workflow WorkflowBuilder WorkflowContext WorkflowStream latest_workflow_checkpoint workflow_checkpoints"
    ),
}
"""The modules that are loaded when one of these names is first used."""
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load runtimes and functions at their first use: the program starts faster."""
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast.sync' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
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
