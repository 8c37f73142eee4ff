"""How an agent's run ends: each end is told once, whatever was killed since; agents within agents; foreign threads."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import holdfast
from agent.agents import agent, doomed_store, stored, streamed
from holdfast import FailurePolicy, RecoveryAction, Step, sync
from holdfast.testing.faults import Crash, Fault
from runs.worlds import SWAPS, World

RETRY = RecoveryAction.RETRY
UNDO = RecoveryAction.ABORT(undo=True)


@pytest.mark.parametrize("action", [RecoveryAction.ESCALATE, RecoveryAction.ABORT, UNDO])
async def test_an_end_that_was_told_is_not_told_again_after_a_kill(world: World, action: Any) -> None:
    calls: list[str] = []

    async def worker(_task: str, *, record_step: Any) -> str:
        calls.append("called")
        if len(calls) == 1:
            raise ValueError("no")
        await stored(record_step(Step(action="again")))
        if len(calls) == 2:
            world.die_at_next_write()
        return "done"

    with pytest.raises((holdfast.Escalated, holdfast.Aborted)):
        await agent(world, worker, policy=action).run("t", thread_id="t")
    with pytest.raises(Crash):
        await agent(world, worker, store=doomed_store(world), policy=action).run("t", thread_id="t")
    world.clock.advance(60)
    assert await agent(world, worker, policy=action).run("t", thread_id="t") == "done"
    assert len(calls) == 3


async def test_an_end_that_was_decided_and_not_told_is_told(world: World) -> None:
    async def worker(_task: str) -> str:
        raise ValueError("no")

    def on_failure(_context: Any) -> None:
        world.faults[-1].plan = Fault(2, "crash before", SWAPS)

    with pytest.raises(Crash):
        await agent(world, worker, store=doomed_store(world), on_failure=on_failure).run("t", thread_id="t")
    world.clock.advance(60)
    for _ in range(2):
        with pytest.raises(holdfast.Escalated, match="ValueError: no"):
            await agent(world, worker).run("t", thread_id="t")
    assert len((await agent(world, worker).summary("t")).failures) == 2, "the second run made another attempt"


async def test_an_agent_waits_with_one_within_it_that_waits(world: World) -> None:
    async def child(_task: str) -> str:
        answer = await world.api.ask("may I?", choices=["yes"])
        return str(answer.choice)

    inner = agent(world, child)

    async def parent(_task: str) -> Any:
        return await inner.run("c", thread_id="child")

    outer = agent(world, parent, policy=RETRY)
    outcome = await outer.start("p", thread_id="parent")
    assert outcome.status == "input_required"
    assert (await outer.summary("parent")).failures == ()
    (request,) = list(await world.store.requests())
    await world.store.answer(request.id, choice="yes")
    assert await outer.run("p", thread_id="parent") == "yes"


async def test_an_agent_within_it_that_gives_up_is_a_failure_of_the_outer_one(world: World) -> None:
    undone: list[str] = []

    async def child(_task: str) -> None:
        raise ConnectionError("full")

    inner = agent(world, child)

    async def parent(_task: str, *, record_step: Any) -> None:
        record_step(Step(action="flight"), compensator=("cancel", "flight"))
        await inner.run("hotel", thread_id="child")

    def cancel(what: str) -> None:
        undone.append(what)

    outer = agent(world, parent, policy=UNDO, compensators={"cancel": cancel})
    with pytest.raises(holdfast.Aborted) as caught:
        await outer.run("trip", thread_id="parent")
    assert undone == ["flight"]
    context = caught.value.context
    assert context is not None
    assert (context.thread_id, context.error_type) == ("parent", "Escalated")
    assert len((await outer.summary("parent")).failures) == 1


async def test_a_limit_of_an_agent_within_it_is_a_failure_of_the_outer_one(world: World) -> None:
    async def child(_task: str, *, record_usage: Any) -> str:
        try:
            record_usage(input_tokens=9)
        except holdfast.Escalated:
            return "swallowed"
        return "never"

    inner = agent(world, child, max_tokens=5)
    tried: list[int] = []

    async def parent(_task: str) -> str:
        tried.append(1)
        return str(await inner.run("c", thread_id=f"child {len(tried)}"))

    with pytest.raises(holdfast.Escalated, match="max_recovery_attempts=3 is used up"):
        await agent(world, parent, policy=RETRY).run("p", thread_id="p")
    assert len(tried) == 4


async def test_an_agent_may_end_itself(world: World) -> None:
    async def worker(_task: str) -> None:
        raise world.api.Aborted("enough")

    with pytest.raises(holdfast.Aborted, match="enough") as caught:
        await agent(world, worker, policy=RETRY).run("t", thread_id="t")
    assert caught.value.context is not None
    assert caught.value.context.thread_id == "t"


async def test_beyond_its_limits_a_policy_may_still_undo(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> None:
        if recovery is None:
            record_step(Step(action="flight"), compensator=("cancel", "flight"))
        raise ConnectionError

    policy = FailurePolicy.sequence(RETRY, RETRY, RETRY, UNDO)
    made = agent(world, trip, policy=policy, compensators={"cancel": undone.append})
    with pytest.raises(holdfast.Aborted):
        await made.run("t", thread_id="t")
    assert undone == ["flight"]


async def test_a_strict_rollback_that_cannot_be_made_is_escalated_and_the_thread_goes_on(world: World) -> None:
    calls: list[Any] = []

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        calls.append(recovery)
        if len(calls) == 1:
            record_step(Step(action="plan"))
            record_step(Step(action="pay"))
            raise ConnectionError("down")
        return "done"

    async def to_the_plan(context: Any) -> RecoveryAction:
        infos = list(await world.store.history(context.thread_id))
        target = next(info.id for info in infos if info.metadata.get("step") == "plan")
        return RecoveryAction.ROLLBACK(checkpoint_id=target, strict=True)

    with pytest.raises(holdfast.Escalated, match=r"'pay'.*has no compensator"):
        await agent(world, trip, policy=to_the_plan).run("t", thread_id="t")
    assert await agent(world, trip, policy=to_the_plan).run("t", thread_id="t") == "done"
    assert [step.action for step in calls[1].steps] == ["plan", "pay"]


async def test_where_the_past_was_pruned_nothing_good_is_undone(world: World) -> None:
    undone: list[str] = []

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> str:
        if recovery is None:
            for name in ("a", "b"):
                await stored(record_step(Step(action=name), compensator=("undo", name)))
            await stored(record_step(Step(action="c", error="refused"), compensator=("undo", "c")))
            await world.store.prune(holdfast.Retention(keep_last=1))
            raise ConnectionError("refused")
        return "done"

    made = agent(world, trip, policy=RecoveryAction.ROLLBACK, compensators={"undo": undone.append})
    with pytest.raises(holdfast.Escalated, match="pruned"):
        await made.run("t", thread_id="t")
    assert undone == []
    assert await made.run("t", thread_id="t") == "done"


async def test_the_result_of_another_program_is_not_returned(world: World) -> None:
    async with world.store.run("t") as run:
        await run.complete(5)

    async def worker(_task: str) -> str:
        return "mine"

    with pytest.raises(holdfast.KeyReused, match="something else"):
        await agent(world, worker).run("t", thread_id="t")


async def test_a_recovery_leaves_alone_what_the_agent_cannot_go_on_with(world: World) -> None:
    async with world.doomed("t") as run:
        await run.step("mine", lambda: 1)

    async def worker(_task: str) -> str:
        return "mine"

    report = await world.store.recover(agent(world, worker).resume)
    assert report.failed == ("t",)
    assert (await world.store.thread("t")).status == "working"


async def test_a_limit_that_a_stream_swallowed_is_told_at_its_end(world: World) -> None:
    async def worker(_task: str, *, record_usage: Any) -> AsyncIterator[int]:
        yield 1
        try:
            record_usage(input_tokens=9)
        except holdfast.Escalated:
            yield 2

    made, items = agent(world, worker, max_tokens=5), list[int]()

    async def consume() -> None:
        async for item in streamed(made, "t", thread_id="t"):
            items.append(item)

    with pytest.raises(holdfast.Escalated, match="its result is stored"):
        await consume()
    assert items == [1, 2]


def test_a_streams_consumer_keeps_its_own_run() -> None:
    def worker(_task: str) -> Any:
        yield 1
        yield 2

    with sync.MemoryStore() as store:
        items = iter(sync.Agent(worker, store=store).stream("t", thread_id="s"))
        assert next(items) == 1
        with store.run("outer"):
            assert next(items) == 2
            assert sync.current().thread_id == "outer"
            assert list(items) == []
            assert sync.current().thread_id == "outer"


def test_an_async_streams_consumer_keeps_its_own_run() -> None:
    async def worker(_task: str) -> Any:
        yield 1
        yield 2

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            items = holdfast.Agent(worker, store=store).stream("t", thread_id="s")
            assert await anext(items) == 1
            async with store.run("outer"):
                assert await anext(items) == 2
                assert holdfast.current().thread_id == "outer"
                assert [item async for item in items] == []
                assert holdfast.current().thread_id == "outer"

    asyncio.run(scenario())


async def test_an_effect_without_a_compensator_is_not_undone_by_a_strict_rollback(world: World) -> None:
    paid: list[str] = []

    async def trip(_task: str, *, record_step: Any, recovery: Any = None) -> None:
        if recovery is None:
            record_step(Step(action="plan", idempotent=True))
        await world.api.current().step("pay", lambda *, idempotency_key: paid.append(idempotency_key), effect=True)
        raise ConnectionError("down")

    made = agent(world, trip, policy=holdfast.compensating_rollback())
    for _ in range(2):
        with pytest.raises(holdfast.Escalated, match=r"'pay'.*has no compensator|max_recovery_attempts=3 is used up"):
            await made.run("t", thread_id="t")
    assert len(paid) == 1
