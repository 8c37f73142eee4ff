"""Saving, loading, clearing and listing tasks, and what the rows of a thread say of themselves."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from holdfast import AgentState, Cause, ConfigurationError, LeaseHeld, Phase, RunCancelled, Status, UnstorableValue
from manager.tasks import APPROVAL, TASK, manager, server, state_of
from runs.worlds import World


async def test_what_is_saved_is_loaded(world: World) -> None:
    state = state_of(agent_state=AgentState(iteration=3, custom={"exact": (1, {2})}))
    saved = await manager(world).save(state)
    loaded = await manager(world).load(*TASK)
    assert loaded == saved
    assert loaded.agent_state.custom == {"exact": (1, {2})}
    assert loaded.checkpoint_type is Cause.MANUAL
    assert loaded.checkpoint_time.timestamp() * 1e6 == world.clock.now


async def test_what_was_never_saved_is_none(world: World) -> None:
    assert await manager(world).load(*TASK) is None
    assert await manager(world).pending("shop") == []


async def test_no_two_tasks_share_a_thread(world: World) -> None:
    made = manager(world)
    ids = [
        ("a", "b", "c", "d"),
        ("a/b", "c", "d", "e"),
        ("a", "b/c", "d", "e"),
        ("a%2Fb", "c", "d", "e"),
        ("é", "b", "c", "d"),
    ]
    assert len({made.thread_id(*each) for each in ids}) == len(ids)
    for wrong in ("", None, 7):
        with pytest.raises(ConfigurationError, match="`user` must be a non-empty str"):
            made.thread_id("a", wrong, "c", "d")


async def test_a_row_says_its_phase_its_type_and_its_iteration(world: World) -> None:
    made = manager(world, strategy="hybrid", interval=1, after_tools=True, before_llm=True)
    state = state_of(agent_state=AgentState(iteration=2))
    await made.save(state)
    await made.hooks.before_llm_call(state)
    await made.hooks.after_llm_call(state)
    await made.hooks.before_tool(state, "search")
    await made.hooks.after_tool(state, "search")
    await made.hooks.iteration_end(state, 3)
    await made.hooks.tool_approval_required(state, APPROVAL)
    await made.hooks.error(state, ValueError("no"))
    rows = list(await world.store.history(made.thread_id(*TASK)))[::-1]
    assert [(row.metadata["phase"], row.metadata["checkpoint_type"], row.metadata["iteration"]) for row in rows] == [
        ("initialized", "manual", 2),
        ("pre_llm", "event", 2),
        ("post_llm", "event", 2),
        ("tool_execution", "event", 2),
        ("post_tool", "event", 2),
        ("iteration_end", "interval", 3),
        ("tool_approval", "event", 2),
        ("error", "error", 2),
    ]
    assert [(row.phase, row.cause) for row in rows] == [
        (Phase(row.metadata["phase"]), Cause(row.metadata["checkpoint_type"])) for row in rows
    ]
    assert [row.metadata.get("tool") for row in rows][3:5] == ["search", "search"]


async def test_a_hook_that_does_not_save_writes_nothing(world: World) -> None:
    made = manager(world, strategy="interval", interval=2)
    await made.hooks.before_llm_call(state_of())
    await made.hooks.after_llm_call(state_of())
    await made.hooks.before_tool(state_of(), "search")
    await made.hooks.after_tool(state_of(), "search")
    await made.hooks.iteration_end(state_of(), 1)
    assert await made.load(*TASK) is None
    await made.hooks.iteration_end(state_of(), 2)
    assert (await made.load(*TASK)).agent_state.iteration == 2


async def test_disabled_hooks_do_nothing_and_say_so_once_while_save_saves(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    made = manager(world, enabled=False)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(3):
            await made.hooks.tool_approval_required(state_of(), APPROVAL)
            await made.hooks.complete(*TASK)
    assert len([record for record in caplog.records if "disabled" in record.message]) == 1
    assert await made.load(*TASK) is None
    await made.save(state_of())
    await made.hooks.complete(*TASK)
    assert await made.load(*TASK) is not None
    assert not made.enabled


async def test_the_status_of_a_thread_follows_its_last_checkpoint(world: World) -> None:
    made = manager(world)
    thread_id = made.thread_id(*TASK)

    async def status() -> tuple[Status | None, str | None]:
        info = await world.store.thread(thread_id)
        return info.status, info.error

    await made.save(state_of())
    assert (await status())[0] is Status.WORKING
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    assert (await status())[0] is Status.INPUT_REQUIRED
    await made.hooks.after_llm_call(state_of())
    assert (await status())[0] is Status.WORKING
    await made.hooks.error(state_of(), ValueError("no money"))
    assert await status() == (Status.FAILED, "no money")
    loaded = await made.load(*TASK)
    assert (loaded.phase, loaded.error) == (Phase.ERROR, "no money")


async def test_a_pending_call_is_not_pending_any_more_at_the_next_hook(world: World) -> None:
    made, state = manager(world), state_of(pending_tool_call=APPROVAL)
    await made.hooks.before_tool(state, "refund")
    assert (await made.load(*TASK)).pending_tool_call is None


async def test_a_task_that_is_complete_is_cleared_and_can_be_started_again(world: World) -> None:
    made = manager(world)
    for _ in range(2):
        await made.save(state_of())
        await made.hooks.complete(*TASK)
        assert await made.load(*TASK) is None
        assert await made.pending("shop") == []
        assert await world.store.latest(made.thread_id(*TASK)) is None
    await made.clear(*TASK)


async def test_the_threads_carry_the_labels_that_they_are_found_by(world: World) -> None:
    made = manager(world)
    await made.save(state_of())
    assert (await world.store.thread(made.thread_id(*TASK))).labels == {
        "app": "shop",
        "user": "ana",
        "session": "chat-1",
        "task": "task-1",
    }


async def test_pending_is_by_app_and_by_user(world: World) -> None:
    made = manager(world)
    for user in ("ana", "bob"):
        for task in ("1", "2", "3"):
            await made.save(state_of(task, user))
    await made.hooks.tool_approval_required(state_of("2", "bob"), APPROVAL)
    await made.hooks.complete("shop", "bob", "chat-1", "1")
    await made.hooks.error(state_of("3", "ana"), "boom")

    async def found(*of: str) -> list[tuple[str, str]]:
        return sorted((state.user_id, state.task_id) for state in await made.pending(*of))

    assert await found("shop") == [("ana", "1"), ("ana", "2"), ("bob", "2"), ("bob", "3")]
    assert await found("shop", "bob") == [("bob", "2"), ("bob", "3")]
    assert await found("other") == await found("other", "bob") == await found("shop", "cy") == []


async def test_the_stats_count_what_is_pending(world: World) -> None:
    made = manager(world)
    assert (await made.stats("shop")).total == 0
    await made.save(state_of("old"))
    world.clock.advance(4000)
    await made.save(state_of("new"))
    await made.hooks.tool_approval_required(state_of("waits"), APPROVAL)
    world.clock.advance(100)
    stats = await made.stats("shop")
    assert (stats.total, stats.working, stats.input_required, stats.expired) == (3, 2, 1, 1)
    assert stats.oldest_age == timedelta(seconds=4100)
    assert stats.average_age == timedelta(seconds=4300) / 3


async def test_a_cancelled_task_is_not_pending_its_history_is_kept_and_its_worker_is_stopped(world: World) -> None:
    made = manager(world)
    await made.save(state_of())
    await made.cancel(*TASK)
    assert await made.pending("shop") == []
    assert (await world.store.thread(made.thread_id(*TASK))).status is Status.CANCELLED
    assert len(await world.store.history(made.thread_id(*TASK))) == 1
    with pytest.raises(RunCancelled):
        await made.hooks.after_llm_call(state_of())
    assert (await made.load(*TASK)).phase is Phase.INITIALIZED


async def test_a_held_task_is_written_under_its_claim_and_resumed_by_nobody_else(world: World) -> None:
    made, other = manager(world), manager(world, store=world.open(), wait=0)
    restarted = server(other)
    async with made.hold(*TASK):
        await made.save(state_of())
        with pytest.raises(LeaseHeld):
            await other.save(state_of())
        report = await other.recover("shop")
        assert report.skipped == (made.thread_id(*TASK),)
        await made.hooks.after_llm_call(state_of())
    assert restarted.calls == []
    assert (await world.store.thread(made.thread_id(*TASK))).status is Status.IDLE


async def test_a_held_task_that_asks_for_approval_waits_when_it_is_left(world: World) -> None:
    made = manager(world)
    async with made.hold(*TASK):
        await made.hooks.tool_approval_required(state_of(), APPROVAL)
    assert (await world.store.thread(made.thread_id(*TASK))).status is Status.INPUT_REQUIRED
    async with made.hold("shop", "ana", "chat-1", "2"):
        await made.save(state_of("2"))
        await made.hooks.complete("shop", "ana", "chat-1", "2")
    assert await made.load("shop", "ana", "chat-1", "2") is None


async def test_a_held_task_whose_code_fails_is_failed(world: World) -> None:
    made = manager(world)

    async def work() -> None:
        async with made.hold(*TASK):
            await made.save(state_of())
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        await work()
    info = await world.store.thread(made.thread_id(*TASK))
    assert (info.status, info.error) == (Status.FAILED, "ZeroDivisionError: division by zero")


class Memory:
    """An agent that brings its own state."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def save_state(self) -> dict[str, Any]:
        return {"notes": list(self.notes)}

    def restore_state(self, state: Any, /) -> None:
        self.notes = list(state["notes"])


