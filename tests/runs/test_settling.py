"""What a person decides from outside: a failed thread is put back, and a step in doubt gets its end."""

from typing import Any

import pytest

import holdfast
from runs.test_effects import Payments, in_doubt
from runs.test_recovery import Handler, die_in_recovery, handle
from runs.worlds import World


async def pay_again(world: World, payments: Payments) -> Any:
    """Run the thread again, and pay in it."""
    async with world.store.run("t") as run:
        return await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="fail")


async def refused(world: World, payments: Payments) -> None:
    """The thread fails, since it is not known whether the payment went out."""
    with pytest.raises(holdfast.StepInDoubt):
        await pay_again(world, payments)


async def test_a_failed_thread_is_resumed_by_a_recovery_once_it_was_put_back(world: World) -> None:
    calls: list[str] = []
    with pytest.raises(ValueError, match="no"):
        async with world.store.run("t") as run:
            await run.step("work", lambda: calls.append("work"))
            raise ValueError("no")
    assert not (await handle(Handler(), world)).resumed
    await world.store.retry("t")
    assert (await world.store.thread("t")).status == "working"

    async def again(run: holdfast.Run) -> None:
        await run.step("work", lambda: calls.append("work"))
        await run.complete("done")

    assert (await world.store.recover(again)).completed == ("t",)
    assert calls == ["work"]


async def test_a_step_is_settled_by_the_key_that_its_user_gave_and_keeps_its_arguments(world: World) -> None:
    async with world.doomed("t") as run:
        await run.begin_step("pay/1", 40)
    store = world.open()
    await store.settle("t", "pay/1", "done", "P-9")
    async with store.run("t") as run:
        assert await run.step("pay/1", str, 40, effect=True) == "P-9"
        assert run.steps[0].metadata["arguments"] == "40"


async def test_a_thread_that_killed_its_processes_has_all_its_attempts_again(world: World) -> None:
    async with world.doomed("t") as run:
        await run.step("work", list)
    for _ in range(2):
        await die_in_recovery(world)
        world.clock.advance(60)
    assert (await handle(Handler(), world, max_attempts=2)).failed == ("t",)
    await world.store.retry("t")
    await die_in_recovery(world)
    world.clock.advance(60)
    assert (await handle(Handler(), world, max_attempts=2)).completed == ("t",)


async def test_only_a_failed_thread_is_put_back_and_others_are_left_as_they_are(world: World) -> None:
    async with world.store.run("idle") as run:
        await run.step("work", list)
    async with world.store.run("complete") as run:
        await run.complete(1)
    async with world.doomed("working") as run:
        await run.step("work", list)
    world.clock.advance(60)
    for thread_id in ("idle", "complete", "working"):
        before = await world.store.thread(thread_id)
        with pytest.raises(holdfast.Conflict, match=f"is {thread_id}, and only a failed one can be retried"):
            await world.store.retry(thread_id)
        assert await world.store.thread(thread_id) == before
    with pytest.raises(holdfast.NotFound):
        await world.store.retry("nothing")


async def test_a_step_settled_as_done_has_that_result_and_is_not_executed(world: World) -> None:
    payments = await in_doubt(world)
    await refused(world, payments)
    await world.store.settle("t", "pay", "done", "P-9", by="ana")
    row = (await world.store.history("t")).items[0]
    assert row.metadata == {"step": "pay", "settled": "done", "by": "ana"}
    assert (await handle(Handler(), world)).completed == ("t",)
    assert len(payments.sent) == 1


async def test_the_result_that_was_settled_is_replayed(world: World) -> None:
    payments = await in_doubt(world)
    await world.store.settle("t", "pay", "done", "P-9")
    assert await pay_again(world, payments) == "P-9"
    assert len(payments.sent) == 1


async def test_a_step_settled_as_retry_is_executed_again_with_the_same_key(world: World) -> None:
    payments = await in_doubt(world, blindly=False)
    await world.store.settle("t", "pay", "retry")
    async with world.store.run("t") as run:
        assert await run.step("pay", payments.pay, 40, effect=True, on_doubt="fail") == "paid 40"
    assert len(payments.sent) == 2
    assert len(set(payments.sent)) == 1


async def test_a_step_that_is_retried_has_as_many_retries_as_before(world: World) -> None:
    await in_doubt(world)
    await world.store.settle("t", "pay", "retry")
    attempts: list[int] = []

    def fail(amount: int) -> None:
        attempts.append(amount)
        raise OSError("no")

    async with world.store.run("t") as run:
        with pytest.raises(holdfast.StepFailed, match="after 2 attempt"):
            await run.step("pay", fail, 40, effect=True, retries=1, backoff=0)
    assert len(attempts) == 2


async def test_a_step_settled_as_fail_raises_where_it_was_called(world: World) -> None:
    payments = await in_doubt(world)
    await world.store.settle("t", "pay", "fail", by="ana")
    for _ in range(2):
        async with world.store.run("t") as run:
            with pytest.raises(holdfast.StepFailed, match="settled as fail by ana") as caught:
                await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="fail")
            assert caught.value.type == "StepInDoubt"
    assert len(payments.sent) == 1


async def test_what_is_not_in_doubt_cannot_be_settled(world: World) -> None:
    payments = await in_doubt(world)
    with pytest.raises(holdfast.NotFound, match="no step 'other' in doubt; in doubt: 'pay'"):
        await world.store.settle("t", "other", "done")
    with pytest.raises(holdfast.InvalidAnswer, match="one of retry, done, fail, not 'perhaps'"):
        await world.store.settle("t", "pay", "perhaps")
    assert (await world.store.thread("t")).status == "working"
    await world.store.settle("t", "pay", "done", 1)
    with pytest.raises(holdfast.Conflict, match="has ended"):
        await world.store.settle("t", "pay", "done", 2)
    assert await pay_again(world, payments) == 1
    with pytest.raises(holdfast.NotFound):
        await world.store.settle("nothing", "pay", "done")


async def test_a_step_that_a_request_asks_about_is_settled_by_answering(world: World) -> None:
    payments = await in_doubt(world)
    with pytest.raises(holdfast.Suspended) as waits:
        async with world.store.run("t") as run:
            await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="ask")
    with pytest.raises(holdfast.Conflict, match=f"answer request {waits.value.requests[0].id} instead"):
        await world.store.settle("t", "pay", "done", 1)
    assert (await world.store.thread("t")).status == "input_required"


async def test_a_step_of_a_run_that_is_alive_cannot_be_settled(world: World) -> None:
    async with world.store.run("t") as run:
        await run.begin_step("pay")
        with pytest.raises(holdfast.LeaseHeld):
            await world.open().settle("t", "pay", "done")


async def test_a_step_in_doubt_may_be_named_by_its_name_if_it_is_the_only_one(world: World) -> None:
    @world.step(effect=True)
    async def charge(amount: int) -> int:
        world.die_at_next_write()
        return amount

    async with world.doomed("t"):
        await charge(40)
    await world.store.settle("t", "charge", "done", "P-9")
    latest = await world.store.latest("t")
    assert latest is not None
    (step,) = latest.steps
    assert (step.action, step.tool_output, step.metadata["arguments"]) == ("charge", "P-9", "amount=40")
