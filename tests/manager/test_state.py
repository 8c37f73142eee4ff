"""What a checkpoint holds: every field of the document under its JSON name, read and written as Hector does."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast import (
    AgentState,
    Cause,
    CheckpointStats,
    ConfigurationError,
    Corrupt,
    ExecutionState,
    PendingToolCall,
    Phase,
    ToolCallSnapshot,
    UnstorableValue,
)
from manager.tasks import APPROVAL, state_of

NAMES: dict[type[msgspec.Struct], str] = {
    ExecutionState: """task_id session_id user_id app_name query agent_name agent_state invocation_id last_event_index
        pending_tool_call phase checkpoint_type checkpoint_time error""",
    AgentState: """iteration total_tokens history last_event current_turn accumulated_response final_response_added
        pending_tool_calls first_iteration_tool_calls sub_agents parent_agent branch workflow_type workflow_stage
        loop_iteration loop_max_iterations custom""",
    PendingToolCall: "id name description arguments requires_approval",
    ToolCallSnapshot: "id name arguments result error completed",
    CheckpointStats: "total working input_required expired oldest_age average_age damaged",  # damaged is ours
}
FROM_HECTOR = b"""{
  "task_id": "task-7", "session_id": "s-1", "user_id": "ana", "app_name": "shop", "query": "refund me",
  "agent_name": "researcher",
  "agent_state": {
    "iteration": 3, "total_tokens": 1200, "history": [{"author": "user", "text": "refund me"}],
    "last_event": {"author": "researcher"}, "accumulated_response": "I am", "final_response_added": false,
    "pending_tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "x"}, "result": [1], "completed": true}],
    "sub_agents": ["writer"], "parent_agent": "coordinator", "branch": "root.coordinator.researcher",
    "workflow_type": "loop", "loop_iteration": 2, "loop_max_iterations": 5, "custom": {"k": 1}
  },
  "invocation_id": "inv-1", "last_event_index": 4,
  "pending_tool_call": {"id": "c2", "name": "refund", "arguments": {"amount": 40}, "requires_approval": true},
  "phase": "tool_approval", "checkpoint_type": "event", "checkpoint_time": "2026-11-17T10:20:30.123456789+01:00",
  "a_field_of_tomorrow": 1
}"""


@pytest.mark.parametrize("cls", NAMES, ids=lambda cls: cls.__name__)
def test_every_field_of_the_document_has_its_json_name(cls: type[msgspec.Struct]) -> None:
    assert list(cls.__struct_fields__) == NAMES[cls].split()


def test_a_checkpoint_of_hector_can_be_read() -> None:
    state = ExecutionState.deserialize(FROM_HECTOR)
    assert (state.task_id, state.agent_name, state.phase, state.checkpoint_type) == (
        *("task-7", "researcher"),
        *(Phase.TOOL_APPROVAL, Cause.EVENT),
    )
    assert state.checkpoint_time.astimezone(UTC).replace(microsecond=0) == datetime(2026, 11, 17, 9, 20, 30, tzinfo=UTC)
    assert state.agent_state is not None
    assert state.agent_state.branch == "root.coordinator.researcher"
    assert state.agent_state.pending_tool_calls[0] == ToolCallSnapshot(
        id="c1", name="search", arguments={"q": "x"}, result=[1], completed=True
    )
    assert state.needs_user_input
    assert ExecutionState.deserialize(state.serialize()) == state


def test_serialize_writes_the_documents_json_and_leaves_out_what_it_leaves_out() -> None:
    at = datetime(2026, 11, 17, 10, tzinfo=UTC)
    state = ExecutionState("t", "s", "u", "a", agent_state=AgentState(), checkpoint_time=at)
    assert json.loads(state.serialize()) == {
        "task_id": "t",
        "session_id": "s",
        "user_id": "u",
        "app_name": "a",
        "query": "",
        "agent_name": "",
        "agent_state": {"iteration": 0, "total_tokens": 0, "final_response_added": False},
        "invocation_id": "",
        "last_event_index": 0,
        "phase": "initialized",
        "checkpoint_type": "manual",
        "checkpoint_time": "2026-11-17T10:00:00Z",
    }
    assert PendingToolCall(id="1", name="n").to_dict() == {"id": "1", "name": "n", "requires_approval": False}
    snapshot = ToolCallSnapshot(id="1", name="n", result=0)
    assert snapshot.to_dict() == {"id": "1", "name": "n", "result": 0, "completed": False}


NO_PHASE = FROM_HECTOR.replace(b'"tool_approval"', b'"lunch"')
NO_TIME_ZONE = FROM_HECTOR.replace(b"+01:00", b"")


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"task_id": 1}', NO_PHASE, NO_TIME_ZONE]
)
def test_what_is_no_checkpoint_is_a_clear_error(document: bytes) -> None:
    with pytest.raises(Corrupt, match=r"not the (fields|JSON) of ExecutionState"):
        ExecutionState.deserialize(document)


def test_a_value_without_a_place_in_json_is_refused() -> None:
    state = state_of(agent_state=AgentState(custom={"lock": object()}))
    with pytest.raises(UnstorableValue, match="cannot be written as JSON"):
        state.serialize()


def test_a_new_state_is_initialized_and_of_type_manual() -> None:
    state = state_of()
    assert (state.phase, state.checkpoint_type) == (Phase.INITIALIZED, Cause.MANUAL)
    assert not state.needs_user_input
    assert state.is_recoverable


def test_the_builders_return_copies() -> None:
    first, agent_state = state_of(), AgentState(iteration=2)
    state = (
        first.with_agent_state(agent_state)
        .with_last_event_index(7)
        .with_pending_tool_call(APPROVAL)
        .with_phase("tool_approval")
        .with_type("event")
    )
    assert (state.agent_state, state.last_event_index, state.pending_tool_call) == (agent_state, 7, APPROVAL)
    assert (state.phase, state.checkpoint_type) == (Phase.TOOL_APPROVAL, Cause.EVENT)
    assert (first.agent_state, first.phase) == (None, Phase.INITIALIZED)
    with pytest.raises(ConfigurationError, match="'lunch' is not a phase"):
        first.with_phase("lunch")
    with pytest.raises(ConfigurationError, match="'lunch' is not a checkpoint type"):
        first.with_type("lunch")


@pytest.mark.parametrize(
    ("error", "text"), [(ValueError("no money"), "no money"), ("told", "told"), (KeyError(), "KeyError")]
)
def test_an_error_makes_the_phase_error_and_keeps_its_text(error: Any, text: str) -> None:
    state = state_of().with_error(error)
    assert (state.phase, state.error) == (Phase.ERROR, text)


def test_a_state_needs_input_at_an_approval_and_cannot_be_recovered_from_an_error() -> None:
    assert state_of(phase=Phase.TOOL_APPROVAL).needs_user_input
    assert state_of(pending_tool_call=APPROVAL).needs_user_input
    assert not state_of(pending_tool_call=PendingToolCall(id="1", name="search")).needs_user_input
    assert not state_of().with_error("x").is_recoverable
    assert not ExecutionState("", "s", "u", "a").is_recoverable


def test_a_state_expires_after_its_timeout() -> None:
    now = datetime.now(UTC)
    state = state_of(checkpoint_time=now - timedelta(seconds=10))
    assert state.is_expired(9)
    assert not state.is_expired(3600)
    assert not state.is_expired(timedelta(seconds=10), now=now)
