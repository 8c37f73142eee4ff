"""The structures in a checkpoint of an agent server, under their JSON names."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import replace

from holdfast.records.arguments import plain_word
from holdfast.records.errors import ConfigurationError, Corrupt, UnstorableValue
from holdfast.records.json_struct import JsonStruct
from holdfast.records.words import CAUSE_WORDS, Cause, Phase
from holdfast.runs.driver import text_of

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class PendingToolCall(JsonStruct, kw_only=True):
    """A tool call that is waiting for execution or approval."""

    _always: ClassVar[frozenset[str]] = frozenset({"id", "name", "requires_approval"})

    id: str
    name: str
    description: str = ""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    requires_approval: bool = False


class ToolCallSnapshot(JsonStruct, kw_only=True):
    """A tool call of the current turn; once `completed` it has a result or an error."""

    _always: ClassVar[frozenset[str]] = frozenset({"id", "name", "completed"})

    id: str
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    result: Any = None
    error: str = ""
    completed: bool = False


class AgentState(JsonStruct, kw_only=True):
    """The state of the executing agent. Messages of other agents are in the events of the session."""

    _always: ClassVar[frozenset[str]] = frozenset({"iteration", "total_tokens", "final_response_added"})

    iteration: int = 0
    total_tokens: int = 0
    history: list[Any] = msgspec.field(default_factory=list)
    last_event: Any = None
    current_turn: list[Any] = msgspec.field(default_factory=list)
    """The messages of the current turn."""
    accumulated_response: str = ""
    final_response_added: bool = False
    pending_tool_calls: list[ToolCallSnapshot] = msgspec.field(default_factory=list)
    first_iteration_tool_calls: list[ToolCallSnapshot] = msgspec.field(default_factory=list)
    sub_agents: list[str] = msgspec.field(default_factory=list)
    """The agents to which this one may hand over."""
    parent_agent: str = ""
    branch: str = ""
    """The path of names from the root to this agent, such as `root.coordinator.researcher`."""
    workflow_type: str = ""
    """`sequential`, `parallel` or `loop`."""
    workflow_stage: int = 0
    loop_iteration: int = 0
    loop_max_iterations: int = 0
    custom: dict[str, Any] = msgspec.field(default_factory=dict)
    """The agent's own state: see `Checkpointable`."""


_PHASE_WORDS = {phase: phase.value for phase in Phase}
_CORE = ("task_id", "session_id", "user_id", "app_name", "query", "agent_name", "invocation_id", "last_event_index")


class ExecutionState(JsonStruct):
    """Everything needed to resume a task: its ids, the query, and the state of its agent."""

    _always: ClassVar[frozenset[str]] = frozenset({*_CORE, "phase", "checkpoint_type", "checkpoint_time"})

    task_id: str
    session_id: str
    user_id: str
    app_name: str
    query: str = ""
    agent_name: str = ""
    agent_state: AgentState | None = None
    invocation_id: str = ""
    last_event_index: int = 0
    """The index of the last processed event of the session."""
    pending_tool_call: PendingToolCall | None = None
    phase: Phase = Phase.INITIALIZED
    checkpoint_type: Cause = Cause.MANUAL
    checkpoint_time: Moment = msgspec.field(default_factory=lambda: datetime.now(UTC))
    """When it was saved; before that, when it was created."""
    error: str = ""

    @property
    def needs_user_input(self) -> bool:
        """True if the task waits for a person to approve a tool call."""
        pending = self.pending_tool_call
        return self.phase == Phase.TOOL_APPROVAL or (pending is not None and pending.requires_approval)

    @property
    def is_recoverable(self) -> bool:
        """True if a recovery may resume the task: it has its ids and did not end with an error."""
        return bool(self.task_id and self.session_id) and self.phase != Phase.ERROR

    def is_expired(self, timeout: timedelta | float, *, now: datetime | None = None) -> bool:
        """True if the checkpoint is older than `timeout`."""
        limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
        return (now or datetime.now(UTC)) - self.checkpoint_time > limit

    # Copies with a change

    def with_agent_state(self, agent_state: AgentState | None) -> "ExecutionState":
        """Return a copy with this agent state."""
        return replace(self, agent_state=agent_state)

    def with_error(self, error: BaseException | str) -> "ExecutionState":
        """Return a copy in the phase ERROR, with this error."""
        text = text_of(error) or type(error).__name__
        return replace(self, error=text, phase=Phase.ERROR)

    def with_last_event_index(self, index: int) -> "ExecutionState":
        """Return a copy with this index of the last processed event."""
        return replace(self, last_event_index=index)

    def with_pending_tool_call(self, pending: PendingToolCall | None) -> "ExecutionState":
        """Return a copy with this pending tool call."""
        return replace(self, pending_tool_call=pending)

    def with_phase(self, phase: Phase | str) -> "ExecutionState":
        """Return a copy in this phase."""
        return replace(self, phase=Phase(plain_word(_PHASE_WORDS, phase, "phase")))

    def with_type(self, checkpoint_type: Cause | str) -> "ExecutionState":
        """Return a copy with this checkpoint type."""
        return replace(self, checkpoint_type=Cause(plain_word(CAUSE_WORDS, checkpoint_type, "checkpoint type")))

    # JSON

    def serialize(self) -> bytes:
        """Encode the state as JSON. `UnstorableValue` for a value that JSON cannot represent."""
        try:
            return msgspec.json.encode(self.to_dict())
        except (TypeError, ValueError) as error:
            raise UnstorableValue(f"this state cannot be written as JSON: {error}", path="state") from error

    @classmethod
    def deserialize(cls, document: bytes | str) -> "ExecutionState":
        """Decode a state from JSON, also from JSON that Hector wrote. `Corrupt` for anything else."""
        try:
            fields = msgspec.json.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Corrupt(f"not the JSON of ExecutionState: {error}", record=cls.__name__) from error
        return cls.from_dict(fields)


def checked_state(state: object) -> ExecutionState:
    """Return the state; `ConfigurationError` if it is not an `ExecutionState`."""
    if not isinstance(state, ExecutionState):
        raise ConfigurationError(f"`state` must be a holdfast.ExecutionState, got {type(state).__name__}")
    return state


@runtime_checkable
class Checkpointable(Protocol):
    """An agent with its own state. After `manager.register(name, agent)` saves and resumes call it."""

    def save_state(self) -> Any:
        """Return the agent's own state as a dict; it is stored in `agent_state.custom`. May be async."""
        ...

    def restore_state(self, state: Mapping[str, Any], /) -> Any:
        """Restore a saved state before the task is resumed. May be async."""
        ...


class CheckpointStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counts and ages of an app's pending checkpoints. `expired` ones are included in `total`.

    `damaged` counts the tasks that cannot be read; they are not included in `total`.
    """

    total: int = 0
    working: int = 0
    input_required: int = 0
    expired: int = 0
    oldest_age: timedelta = timedelta(0)
    average_age: timedelta = timedelta(0)
    damaged: int = 0


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` did, by thread id.

    `resumed`: the callback returned. `waiting`: for a person. `expired`: too old, now failed. `failed`: the callback
    raised, or there is no checkpoint. `skipped`: not configured to be resumed, not recoverable, or held by another
    process. `damaged`: unreadable; `store.verify` reports why.
    """

    resumed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
