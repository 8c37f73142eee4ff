"""Start-up recovery and resuming by hand: which tasks, by whom, with which input, and how often."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    CheckpointManager,
    ConfigurationError,
    Conflict,
    ExecutionState,
    InvalidAnswer,
    MemoryStore,
    NotFound,
    Phase,
    RecoveryConfig,
    RunCancelled,
    Status,
    sync,
)
from holdfast import open as open_store
from holdfast.runs.block import RunBlock
from holdfast.runs.driver import Driver
from holdfast.testing.faults import Crash, Fault
from manager.tasks import APPROVAL, TASK, manager, server, state_of
from runs.worlds import World

THREAD = "shop/ana/chat-1/task-1"


async def test_a_task_at_work_is_resumed_if_that_is_configured(world: World) -> None:
    await manager(world).save(state_of())
    made = manager(world)
    restarted = server(made)
    report = await made.recover("shop")
    assert (report.resumed, report.skipped) == ((THREAD,), ())
    assert restarted.calls == [("task-1", "")]
    assert (await made.recover("shop")).resumed == ()
    assert restarted.calls == [("task-1", "")]


async def test_a_task_at_work_is_left_alone_if_that_is_not_configured(world: World) -> None:
    for settings in ({"recovery": RecoveryConfig()}, {"enabled": False}):
        made = manager(world, **settings)
        restarted = server(made)
        await made.save(state_of())
        assert (await made.recover("shop")).skipped == (THREAD,)
        assert restarted.calls == []
        assert len(await made.pending("shop")) == 1


async def test_tasks_of_other_apps_are_left_alone(world: World) -> None:
    made = manager(world)
    server(made)
    await made.save(state_of())
    assert (await made.recover("library")).resumed == ()


async def test_a_task_that_waits_for_input_waits_for_explicit_action(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    assert (await made.recover("shop")).waiting == (THREAD,)
    assert restarted.calls == []
    assert [state.pending_tool_call for state in await made.pending("shop")] == [APPROVAL]


async def test_with_auto_resume_hitl_a_task_that_waits_is_resumed_without_input(world: World) -> None:
    made = manager(world, recovery=RecoveryConfig(auto_resume_hitl=True))
    restarted = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert restarted.calls == [("task-1", "")]
    assert len(await world.store.requests()) == 0


async def test_an_expired_task_fails_with_a_reason_and_stays_inspectable(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.save(state_of("works"))
    await made.hooks.tool_approval_required(state_of("waits"), APPROVAL)
    world.clock.advance(3601)
    await made.save(state_of("young"))
    report = await made.recover("shop")
    assert sorted(report.expired) == ["shop/ana/chat-1/waits", "shop/ana/chat-1/works"]
    assert restarted.calls == [("young", "")]
    for task in ("works", "waits"):
        info = await world.store.thread(made.thread_id("shop", "ana", "chat-1", task))
        assert info.status is Status.FAILED
        assert info.error is not None
        assert info.error.startswith("expired: the last checkpoint is 1:00:01")
        assert (await made.load("shop", "ana", "chat-1", task)).query == "Where is my money?"
    assert await made.pending("shop") == []


async def test_a_task_that_stopped_at_an_error_is_not_resumed_by_itself_but_by_hand(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.hooks.error(state_of(), ValueError("no"))
    assert (await made.recover("shop")).resumed == ()
    assert await made.resume(*TASK) == "resumed task-1"
    assert restarted.calls == [("task-1", "")]


async def test_a_callback_that_raises_fails_its_task_and_no_other(world: World) -> None:
    made, seen = manager(world), []

    async def callback(state: ExecutionState, user_input: str) -> None:
        seen.append(state.task_id)
        if state.task_id == "bad":
            raise ValueError("cannot")

    made.on_resume(callback)
    for task in ("good", "bad", "better"):
        await made.save(state_of(task))
    report = await made.recover("shop")
    assert sorted(report.resumed) == ["shop/ana/chat-1/better", "shop/ana/chat-1/good"]
    assert report.failed == ("shop/ana/chat-1/bad",)
    assert sorted(seen) == ["bad", "better", "good"]
    assert (await world.store.thread("shop/ana/chat-1/bad")).error == "ValueError: cannot"


async def test_a_callback_saves_and_completes_under_the_claim_of_the_recovery(world: World) -> None:
    made = manager(world, after_tools=True)
    await made.save(state_of())

    async def callback(state: ExecutionState, user_input: str) -> None:
        await made.save(state)
        await made.hooks.after_tool(state, "search")
        await made.hooks.complete(*TASK)

    made.on_resume(callback)
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert await made.load(*TASK) is None


async def test_a_callback_that_asks_for_the_next_approval_leaves_the_task_waiting(world: World) -> None:
    made, inputs = manager(world), []
    await made.hooks.tool_approval_required(state_of(), APPROVAL)

    async def callback(state: ExecutionState, user_input: str) -> str:
        inputs.append((state.pending_tool_call.id if state.pending_tool_call else "", user_input))
        if len(inputs) == 1:
            await made.hooks.tool_approval_required(state, type(APPROVAL)(id="call-2", name="mail"))
        return "done"

    made.on_resume(callback)
    await made.resume(*TASK, user_input="yes")
    assert (await world.store.thread(THREAD)).status is Status.INPUT_REQUIRED
    await made.resume(*TASK, user_input="no")
    assert inputs == [("call-1", "yes"), ("call-2", "no")]


async def test_input_resumes_a_task_once(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    assert await made.resume(*TASK, user_input="approve") == "resumed task-1"
    for said in ("approve", "reject"):
        with pytest.raises(Conflict):
            await made.resume(*TASK, user_input=said)
    assert restarted.calls == [("task-1", "approve")]


async def test_of_two_inputs_at_once_one_is_taken_and_the_other_is_a_conflict(world: World) -> None:
    await manager(world).hooks.tool_approval_required(state_of(), APPROVAL)
    calls: list[str] = []

    async def click(said: str) -> str:
        made = manager(world, store=world.open())
        made.on_resume(lambda state, user_input: calls.append(user_input))
        try:
            await made.resume(*TASK, user_input=said)
        except Conflict:
            return "conflict"
        return said

    ends = await world.gather(*(click(said) for said in ("approve", "reject")))
    assert sorted(ends) == sorted(["conflict", calls[0]])
    assert len(calls) == 1


async def test_a_fork_of_a_task_is_not_taken_for_the_task(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.save(state_of())
    checkpoint = await world.store.latest(THREAD)
    assert checkpoint is not None
    await world.store.fork(checkpoint.id, to="copy")
    await world.store.save("copy", checkpoint.state, status="working")
    assert len(await made.pending("shop")) == 1
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert len(restarted.calls) == 1


async def test_tasks_are_found_and_resumed_in_an_encrypted_store_too(world: World) -> None:
    store = world.open(keys=b"k" * 32)
    made = manager(world, store=store)
    restarted = server(made)
    await made.save(state_of("1"))
    await made.save(state_of("2", "bob"))
    await made.hooks.tool_approval_required(state_of("3"), APPROVAL)
    assert sorted(state.task_id for state in await made.pending("shop", "ana")) == ["1", "3"]
    assert len((await made.recover("shop")).resumed) == 2
    await made.resume("shop", "ana", "chat-1", "3", user_input="yes")
    assert sorted(restarted.calls) == [("1", ""), ("2", ""), ("3", "yes")]


async def test_a_task_that_is_complete_cannot_be_resumed(world: World) -> None:
    made = manager(world)
    server(made)
    await made.save(state_of())
    await made.hooks.complete(*TASK)
    with pytest.raises(Conflict, match="complete or was cleared"):
        await made.resume(*TASK)
    with pytest.raises(NotFound):
        await made.resume("shop", "ana", "chat-1", "never")
    await made.save(state_of())
    await made.cancel(*TASK)
    with pytest.raises(Conflict, match="is cancelled"):
        await made.resume(*TASK)


async def test_a_cancelled_task_can_be_started_again_once_it_is_cleared(world: World) -> None:
    made = manager(world)
    await made.save(state_of())
    await made.cancel(*TASK)
    with pytest.raises(RunCancelled):
        await made.save(state_of())
    await made.clear(*TASK)
    await made.save(state_of())
    assert len(await made.pending("shop")) == 1


async def test_a_task_that_died_before_its_first_checkpoint_is_to_be_started_again(world: World) -> None:
    """`recover` says so once; `resume` says so, and changes nothing."""
    dying, broken = manager(world, store=world.open()), world.faults[-1]
    with suppress(KeyboardInterrupt, Crash):
        async with dying.hold(*TASK):
            broken.plan = Fault(1, "crash before", frozenset({"swap"}))
            raise KeyboardInterrupt
    world.clock.advance(60)
    made = manager(world)
    called = server(made)
    with pytest.raises(NotFound, match=r"task 'shop/ana/chat-1/task-1' has no checkpoint: .*; start it again inside"):
        await made.resume(*TASK, user_input="hi")
    assert (await world.store.thread(THREAD)).status is Status.WORKING
    assert (await made.load(*TASK), await made.pending("shop")) == (None, [])
    assert (await made.recover("shop")).failed == (THREAD,)
    assert (await made.recover("shop")).failed == ()
    assert "no checkpoint" in str((await world.store.thread(THREAD)).error)
    await made.save(state_of())
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert called.calls == [("task-1", "")]


def test_who_comes_too_late_to_resume_a_task_does_not_make_it_again(tmp_path: Path) -> None:
    """Two processes found it; one completed it while the other waited for the claim."""
    calls: list[str] = []

    async def scenario() -> list[Any]:
        async with open_store(str(tmp_path / "tasks.db")) as store:
            made = CheckpointManager({"enabled": True}, store)

            async def callback(state: ExecutionState, user_input: str) -> str:
                calls.append(user_input)
                await asyncio.sleep(0.05)
                await made.hooks.complete(*TASK)
                return "done"

            made.on_resume(callback)
            await made.hooks.tool_approval_required(state_of(), APPROVAL)
            (request,) = await store.requests()
            await store.answer(request.id, value="approve")
            ends = await asyncio.gather(*(made.resume(*TASK, "approve") for _ in range(3)), return_exceptions=True)
            assert (await store.threads()).items == []
            return ends

    ends = asyncio.run(scenario())
    assert sorted(str(type(end).__name__) for end in ends) == ["Conflict", "Conflict", "str"]
    assert calls == ["approve"]


async def test_a_task_that_waits_is_not_resumed_without_input(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    with pytest.raises(InvalidAnswer, match="pass user_input"):
        await made.resume(*TASK)
    assert restarted.calls == []
    assert await made.resume(*TASK, user_input="go") == "resumed task-1"


async def test_an_approval_is_a_request_that_anybody_can_answer_and_recovery_continues(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    (request,) = await world.store.requests()
    assert (request.name, request.payload["tool_call"]["arguments"]) == ("tool_approval", {"amount": 40})
    await world.store.answer(request.id, value="approve", by="bob")
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert restarted.calls == [("task-1", "approve")]


async def test_an_input_that_was_given_before_a_crash_is_not_lost(world: World) -> None:
    dying = manager(world, store=world.open())
    broken = world.faults[-1]

    def dies(state: ExecutionState, user_input: str) -> None:
        broken.plan = Fault(1, "crash before", frozenset({"swap"}))
        raise KeyboardInterrupt

    dying.on_resume(dies)
    await dying.hooks.tool_approval_required(state_of(), APPROVAL)
    with pytest.raises(BaseException):  # noqa: B017, PT011  the process dies
        await dying.resume(*TASK, user_input="approve")
    world.clock.advance(60)
    made = manager(world)
    restarted = server(made)
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert restarted.calls == [("task-1", "approve")]


async def test_a_failed_callback_is_resumed_again_by_hand_with_the_same_input_only(world: World) -> None:
    made, calls = manager(world), []

    async def callback(state: ExecutionState, user_input: str) -> str:
        calls.append(user_input)
        if len(calls) == 1:
            raise ConnectionError("down")
        return "done"

    made.on_resume(callback)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    with pytest.raises(ConnectionError):
        await made.resume(*TASK, user_input="approve")
    with pytest.raises(Conflict, match="already has its input: 'approve'"):
        await made.resume(*TASK, user_input="reject")
    assert await made.resume(*TASK, user_input="approve") == "done"
    assert calls == ["approve", "approve"]


async def test_an_expired_approval_can_still_be_given_by_hand(world: World) -> None:
    made = manager(world)
    restarted = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    world.clock.advance(7200)
    await made.recover("shop")
    assert await made.resume(*TASK, user_input="late") == "resumed task-1"
    assert restarted.calls == [("task-1", "late")]


async def test_a_task_that_kills_its_process_each_time_is_given_up(world: World) -> None:
    await manager(world).save(state_of())
    calls: list[Any] = []
    for _ in range(5):
        store = world.open()
        made, broken = manager(world, store=store, max_attempts=3), world.faults[-1]

        def dies(state: ExecutionState, user_input: str, broken: Any = broken) -> None:
            calls.append(state.task_id)
            broken.plan = Fault(1, "crash before", frozenset({"swap"}))
            raise KeyboardInterrupt

        made.on_resume(dies)
        try:
            report = await made.recover("shop")
        except BaseException:  # noqa: BLE001  the process dies
            world.clock.advance(60)
        else:
            break
    assert len(calls) == 3
    assert report.failed == (THREAD,)
    error = (await world.store.thread(THREAD)).error
    assert error is not None
    assert "gave up: checkpoint 2 was resumed 3 times" in error


async def test_recovery_needs_a_callback(world: World) -> None:
    made = manager(world)
    await made.save(state_of())
    for call in (made.recover("shop"), made.resume(*TASK)):
        with pytest.raises(ConfigurationError, match=r"no resume callback is set; call manager\.on_resume\(callback\)"):
            await call
    with pytest.raises(ConfigurationError, match="`callback` must be the function that resumes a task"):
        made.on_resume(None)


async def test_a_callback_that_raises_an_error_of_ours_has_failed_too(world: World) -> None:
    made = manager(world)
    await made.save(state_of())

    async def callback(state: ExecutionState, user_input: str) -> None:
        raise NotFound("no such order")

    made.on_resume(callback)
    assert (await made.recover("shop")).failed == (THREAD,)


async def test_a_question_that_the_callback_asks_itself_is_waited_for(world: World) -> None:
    made, calls = manager(world), list[str]()
    await made.save(state_of())

    async def callback(state: ExecutionState, user_input: str) -> str:
        calls.append(state.task_id)
        answer = await world.api.current().ask("which card?", choices=("a", "b"))
        return str(answer.choice)

    made.on_resume(callback)
    for expected in ("resumed", "waiting", "waiting"):
        assert getattr(await made.recover("shop"), expected) == (THREAD,)
    assert len(calls) == 1
    (request,) = await world.store.requests()
    await world.store.answer(request.id, "b")
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert len(calls) == 2


async def test_steps_within_a_callback_are_executed_once(world: World) -> None:
    made, paid, lives = manager(world), list[int](), [1, 2]
    await made.save(state_of())

    async def callback(state: ExecutionState, user_input: str) -> None:
        await world.api.current().step("pay", paid.append, 40)
        if lives.pop(0) == 1:
            raise ConnectionError("down")

    made.on_resume(callback)
    await made.recover("shop")
    await made.resume(*TASK)
    assert paid == [40]


async def test_the_phase_is_what_the_callback_gets(world: World) -> None:
    made, phases = manager(world), []
    await made.hooks.after_llm_call(state_of())
    made.on_resume(lambda state, user_input: phases.append(state.phase))
    await made.recover("shop")
    assert phases == [Phase.POST_LLM]


@pytest.mark.parametrize("wrong", [True, 40, {"ok": True}, None])
async def test_an_input_that_is_no_text_is_refused_before_it_is_posted(world: World, wrong: Any) -> None:
    made = manager(world)
    called = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    with pytest.raises(ConfigurationError, match="`user_input` must be a str"):
        await made.resume(*TASK, user_input=wrong)
    assert await made.resume(*TASK, user_input="approve") == "resumed task-1"
    assert called.calls == [("task-1", "approve")]


async def test_a_save_that_does_not_wait_withdraws_the_question_of_the_one_before(world: World) -> None:
    made = manager(world)
    called = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    (request,) = await world.store.requests()
    await made.save(state_of())
    assert (await world.store.requests()).items == []
    assert (await world.store.thread(THREAD)).status is Status.WORKING
    with pytest.raises(Conflict, match="was withdrawn: the task was saved again"):
        await world.store.answer(request.id, value="approve")
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert called.calls == [("task-1", "")]


async def test_an_answer_that_was_given_is_kept_though_a_later_save_withdraws_the_question(world: World) -> None:
    made = manager(world)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    (request,) = await world.store.requests()
    await world.store.answer(request.id, value="approve")
    await made.save(state_of())
    (answered,) = await world.store.requests(status="answered")
    assert (answered.id, answered.answer.value if answered.answer else None) == (request.id, "approve")


async def test_the_next_approval_takes_the_place_of_the_one_before(world: World) -> None:
    made = manager(world)
    for number in (1, 2):
        await made.hooks.tool_approval_required(state_of(), type(APPROVAL)(id=f"call-{number}", name="refund"))
    (request,) = await world.store.requests()
    assert request.payload["tool_call"]["id"] == "call-2"


async def test_an_answer_that_was_given_is_used_however_late_it_is_recovered(world: World) -> None:
    made = manager(world)
    called = server(made)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    (request,) = await world.store.requests()
    world.clock.advance(3500)
    await world.store.answer(request.id, value="approve")
    world.clock.advance(3500)
    assert (await made.recover("shop")).resumed == (THREAD,)
    assert called.calls == [("task-1", "approve")]


def test_of_three_who_resume_a_failed_task_at_once_one_does() -> None:
    """Though the callback fails again, and leaves the task as it was."""
    calls: list[str] = []

    async def callback(state: ExecutionState, user_input: str) -> None:
        calls.append(user_input)
        raise ConnectionError("down")

    async def scenario() -> list[Any]:
        async with MemoryStore() as store:
            made = CheckpointManager({"enabled": True}, store)
            made.on_resume(callback)
            await made.hooks.error(state_of(), ValueError("no"))
            ends = await asyncio.gather(*(made.resume(*TASK, said) for said in "abc"), return_exceptions=True)
            with pytest.raises(ConnectionError):
                await made.resume(*TASK, "later")
            return ends

    ends = asyncio.run(scenario())
    assert sorted(type(end).__name__ for end in ends) == ["Conflict", "Conflict", "ConnectionError"]
    assert calls[1:] == ["later"]


async def test_an_input_for_a_task_that_failed_is_not_lost_with_its_process(world: World) -> None:
    dying = manager(world, store=world.open())
    broken = world.faults[-1]
    await dying.hooks.error(state_of(), ValueError("no"))

    def dies(state: ExecutionState, user_input: str) -> None:
        broken.plan = Fault(1, "crash before", frozenset({"swap"}))
        raise KeyboardInterrupt

    dying.on_resume(dies)
    with pytest.raises(BaseException):  # noqa: B017, PT011  the process dies
        await dying.resume(*TASK, user_input="try the other card")
    world.clock.advance(60)
    made = manager(world)
    called = server(made)
    await made.resume(*TASK)
    assert called.calls == [("task-1", "try the other card")]


async def test_a_task_that_is_complete_is_not_saved_by_its_callback_any_more(world: World) -> None:
    made = manager(world)
    await made.save(state_of())

    async def callback(state: ExecutionState, user_input: str) -> None:
        await made.hooks.complete(*TASK)
        await made.hooks.complete(*TASK)
        await made.save(state)

    made.on_resume(callback)
    with pytest.raises(Conflict, match="is complete, so its checkpoints are deleted; to start it again, save it after"):
        await made.resume(*TASK)
    assert await made.load(*TASK) is None
    await made.save(state_of())
    assert (await made.load(*TASK)).query == "Where is my money?"


async def test_an_approval_is_asked_for_once_though_the_callback_recorded_a_step_before_its_process_died(
    world: World,
) -> None:
    made, inputs, paid = manager(world), list[str](), list[int]()

    async def callback(state: ExecutionState, user_input: str) -> None:
        inputs.append(user_input)
        await world.api.current().step("pay", paid.append, 40)
        if len(inputs) == 1:
            raise ConnectionError("down")

    made.on_resume(callback)
    await made.hooks.tool_approval_required(state_of(), APPROVAL)
    with pytest.raises(ConnectionError):
        await made.resume(*TASK, user_input="approve")
    await made.resume(*TASK)
    assert (inputs, paid) == (["approve", "approve"], [40])


def test_a_task_that_two_processes_find_complete_is_deleted_by_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that completed it died, or was slow, before it deleted the thread."""
    with sync.MemoryStore() as store:
        made = sync.CheckpointManager({"enabled": True}, store)
        made.save(state_of())
        with store.run(THREAD) as run:
            run.complete()
        leave = Driver.leave_untouched

        def leave_as_another_deletes_it(driver: Driver) -> None:
            leave(driver)
            store.delete(THREAD)

        monkeypatch.setattr(Driver, "leave_untouched", leave_as_another_deletes_it)
        made.save(state_of())
        assert len(made.pending("shop")) == 1


def test_a_task_that_starts_again_before_its_completed_thread_is_deleted_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process that completed it was slow, and another has saved the task since."""
    with sync.MemoryStore() as store:
        slow, other = (sync.CheckpointManager({"enabled": True}, store) for _ in range(2))
        leave, started = RunBlock.leave, list[str]()

        async def leave_and_be_slow(block: RunBlock, error: BaseException | None) -> None:
            await leave(block, error)
            if not started:
                started.append("again")
                other.save(state_of(error="saved again"))

        with slow.hold(*TASK):
            slow.save(state_of())
            monkeypatch.setattr(RunBlock, "leave", leave_and_be_slow)
            slow.hooks.complete(*TASK)
        kept = other.load(*TASK)
        assert started
        assert kept is not None
        assert kept.error == "saved again"
