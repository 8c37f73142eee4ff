"""A run that waits: sticky, whatever its branches do; and sleeps that outlive the process."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

import holdfast
from patience import GIVE_UP_SECONDS
from runs.worlds import AwaitableWorld, World


async def test_every_later_call_on_the_run_waits_too(world: World) -> None:
    calls: list[int] = []
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            for attempt in (
                lambda: run.ask("refund"),
                lambda: run.step("more", lambda: calls.append(1)),
                lambda: run.checkpoint({}),
                run.complete,
            ):
                try:
                    await attempt()
                except Exception as error:
                    raise AssertionError("an Exception could be swallowed") from error
                except BaseException:  # noqa: BLE001  what a broad handler of a user does
                    pass
    assert calls == []
    assert (await world.store.thread("t")).status == "input_required"


async def test_an_except_of_exceptions_cannot_swallow_it(world: World) -> None:
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            try:
                await run.ask("refund")
            except Exception:  # noqa: BLE001
                raise AssertionError("swallowed") from None


async def test_parallel_questions_are_all_asked(world: World) -> None:
    async def ask(run: holdfast.Run, name: str) -> Any:
        return (await run.ask(name)).value

    answers: list[str] = []
    while True:
        try:
            async with world.store.run("t") as run:
                assert await world.gather(ask(run, "a"), ask(run, "b")) == ["A", "B"]
                break
        except holdfast.Suspended as suspended:
            for request in suspended.requests:
                answers.append(request.name)
                await world.store.answer(request.id, value=request.name.upper())
    assert sorted(answers) == ["a", "b"]


async def test_steps_of_other_branches_are_recorded_before_the_run_waits(world: World) -> None:
    asked, calls = Event(), list[int]()

    def slow() -> str:
        asked.wait(GIVE_UP_SECONDS)
        calls.append(1)
        return "done"

    async def work(run: holdfast.Run) -> Any:
        return await run.step("slow", slow)

    async def ask(run: holdfast.Run) -> Any:
        return (await run.ask("refund")).value

    world.store.on_event(lambda event: asked.set() if event.kind == "asked" else None)
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await world.gather(work(run), ask(run))
    await world.store.answer(caught.value.requests[0].id, value="yes")
    async with world.store.run("t") as run:
        assert await world.gather(work(run), ask(run)) == ["done", "yes"]
    assert calls == [1]


def test_a_task_group_does_not_cut_an_effect_when_another_branch_asks() -> None:
    waits, paid = asyncio.Event(), list[str]()

    async def pay() -> str:
        paid.append("begun")
        await waits.wait()
        await holdfast.record(holdfast.Step(action="noted"))
        paid.append("done")
        return "paid"

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            with pytest.raises(holdfast.Suspended):
                async with store.run("t") as run, asyncio.TaskGroup() as group:
                    group.create_task(run.step("pay", pay, effect=True))
                    group.create_task(run.ask("refund"))
                    while run._ledger.suspension is None:
                        await asyncio.sleep(0)
                    waits.set()
                    await run.step("more", lambda: paid.append("more"))
            async with store.run("t") as run:
                assert await run.step("pay", pay, effect=True) == "paid"

    asyncio.run(scenario())
    assert paid == ["begun", "done"]


async def test_a_step_that_swallows_its_own_question_is_not_recorded(world: World) -> None:
    async def decide() -> Any:
        try:
            return (await world.api.ask("refund")).value
        except BaseException:  # noqa: BLE001  what a gather with return_exceptions=True does
            return "nobody was asked"

    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await run.step("decide", decide)
    await world.store.answer(caught.value.requests[0].id, value="yes")
    async with world.store.run("t") as run:
        assert await run.step("decide", decide) == "yes"


async def test_a_step_begun_by_hand_is_completed_though_the_run_waits(world: World) -> None:
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            handle = await run.begin_step("pay")
            with suppress(BaseException):
                await run.ask("refund")
            await run.complete_step(handle, "paid")
    async with world.store.run("t") as run:
        assert (await run.begin_step("pay")).value == "paid"


async def test_an_answer_reaches_a_thread_whose_run_is_alive_in_another_branch(world: World) -> None:
    at_work = Event()

    async def answer() -> str:
        at_work.set()
        while not (page := await world.store.requests()):
            await asyncio.sleep(0) if world.name == "awaitable" else None
        await world.store.answer(page.items[0].id, value="in time")
        return "answered"

    async def work(run: holdfast.Run) -> Any:
        return await run.step("answer", answer)

    async def ask(run: holdfast.Run) -> Any:
        await run.step("wait", at_work.wait)
        return (await run.ask("refund")).value

    with suppress(holdfast.Suspended):  # unless the answer is there before the run has begun to wait
        async with world.store.run("t") as run:
            await world.gather(ask(run), work(run))
    async with world.store.run("t") as run:
        assert await world.gather(ask(run), work(run)) == ["in time", "answered"]


def test_gather_that_returns_exceptions_cannot_lose_it(world: World) -> None:
    if not isinstance(world, AwaitableWorld):
        return

    async def scenario() -> None:
        with pytest.raises(holdfast.Suspended) as caught:
            async with world.store.run("t") as run:
                asks = (run.ask("a"), run.ask("b"))
                await asyncio.gather(*asks, return_exceptions=True)
        assert [request.name for request in caught.value.requests] == ["a", "b"]
        assert not (await world.store.recover(lambda run: None)).resumed
        await world.store.answer(caught.value.requests[1].id, value=1)
        assert (await world.store.recover(lambda run: None)).resumed == ("t",)

    world.play(scenario())


def test_a_task_group_cannot_lose_it(world: World) -> None:
    if not isinstance(world, AwaitableWorld):
        return

    async def scenario() -> None:
        async def body(run: holdfast.Run) -> list[Any]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run.ask(name)) for name in ("a", "b")]
            return [task.result().value for task in tasks]

        with pytest.raises(holdfast.Suspended) as caught:
            async with world.store.run("t") as run:
                await body(run)
        for request in caught.value.requests:
            await world.store.answer(request.id, value=request.name)
        async with world.store.run("t") as run:
            assert await body(run) == ["a", "b"]

    world.play(scenario())


async def test_a_short_sleep_is_slept_in_place(world: World) -> None:
    async with world.store.run("t") as run:
        await run.sleep(20)
    assert world.slept == pytest.approx([20])
    async with world.store.run("t") as run:
        await run.sleep(20)
    assert world.slept == pytest.approx([20])


async def test_a_sleep_longer_than_the_lease_suspends(world: World) -> None:
    async def nap(run: holdfast.Run) -> str:
        await run.sleep(timedelta(hours=1))
        return "rested"

    with pytest.raises(holdfast.Suspended, match="sleeps") as caught:
        async with world.store.run("t") as run:
            await nap(run)
    assert caught.value.requests == ()
    info = await world.store.thread("t")
    assert (info.status, info.owner) == ("working", None)
    world.clock.advance(1800)
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            await nap(run)
    world.clock.advance(1800)
    async with world.store.run("t") as run:
        assert await nap(run) == "rested"
    assert world.slept == []


async def test_what_was_slept_before_a_crash_counts(world: World) -> None:
    world.dies_asleep = True
    async with world.doomed("t") as run:
        await run.sleep(25)
    async with world.store.run("t") as run:
        await run.sleep(25)
    assert world.slept == []


async def test_the_earliest_of_several_sleeps_wakes_the_thread(world: World) -> None:
    async def nap(run: holdfast.Run, hours: int) -> int:
        await run.sleep(timedelta(hours=hours))
        return hours

    woken: list[int] = []

    @world.durable()
    async def agent() -> list[int]:
        woken.append(1)
        return await world.gather(*(nap(world.api.current(), hours) for hours in (3, 1, 2)))

    with pytest.raises(holdfast.Suspended):
        await agent.run("t")
    while not (await world.store.recover()).completed:
        world.clock.advance(3601)
    assert len(woken) == 4 or world.name == "blocking"  # threads may come too late to sleep at once


@pytest.mark.parametrize("duration", [-1, "long", True])
async def test_a_sleep_that_is_none_is_refused(world: World, duration: Any) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.ConfigurationError):
            await run.sleep(duration)


async def names_of_open(world: World) -> list[str]:
    return [request.name for request in await world.store.requests()]


async def test_a_request_whose_posted_answer_was_not_consumed_yet_is_not_waited_for(world: World) -> None:
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await run.ask("refund", {"amount": 40})
    await world.store.answer(caught.value.requests[0].id, value="yes")
    with pytest.raises(holdfast.Suspended, match="is waiting for an answer to request") as caught:
        async with world.store.run("t") as run:
            await run.ask("refund", {"amount": 41})
    assert [request.payload for request in caught.value.requests] == [{"amount": 41}]
    assert [request.payload for request in await world.store.requests()] == [{"amount": 41}]


async def test_a_run_that_sleeps_while_its_only_answer_waits_can_be_resumed_at_once(world: World) -> None:
    async def nap_or_ask(run: holdfast.Run, *, asks: bool) -> Any:
        return (await run.ask("refund")).value if asks else await run.sleep(timedelta(hours=1))

    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await nap_or_ask(run, asks=True)
    await world.store.answer(caught.value.requests[0].id, value="yes")
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await nap_or_ask(run, asks=False)
    assert (caught.value.requests, await names_of_open(world)) == ((), [])
    assert (await world.store.thread("t")).status == "working"
    assert (await world.store.recover(lambda _run: None)).resumed == ("t",)


def test_an_answered_request_of_a_branch_that_its_task_group_cancelled_is_not_listed_as_open(world: World) -> None:
    if not isinstance(world, AwaitableWorld):
        return

    delay = 0

    @holdfast.durable(store=world.store, name="group of questions")
    async def agent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_late())
            group.create_task(holdfast.ask("other"))

    async def ask_late() -> None:
        for _ in range(delay):
            await asyncio.sleep(0.001)
        await holdfast.ask("answered")

    async def scenario() -> None:
        nonlocal delay
        outcome = await agent.start("t")
        assert sorted(request.name for request in outcome.requests) == ["answered", "other"]
        await world.store.answer(next(each.id for each in outcome.requests if each.name == "answered"), value=1)
        delay = 10_000
        outcome = await agent.start("t")
        assert [request.name for request in outcome.requests] == await names_of_open(world) == ["other"]

    world.play(scenario())
