"""The table of transitions, the one function that applies one, and the diagram drawn from it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast import ConfigurationError, LoopState, Snapshot
from holdfast.runtimes.loop.transitions import PLANNING, TERMINAL, TRANSITIONS, applied, resumption

START = Snapshot(1, "essay", "PLANNING", [], 0, [])
GUIDE = Path(__file__).parent.parent.parent / "docs" / "loop.md"
ALL = [(before, after) for before in LoopState for after in LoopState]


def snapshot_in(state: LoopState) -> Snapshot:
    return replace(START, state=state.value, plan=["a", "b"], cursor=1)


@pytest.mark.parametrize(("before", "after"), ALL)
def test_a_transition_is_applied_if_and_only_if_the_table_has_it(before: LoopState, after: LoopState) -> None:
    snapshot = snapshot_in(before)
    if after in TRANSITIONS[before]:
        assert applied(snapshot, after) == replace(snapshot, state=after.value, transitions=1)
    else:
        with pytest.raises(ConfigurationError, match=f"cannot go from {before} to {after}; legal transitions"):
            applied(snapshot, after)


def test_every_state_is_in_the_table_and_terminal_states_lead_nowhere() -> None:
    assert set(TRANSITIONS) == set(LoopState)
    assert {state for state, following in TRANSITIONS.items() if not following} == TERMINAL


def test_applying_a_transition_changes_nothing_of_the_snapshot_before() -> None:
    before = snapshot_in(LoopState.OBSERVING)
    after = applied(before, LoopState.REFLECTING, results=[*before.results, 1], cursor=2)
    assert (before.results, before.cursor, before.transitions) == ([], 1, 0)
    assert (after.results, after.cursor, after.transitions) == ([1], 2, 1)


def test_a_loop_cannot_execute_beyond_its_plan() -> None:
    done = replace(START, state="REFLECTING", plan=["a"], cursor=1)
    with pytest.raises(ConfigurationError, match="all 1 steps of its plan are done"):
        applied(done, LoopState.EXECUTING)


def test_a_worker_whose_result_was_not_observed_starts_again() -> None:
    executing = snapshot_in(LoopState.EXECUTING)
    assert resumption(applied(executing, LoopState.OBSERVING)) == executing


def test_a_loop_whose_deferred_call_failed_performs_what_is_left() -> None:
    decided = replace(snapshot_in(LoopState.REFLECTING), decision="COMPLETE")
    assert resumption(applied(decided, LoopState.FAILED)) == decided


@pytest.mark.parametrize("state", [state for state in LoopState if state is not LoopState.OBSERVING])
def test_any_other_state_is_resumed_where_it_is(state: LoopState) -> None:
    assert resumption(snapshot_in(state)) == snapshot_in(state)


def diagram() -> str:
    """Draw the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {PLANNING}"]
    for state, following in TRANSITIONS.items():
        lines += [f"    {state} --> {after}: {when}" for after, when in following.items()]
    return "\n".join((*lines, *(f"    {state} --> [*]" for state in LoopState if state in TERMINAL)))


def test_the_diagram_in_the_guide_is_drawn_from_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in GUIDE.read_text()
    for before, following in TRANSITIONS.items():
        for after in following:
            assert f"    {before} --> {after}: " in diagram()