async def test_a_checkpointable_agent_saves_and_restores_its_own_state(world: World) -> None:
    made, agent = manager(world), Memory()
    made.register("support", agent)
    agent.notes = ["a"]
    await made.save(state_of(agent_state=AgentState(iteration=2)))
    agent.notes = ["a", "b"]
    await made.hooks.after_llm_call(state_of())
    later, restored = manager(world), Memory()
    later.register("support", restored)
    restarted = server(later)
    assert (await later.load(*TASK)).agent_state.custom == {"notes": ["a", "b"]}
    await later.recover("shop")
    assert restored.notes == ["a", "b"]
    assert restarted.calls == [("task-1", "")]
    with pytest.raises(ConfigurationError, match=r"must have the methods save_state\(\) and restore_state\(state\)"):
        made.register("support", object())


async def test_what_is_no_state_is_a_clear_error(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"`state` must be a holdfast\.ExecutionState, got dict"):
        await manager(world).save({})


async def test_a_state_that_could_not_be_loaded_again_is_refused_and_the_task_stays_as_it_was(world: World) -> None:
    made = manager(world)
    await made.save(state_of())
    wrong: list[Any] = [
        state_of(agent_state=AgentState(iteration="three")),  # type: ignore[arg-type]
        state_of(phase="lunch"),
        state_of(agent_state=AgentState(custom={"lock": object()})),
    ]
    for state in wrong:
        with pytest.raises(UnstorableValue):
            await made.save(state)
    assert (await world.store.thread(made.thread_id(*TASK))).status is Status.WORKING
    assert (await made.load(*TASK)).agent_state is None


async def test_a_hook_refuses_what_is_no_state_or_no_iteration(world: World) -> None:
    hooks = manager(world, strategy="interval", interval=1).hooks
    wrong: Any = {"task_id": "task-1"}
    for call in (hooks.before_llm_call, hooks.after_llm_call):
        with pytest.raises(ConfigurationError, match=r"`state` must be a holdfast\.ExecutionState, got dict"):
            await call(wrong)
    with pytest.raises(ConfigurationError, match=r"`state` must be a holdfast\.ExecutionState"):
        await hooks.tool_approval_required(wrong, APPROVAL)
    for number in ("1", 1.5, True, None):
        with pytest.raises(ConfigurationError, match="`iteration` must be"):
            await hooks.iteration_end(state_of(), number)
