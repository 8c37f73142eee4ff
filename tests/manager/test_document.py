"""What Hector's document states of checkpoints as a whole, sentence by sentence; its parts have files of their own."""

from pathlib import Path

from click.testing import CliRunner

from holdfast import AgentState, Event, ExecutionState, Phase, find_agent_to_run, sync
from holdfast.cli import main
from manager.tasks import APPROVAL, TASK, manager, server, state_of
from manager.test_composition import RESEARCHER, ROOT
from runs.worlds import World

SESSION = TASK[:3]


async def test_fault_tolerance_a_task_resumes_after_a_crash_from_its_last_checkpoint(world: World) -> None:
    dying = manager(world, store=world.open(), after_tools=True)
    await dying.save(state_of())
    await dying.hooks.after_tool(state_of(agent_state=AgentState(iteration=3)), "search")
    made, seen = manager(world), list[tuple[Phase, int]]()

    async def callback(state: ExecutionState, user_input: str) -> None:
        assert state.agent_state is not None
        seen.append((state.phase, state.agent_state.iteration))

    made.on_resume(callback)
    await made.recover("shop")
    assert seen == [(Phase.POST_TOOL, 3)]


async def test_hitl_a_task_pauses_for_approval_and_is_resumed_later_by_another_process(world: World) -> None:
    await manager(world).hooks.tool_approval_required(state_of(), APPROVAL)
    world.clock.advance(600)
    later = manager(world, store=world.open())
    restarted = server(later)
    assert await later.resume(*TASK, user_input="approve") == "resumed task-1"
    assert restarted.calls == [("task-1", "approve")]


async def test_completed_work_is_not_executed_again(world: World) -> None:
    made, model = manager(world, after_tools=True), list[str]()

    async def work(state: ExecutionState, user_input: str = "") -> None:
        if state.phase is Phase.INITIALIZED:
            model.append("search")
            await made.hooks.after_tool(state, "search")
            if len(model) == 1:
                raise ConnectionError("down")
        model.append("answer")

    made.on_resume(work)
    await made.save(state_of())
    await made.recover("shop")
    await made.resume(*TASK)
    assert model == ["search", "answer"]


async def test_a_checkpoint_holds_the_agent_that_is_executing_and_the_session_holds_all_agents(world: World) -> None:
    made = manager(world)
    for event in (Event("user", "refund"), Event("coordinator", "ask"), Event("researcher", "may I?")):
        await made.add_event(*SESSION, event)
    agent_state = AgentState(iteration=1, parent_agent="coordinator", branch="root.coordinator.researcher")
    state = state_of(agent_state=agent_state).with_last_event_index(2)
    state.agent_name = "researcher"
    await made.hooks.tool_approval_required(state, APPROVAL)
    (pending,) = await made.pending("shop", "ana")
    assert (pending.agent_name, pending.agent_state.branch) == ("researcher", "root.coordinator.researcher")
    events = await made.events(*SESSION)
    assert [event.author for event in events[: pending.last_event_index + 1]] == ["user", "coordinator", "researcher"]
    assert find_agent_to_run(events, ROOT) is RESEARCHER


async def test_all_pending_checkpoints_across_all_users_are_found_at_start_up(world: World) -> None:
    made = manager(world)
    for user in ("ana", "bob", "cy"):
        await made.save(state_of("1", user))
    restarted = server(made)
    assert len((await made.recover("shop")).resumed) == 3
    assert len(restarted.calls) == 3


async def test_a_checkpoint_of_hector_is_taken_over_and_resumed(world: World) -> None:
    from manager.test_state import FROM_HECTOR

    made = manager(world)
    restarted = server(made)
    await made.save(ExecutionState.deserialize(FROM_HECTOR))
    assert await made.resume("shop", "ana", "s-1", "task-7", user_input="approve") == "resumed task-7"
    assert restarted.calls == [("task-7", "approve")]


def test_the_command_line_tells_the_phase_and_the_question_of_a_task(tmp_path: Path) -> None:
    with sync.open(tmp_path / "server.db") as store:
        made = sync.CheckpointManager({"enabled": True, "after_tools": True}, store)
        made.hooks.after_tool(state_of(agent_state=AgentState(iteration=4)), "search")
        made.hooks.tool_approval_required(state_of(), APPROVAL)
    shown = CliRunner().invoke(main, ["--store", str(tmp_path / "server.db"), "show", made.thread_id(*TASK)]).stdout
    assert "tool=search phase=post_tool checkpoint_type=event iteration=4" in shown
    assert "phase=tool_approval" in shown
    assert "asks 'tool_approval'" in shown
    assert '"amount": 40' in shown
