"""What an attempt is told, what limits there are, and how any process goes on with an agent's thread."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import holdfast
from agent.agents import agent, doomed_store, stored
from holdfast import FailurePolicy, FailureType, RecoveryAction, Step, sync
from holdfast.records.usage import UsageSnapshot
from holdfast.testing.faults import Crash
from runs.worlds import World

RETRY = RecoveryAction.RETRY


async def test_another_process_goes_on_with_state_trajectory_and_attempts(world: World) -> None:
    told: list[Any] = []

    async def worker(
        _task: str, *, record_step: Any, update_state: Any, restored_state: Any = None, recovery: Any = None
    ) -> Any:
        told.append(
            (restored_state, recovery and (recovery.attempt, recovery.failure, recovery.hint, len(recovery.steps)))
        )
        update_state({"n": len(told)})
        await stored(record_step(Step(action=f"try {len(told)}")))
        if len(told) == 1:
            raise ConnectionError("down")
        if len(told) == 2:
            world.die_at_next_write()
        return len(told)

    policy = RETRY(hint="slowly")
    with pytest.raises(Crash):
        await agent(world, worker, store=doomed_store(world), policy=policy).run("t", thread_id="t")
    world.clock.advance(60)
    assert await agent(world, worker, policy=policy).run("t", thread_id="t") == 3
    assert told == [
        (None, None),
        ({"n": 1}, (1, FailureType.EXTERNAL_FAULT, "slowly", 1)),
        ({"n": 2}, (1, FailureType.EXTERNAL_FAULT, "slowly", 2)),
    ]


async def test_a_process_that_just_died_counts_as_no_attempt(world: World) -> None:
    told: list[Any] = []

    async def worker(_task: str, *, record_step: Any, recovery: Any) -> str:
        told.append(recovery)
        await stored(record_step(Step(action="looked")))
        if len(told) == 1:
            world.die_at_next_write()
        return "done"

    with pytest.raises(Crash):
        await agent(world, worker, store=doomed_store(world)).run("t", thread_id="t")
    world.clock.advance(60)
    assert await agent(world, worker).run("t", thread_id="t") == "done"
    assert told[0] is None
    assert (told[1].attempt, told[1].failure, [step.action for step in told[1].steps]) == (0, None, ["looked"])


async def test_a_finished_thread_returns_its_result_and_executes_nothing(world: World) -> None:
    calls: list[str] = []

    async def worker(task: str) -> dict[str, Any]:
        calls.append(task)
        return {"task": task}

    made = agent(world, worker)
    assert await made.run("t", thread_id="t") == await made.run("t", thread_id="t") == {"task": "t"}
    outcome = await made.start("t", thread_id="t")
    assert (outcome.status, outcome.result, outcome.thread_id) == ("complete", {"task": "t"}, "t")
    assert calls == ["t"]


async def test_another_task_or_another_agent_on_a_known_thread_is_refused(world: World) -> None:
    async def worker(task: str) -> str:
        return task

    async def other(task: str) -> str:
        return task

    await agent(world, worker).run("t", thread_id="t")
    with pytest.raises(holdfast.KeyReused, match="its task differed"):
        await agent(world, worker).run("u", thread_id="t")
    with pytest.raises(holdfast.KeyReused, match="worker"):
        await agent(world, other).run("t", thread_id="t")


async def test_without_a_thread_id_a_fresh_one_is_made(world: World) -> None:
    async def worker(task: str) -> str:
        return f"{task}{world.api.current().thread_id}"

    made = agent(world, worker)
    first, second = await made.start("t"), await made.start("t")
    assert first.thread_id != second.thread_id
    assert first.result == "t" + first.thread_id


async def test_only_the_arguments_that_the_function_names_are_passed(world: World) -> None:
    async def bare(task: str) -> str:
        return task

    async def named(task: str, *, language: str, record_usage: Any) -> str:
        assert callable(record_usage)
        return task + language

    async def greedy(_task: str, **kwargs: Any) -> set[str]:
        return set(kwargs)

    assert await agent(world, bare).run("t") == "t"
    assert await agent(world, named).run("t", language="de") == "tde"
    handed = {"record_step", "update_state", "replace_state", "record_usage", "record_compensator", "checkpoint"}
    assert await agent(world, greedy).run("t", language="de") == {*handed, "language"}


async def test_context_functions_act_on_the_attempt_they_are_called_in(world: World) -> None:
    async def worker(task: str) -> str:
        holdfast.update_state({"a": 1, "b": 2})
        holdfast.replace_state({"c": 3})
        holdfast.record_step(Step(action="looked"))
        holdfast.record_compensator(len, "x")
        holdfast.record_usage(input_tokens=3)
        return task

    await agent(world, worker).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert (latest.state, [step.action for step in latest.steps]) == ({"c": 3}, ["looked"])
    with pytest.raises(holdfast.ConfigurationError, match="no agent is running here"):
        holdfast.record_step(Step(action="lost"))


async def test_a_retry_waits_for_its_delay_also_across_processes(world: World) -> None:
    calls: list[int] = []

    async def worker(_task: str) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError
        return "done"

    policy = holdfast.backoff_and_retry(base=100, longest=100)
    world.dies_asleep = True
    doomed = agent(world, worker, store=doomed_store(world), policy=policy)
    with pytest.raises(Crash):
        await doomed.run("t", thread_id="t")
    world.clock.advance(60)
    assert await agent(world, worker, policy=policy).run("t", thread_id="t") == "done"
    assert world.slept == [pytest.approx(40)]


async def test_attempts_are_limited_over_all_processes(world: World) -> None:
    calls: list[int] = []

    async def worker(_task: str) -> None:
        calls.append(1)
        raise ConnectionError("down")

    made = agent(world, worker, policy=RETRY, max_recovery_attempts=2)
    with pytest.raises(holdfast.Escalated, match="max_recovery_attempts=2 is used up") as raised:
        await made.run("t", thread_id="t")
    assert len(calls) == 3
    assert raised.value.context is not None
    assert raised.value.context.earlier == (FailureType.EXTERNAL_FAULT,) * 2
    assert isinstance(raised.value.__cause__, ConnectionError)
    again = agent(world, worker, store=world.open(), policy=RETRY, max_recovery_attempts=2)
    with pytest.raises(holdfast.Escalated, match="max_recovery_attempts=2 is used up"):
        await again.run("t", thread_id="t")
    assert len(calls) == 4


async def test_the_time_of_recovery_is_limited(world: World) -> None:
    async def worker(_task: str) -> None:
        raise ConnectionError("down")

    made = agent(world, worker, policy=RETRY(delay=50), max_recovery_seconds=70, max_recovery_attempts=99)
    with pytest.raises(holdfast.Escalated, match="recovery has taken 100 s"):
        await made.run("t", thread_id="t")


@pytest.mark.parametrize("limit", [{"max_tokens": 100}, {"max_cost_usd": 1.0}])
async def test_usage_is_summed_over_all_processes_and_kept_before_it_is_refused(
    world: World, limit: dict[str, Any]
) -> None:
    calls: list[Any] = []

    async def worker(_task: str, *, record_usage: Any, record_step: Any) -> str:
        calls.append(1)
        record_step(Step(action="paid"))
        await stored(record_usage(input_tokens=40, output_tokens=20, cost_usd=0.6))
        if len(calls) == 1:
            world.die_at_next_write()
        return "done"

    with pytest.raises(Crash):
        await agent(world, worker, store=doomed_store(world), **limit).run("t", thread_id="t")
    world.clock.advance(60)
    with pytest.raises(holdfast.Escalated, match=r"used 120 of 100 tokens|used 1\.2 of 1 USD"):
        await agent(world, worker, **limit).run("t", thread_id="t")
    with pytest.raises(holdfast.Escalated, match=r"used .* to continue"):
        await agent(world, worker, **limit).run("t", thread_id="t")
    assert len(calls) == 2
    larger = {name: value * 10 for name, value in limit.items()}
    assert await agent(world, worker, **larger).run("t", thread_id="t") == "done"
    assert len((await world.store.latest("t")).steps) == 3  # type: ignore[union-attr]


async def test_an_escalation_that_was_not_told_is_told_by_the_next_process(world: World) -> None:
    calls: list[int] = []

    async def worker(_task: str) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")
        return "done"

    async def die(_context: holdfast.FailureContext) -> RecoveryAction:
        return RecoveryAction.ESCALATE(message="call Ana")

    store = doomed_store(world)
    fault = world._doomed
    assert fault is not None
    made = agent(world, worker, store=store, policy=die)
    original = fault.swap

    def swap(swaps: Any, **options: Any) -> Any:
        if any(each.replacement and b"failed" in each.replacement for each in swaps):
            raise Crash("before the end is noted")
        return original(swaps, **options)

    fault.swap = swap  # type: ignore[method-assign]
    with pytest.raises((Crash, holdfast.Escalated)):
        await made.run("t", thread_id="t")
    world.clock.advance(60)
    with pytest.raises(holdfast.Escalated, match="call Ana"):
        await agent(world, worker, policy=die).run("t", thread_id="t")
    assert await agent(world, worker, policy=die).run("t", thread_id="t") == "done"
    assert len(calls) == 2


@pytest.mark.parametrize(("choice", "end"), [("retry", 1), ("rollback", 0)])
async def test_a_suspended_agent_goes_on_as_it_is_answered_once(world: World, choice: str, end: int) -> None:
    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> int:
        if recovery is None:
            record_step(Step(action="sent", error="refused"))
            raise ConnectionError("refused")
        return len(recovery.steps)

    made = agent(world, worker, policy=RecoveryAction.SUSPEND(message="what now?"))
    with pytest.raises(holdfast.Suspended) as raised:
        await made.run("t", thread_id="t")
    request = raised.value.requests[0]
    assert request.choices == ("retry", "rollback", "abort")
    assert request.payload["message"] == "what now?"
    outcome = await made.start("t", thread_id="t")
    assert (outcome.status, outcome.requests) == ("input_required", (request,))
    await world.store.answer(request.id, choice, by="ana")
    with pytest.raises(holdfast.Conflict):
        await world.store.answer(request.id, choice)
    assert await made.run("t", thread_id="t") == end


async def test_a_suspended_agent_can_be_aborted_and_run_again(world: World) -> None:
    async def worker(_task: str, *, recovery: Any = None) -> str:
        if recovery is None:
            raise ConnectionError("refused")
        return "done"

    made = agent(world, worker, policy=RecoveryAction.SUSPEND)
    outcome = await made.start("t", thread_id="t")
    await world.store.answer(outcome.requests[0].id, "abort")
    with pytest.raises(holdfast.Aborted, match="refused"):
        await made.run("t", thread_id="t")
    assert await made.run("t", thread_id="t") == "done"


@pytest.mark.parametrize("choice", ["retry", "rollback"])
async def test_what_a_person_said_reaches_the_agent(world: World, choice: str) -> None:
    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> Any:
        if recovery is None:
            record_step(Step(action="sent", error="refused"))
            raise ConnectionError("refused")
        said = recovery.answer
        return [recovery.action, said.choice, said.value, said.comment, said.by]

    made = agent(world, worker, policy=RecoveryAction.SUSPEND)
    (request,) = (await made.start("t", thread_id="t")).requests
    await world.store.answer(request.id, choice, value={"to": "ben"}, comment="ask Ben", by="ana")
    assert await made.run("t", thread_id="t") == [choice, choice, {"to": "ben"}, "ask Ben", "ana"]


async def test_what_a_person_chose_is_not_asked_again_by_a_process_that_comes_after_the_rollback(world: World) -> None:
    cancelled: list[str] = []

    async def cancel(what: str, idempotency_key: str) -> None:
        cancelled.append(what + idempotency_key[:0])

    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="look"))
            record_step(Step(action="reserve", error="gone"), compensator=("cancel", "seat"))
            raise ConnectionError("shop down")
        return "bought"

    async def dies(_task: str, *, recovery: Any = None) -> str:
        if recovery is None:
            raise AssertionError
        world.die_at_next_write()
        return "never stored"

    dies.__qualname__ = worker.__qualname__
    options: Any = {"policy": RecoveryAction.SUSPEND, "compensators": {"cancel": cancel}}
    outcome = await agent(world, worker, **options).start("t", thread_id="t")
    request = outcome.requests[0]
    await world.store.answer(request.id, "rollback", by="ana")
    with pytest.raises(Crash):
        await agent(world, dies, store=doomed_store(world), **options).run("t", thread_id="t")
    world.clock.advance(60)
    assert await agent(world, worker, **options).run("t", thread_id="t") == "bought"
    assert cancelled == ["seat"]
    known: list[Any] = list(await world.store.requests(status=None))
    assert [(each.id, each.answer.choice, each.answer.by) for each in known] == [(request.id, "rollback", "ana")]


async def test_a_question_that_a_rollback_undid_is_asked_again_and_its_answer_stays_known(world: World) -> None:
    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="look"))
        answer = await world.api.ask("buy", choices=("yes", "no"))
        if recovery is None or recovery.failure is None:
            record_step(Step(action="pay", error="declined"))
            raise ConnectionError("declined")
        return str(answer.choice)

    made = agent(world, worker, policy=RecoveryAction.SUSPEND)
    answers = [("buy", "yes"), ("recovery 1", "rollback"), ("buy", "no")]
    for name, choice in answers:
        (request,) = (await made.start("t", thread_id="t")).requests
        assert request.name == name
        await world.store.answer(request.id, choice)
    assert await made.run("t", thread_id="t") == "no"
    known: list[Any] = list(await world.store.requests(status=None))
    assert sorted((each.name, each.answer.choice) for each in known) == sorted(answers)


async def test_a_person_who_is_asked_is_told_the_error_too(world: World) -> None:
    async def worker(_task: str) -> None:
        raise ConnectionError("port 9 is closed")

    outcome = await agent(world, worker, policy=RecoveryAction.SUSPEND(message="what now?")).start("t", thread_id="t")
    payload = outcome.requests[0].payload
    assert (payload["message"], payload["error_message"]) == ("what now?", "port 9 is closed")


async def test_an_agent_that_swallows_its_limit_is_escalated_with_its_result_stored(world: World) -> None:
    async def worker(_task: str, *, record_usage: Any) -> str:
        for _ in range(5):
            with suppress(Exception):
                record_usage(input_tokens=100)
        return "paid for"

    made = agent(world, worker, policy=RETRY, max_tokens=150)
    with pytest.raises(holdfast.Escalated, match=r"used 500 of 150 tokens; .* its result is stored"):
        await made.run("t", thread_id="t")
    assert await made.run("t", thread_id="t") == "paid for"
    assert (await world.store.thread("t")).status == "complete"


@pytest.mark.parametrize("policy", [RETRY, RecoveryAction.ROLLBACK])
async def test_an_error_that_says_how_to_use_the_library_is_no_failure_of_the_agent(world: World, policy: Any) -> None:
    calls: list[int] = []

    async def worker(_task: str, *, record_step: Any, update_state: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            record_step(Step(action="x"), compensator=("unknown", 1))
        update_state({"client": object()})

    made = agent(world, worker, policy=policy)
    with pytest.raises(holdfast.ConfigurationError, match="compensator 'unknown'"):
        await made.run("t", thread_id="t")
    with pytest.raises(holdfast.UnstorableValue, match="client"):
        await made.run("t", thread_id="t")
    assert len(calls) == 2
    assert (await made.summary("t")).failures == ()


async def test_a_thread_of_a_session_is_not_taken_over_by_an_agent(world: World) -> None:
    orchestrator = world.api.Orchestrator("writer", "draft", getattr(world.store, "_inner", world.store))
    block = orchestrator.session("t")
    session = await block.enter() if world.name == "awaitable" else block.__enter__()
    turn = session.run_turn(lambda: "hello", idempotency_key="k")
    if world.name == "awaitable":
        await turn
        await block.leave(None)
    else:
        block.__exit__(None, None, None)

    async def worker(task: str) -> str:
        return task

    with pytest.raises(holdfast.KeyReused, match="is used by something else"):
        await agent(world, worker).run("t", thread_id="t")
    assert (await world.store.thread("t")).status == "idle"


async def test_an_agent_can_ask_and_its_answer_is_consumed_once(world: World) -> None:
    asked: list[Any] = []

    async def worker(_task: str, *, record_step: Any, restored_state: Any = None) -> str:
        if not restored_state and not asked:
            record_step(Step(action="looked"))
        asked.append(1)
        answer = await world.api.ask("refund", {"amount": 40}, choices=("approve", "reject"))
        if len(asked) == 2:
            raise ConnectionError("after the answer")
        return str(answer.choice)

    made = agent(world, worker, policy=RETRY)
    outcome = await made.start("t", thread_id="t")
    await world.store.answer(outcome.requests[0].id, "approve")
    assert await made.run("t", thread_id="t") == "approve"
    assert len(asked) == 3
    assert len(list(await world.store.requests(status=None))) == 1


async def test_callbacks_hear_of_steps_failures_and_recoveries(world: World) -> None:
    heard: list[Any] = []

    async def step(step: Step) -> None:
        heard.append(step.action)

    async def failure(context: holdfast.FailureContext) -> None:
        heard.append(context.type.value)

    async def recovery(context: holdfast.FailureContext, action: RecoveryAction) -> None:
        heard.append((context.attempt, action.kind))

    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        record_step(Step(action="looked"))
        if recovery is None:
            raise TimeoutError
        return "done"

    made = agent(world, worker, policy=RETRY, on_step=step, on_failure=failure, on_recovery=recovery)
    assert await made.run("t", thread_id="t") == "done"
    assert heard == ["looked", "timeout", (1, "retry"), "looked"]


async def test_a_cancelled_thread_is_drained_and_cannot_be_run_again(world: World) -> None:
    async def worker(_task: str, *, record_step: Any, update_state: Any) -> str:
        record_step(Step(action="looked"))
        update_state({"kept": True})
        await world.store.cancel("t")
        record_step(Step(action="too late"))
        return "done"

    made = agent(world, worker, policy=RETRY)
    with pytest.raises(holdfast.RunCancelled):
        await made.run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert (latest.status, latest.state, len(latest.steps)) == ("cancelled", {"kept": True}, 1)
    with pytest.raises(holdfast.RunCancelled):
        await made.run("t", thread_id="t")


def test_a_cancelled_task_has_drained_what_was_recorded() -> None:
    async def scene() -> None:
        store, started = holdfast.MemoryStore(), asyncio.Event()

        async def worker(_task: str, *, record_step: Any, update_state: Any) -> None:
            record_step(Step(action="looked"))
            update_state({"kept": True})
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(holdfast.Agent(worker, store=store).run("t", thread_id="t"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        latest = await store.latest("t")
        assert latest is not None
        assert (latest.state, len(latest.steps), latest.status) == ({"kept": True}, 1, "working")
        await store.close()

    asyncio.run(scene())


async def test_an_agent_that_cannot_be_is_refused(world: World) -> None:
    async def worker(task: str) -> str:
        return task

    with pytest.raises(holdfast.ConfigurationError, match="a function"):
        agent(world, "worker")  # type: ignore[arg-type]
    with pytest.raises(holdfast.ConfigurationError, match="lease"):
        agent(world, worker, lease=0.1)
    with pytest.raises(holdfast.ConfigurationError, match="max_recovery_attempts"):
        agent(world, worker, max_recovery_attempts=-1)
    with pytest.raises(holdfast.UnstorableValue, match="task"):
        await agent(world, worker).run(object())


async def test_the_decorator_makes_an_agent(world: World) -> None:
    async def worker(task: str) -> str:
        return task

    if world.name == "awaitable":
        made: Any = holdfast.agent(policy=FailurePolicy(), store=world.store)(worker)
        assert await made.run("t") == "t"
        assert made.name.endswith("worker")
    else:
        from holdfast import sync

        plain_agent = sync.agent(policy=FailurePolicy(), store=world.store._inner)(lambda task: task)  # type: ignore[attr-defined]
        assert plain_agent.run("t") == "t"
        assert plain_agent.name.endswith("<lambda>")


async def test_a_recovery_goes_on_with_agents_that_were_abandoned(world: World) -> None:
    calls: list[str] = []

    async def worker(task: str, *, record_step: Any, language: str = "en", recovery: Any = None) -> str:
        calls.append(task)
        await stored(record_step(Step(action="looked")))
        if recovery is None:
            world.die_at_next_write()
        return f"{task} {language} {len(recovery.steps) if recovery else 0}"

    with pytest.raises(Crash):
        await agent(world, worker, store=doomed_store(world)).run("kelp", thread_id="t")
    world.clock.advance(60)
    async with world.store.run("another"):
        pass
    made = agent(world, worker)

    async def go_on(run: Any) -> None:
        assert await made.resume(getattr(run, "_inner", run), language="de") == "kelp de 1"

    report = await world.store.recover(go_on, labels={"agent": made.name.rpartition(":")[2]})
    assert (report.completed, report.skipped) == (("t",), ())
    assert await made.run("kelp", thread_id="t") == "kelp de 1"
    assert calls == ["kelp", "kelp"]


async def test_listeners_hear_of_failed_attempts_and_rollbacks(world: World) -> None:
    heard: list[Any] = []

    def listen(event: holdfast.StoreEvent) -> None:
        if event.kind in {"attempt_failed", "rolled_back"}:
            heard.append((event.kind, event.details))

    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="send", error="refused"), compensator=len)
            raise ConnectionError("secret")
        return "done"

    world.store.on_event(listen)
    with pytest.raises(holdfast.Escalated):  # len is called without an argument
        await agent(world, worker, policy=RecoveryAction.ROLLBACK).run("t", thread_id="t")
    failed = {"attempt": 1, "failure": "external_fault", "action": "rollback", "error": "ConnectionError"}
    assert heard == [("attempt_failed", failed)]
    made = agent(world, worker, policy=RecoveryAction.ROLLBACK, compensators={"builtins:len": list})
    assert await made.run("t", thread_id="t") == "done"
    assert heard[1] == ("rolled_back", {"attempt": 1, "target": 0, "compensated": 1})


async def test_a_fork_goes_on_from_its_checkpoint_with_no_failures_of_its_own(world: World) -> None:
    told: list[Any] = []

    async def worker(_task: str, *, record_step: Any, update_state: Any, recovery: Any = None) -> int:
        told.append(recovery)
        update_state({"n": len(told)})
        record_step(Step(action=f"try {len(told)}"))
        if len(told) == 1:
            raise ConnectionError("down")
        return len(told)

    made = agent(world, worker, policy=RETRY)
    assert await made.run("t", thread_id="t") == 2
    infos = list(await world.store.history("t"))
    fork = await world.store.fork(infos[-1].id, "f")
    assert await made.run("t", thread_id=fork) == 3
    assert (told[2].attempt, told[2].failure, told[2].state) == (0, None, {"n": 1})
    assert [step.action for step in told[2].steps] == ["try 1"]
    assert ((await made.summary("f")).failures, len((await made.summary("t")).failures)) == ((), 1)


async def test_an_agent_s_thread_is_exported_and_gone_on_with_elsewhere(world: World, tmp_path: Any) -> None:
    calls: list[Any] = []

    async def worker(_task: str, *, update_state: Any, recovery: Any = None) -> str:
        calls.append(recovery)
        update_state({"n": len(calls)})
        if len(calls) < 3:
            raise ConnectionError("down")
        return "done"

    policy = FailurePolicy.sequence(RecoveryAction.REPLAN(hint="other words"), RecoveryAction.ESCALATE)
    with pytest.raises(holdfast.Escalated):
        await agent(world, worker, policy=policy).run("t", thread_id="t")
    await world.store.export("t", tmp_path / "bundle")
    await world.store.import_(tmp_path / "bundle", to="u")
    assert await agent(world, worker, policy=policy).run("t", thread_id="u") == "done"
    assert (calls[1].action, calls[1].hint) == ("replan", "other words")
    assert (calls[2].attempt, calls[2].action, calls[2].state) == (2, "escalate", {"n": 2})


async def test_a_sub_goal_is_told_to_the_next_attempt(world: World) -> None:
    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            record_step(Step(action="find", metadata={"subgoal": "find"}))
            record_step(Step(action="pay", metadata={"subgoal": "buy"}))
            raise ConnectionError
        return str(recovery.subgoal)

    made = agent(world, worker, policy=holdfast.resume_from_subgoal())
    assert await made.run("t", thread_id="t") == "buy"


async def test_a_question_that_was_rolled_back_is_asked_again(world: World) -> None:
    async def worker(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            await stored(record_step(Step(action="plan")))
        answer = await world.api.ask("which?", choices=("a", "b"))
        record_step(Step(action=str(answer.choice), error="wrong" if answer.choice == "a" else None))
        if answer.choice == "a":
            raise ValueError("not a")
        return str(answer.choice)

    async def to_the_plan(context: holdfast.FailureContext) -> RecoveryAction:
        infos = list(await world.store.history(context.thread_id))
        return RecoveryAction.ROLLBACK(checkpoint_id=next(i.id for i in infos if i.metadata.get("step") == "plan"))

    made = agent(world, worker, policy=to_the_plan)
    for choice in ("a", "b"):
        outcome = await made.start("t", thread_id="t")
        assert outcome.status == "input_required"
        await world.store.answer(outcome.requests[0].id, choice)
    assert await made.run("t", thread_id="t") == "b"
    assert list(await world.store.requests()) == []


async def test_a_state_is_what_it_was_when_it_was_given(world: World) -> None:
    async def worker(_task: str, *, record_step: Any, update_state: Any) -> None:
        messages: list[Any] = ["first"]
        update_state({"messages": messages})
        messages.append(object())
        record_step(Step(action="one"))
        update_state({"n": 1})

    await agent(world, worker).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {"messages": ["first"], "n": 1}


class Caller:
    """An agent that is an object."""

    def __call__(self, task: str, **_: Any) -> str:
        return task


def plain_worker(task: str, *, client: Any = None) -> str:
    return task


def test_an_agent_is_known_by_the_same_name_in_every_process() -> None:
    with sync.MemoryStore() as store:
        made = [sync.Agent(function, store=store) for function in (partial(plain_worker, client=1), Caller(), Caller())]
    here = plain_worker.__module__
    assert [each.name for each in made] == [f"{here}:plain_worker", f"{here}:Caller", f"{here}:Caller"]


def test_sums_of_usage_that_are_beyond_counting_keep_a_thread_usable() -> None:
    def spender(_task: str, *, record_usage: Any) -> str:
        for _ in range(3):
            record_usage(input_tokens=2**63 - 1, cost_usd=10**15)
        return "done"

    with sync.MemoryStore() as store:
        made = sync.Agent(spender, store=store)
        assert made.run("t", thread_id="t") == "done"
        summary = made.summary("t")
        assert (summary.usage, summary.cost_usd) == (UsageSnapshot(input_tokens=2**63 - 1), 3 * 10**15)


async def test_a_result_that_cannot_be_stored_is_handed_over_in_the_error(world: World) -> None:
    result = {"paid": object()}

    async def worker(_task: str) -> Any:
        return result

    with pytest.raises(holdfast.UnstorableValue) as refused:
        await agent(world, worker).run("t", thread_id="t")
    assert refused.value.value is result


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionError("down"), holdfast.FailureType.EXTERNAL_FAULT),
        (TimeoutError(), holdfast.FailureType.TIMEOUT),
        (FileNotFoundError("a.txt"), holdfast.FailureType.EXTERNAL_FAULT),
        (ValueError("odd"), holdfast.FailureType.UNKNOWN),
    ],
)
async def test_a_failure_within_a_step_is_classified_by_what_made_the_step_fail(
    world: World, error: Exception, kind: holdfast.FailureType
) -> None:
    seen: list[holdfast.FailureType] = []

    async def fail() -> None:
        raise error

    async def worker(_task: str) -> None:
        await world.api.current().step("call", fail)

    async def policy(context: holdfast.FailureContext) -> RecoveryAction:
        seen.append(context.type)
        return RecoveryAction.ABORT

    with pytest.raises(holdfast.Aborted):
        await agent(world, worker, policy=policy).run("t", thread_id="t")
    assert seen == [kind]
