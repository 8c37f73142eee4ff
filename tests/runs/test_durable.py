"""Durable functions: started on a thread, continued there, and complete only once."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.runs.durable import registry
from runs.worlds import World


async def test_a_finished_function_returns_its_result_and_executes_nothing(world: World) -> None:
    lives: list[int] = []

    @world.durable()
    async def agent(number: int) -> dict[str, int]:
        lives.append(number)
        return {"twice": number * 2}

    assert await agent.run("t", 21) == {"twice": 42}
    assert await agent.run("t", 21) == {"twice": 42}
    assert await agent.resume("t") == {"twice": 42}
    outcome = await agent.start("t", 21)
    assert (outcome.status, outcome.result, outcome.thread_id) == ("complete", {"twice": 42}, "t")
    assert lives == [21]
    assert (await world.store.thread("t")).status == "complete"


async def test_a_function_continues_where_it_died(world: World) -> None:
    calls: list[str] = []

    @world.step()
    async def work(what: str) -> str:
        calls.append(what)
        if calls == ["plan", "search"]:
            raise KeyboardInterrupt
        return what

    @world.durable()
    async def agent(*whats: str) -> list[str]:
        return [await work(what) for what in whats]

    with pytest.raises(KeyboardInterrupt):
        await agent.run("t", "plan", "search", "write")
    assert (await world.store.thread("t")).status == "working"
    assert await agent.resume("t") == ["plan", "search", "write"]
    assert calls == ["plan", "search", "search", "write"]


async def test_a_failed_function_is_tried_again_by_running_it_again(world: World) -> None:
    lives: list[int] = []

    @world.durable()
    async def agent() -> str:
        lives.append(1)
        if len(lives) == 1:
            raise ValueError("not yet")
        return "done"

    with pytest.raises(ValueError, match="not yet"):
        await agent.run("t")
    assert (await world.store.thread("t")).status == "failed"
    assert await agent.run("t") == "done"


async def test_start_says_what_it_waits_for(world: World) -> None:
    @world.durable()
    async def agent() -> bool:
        return bool(await world.api.confirm("refund", {"amount": 40}))

    @world.durable()
    async def sleeper() -> None:
        await world.api.sleep(1000)

    outcome = await agent.start("t")
    assert (outcome.status, outcome.result, outcome.requests[0].payload) == ("input_required", None, {"amount": 40})
    assert (await sleeper.start("s")).status == "working"
    await world.store.answer(outcome.requests[0].id, "reject")
    assert (await agent.start("t")).result is False


async def refused(world: World, call: Any, error: type[Exception], match: str) -> None:
    """A call that is refused, and leaves the thread as it was."""
    before = await world.store.thread("t")
    with pytest.raises(error, match=match):
        await call
    after = await world.store.thread("t")
    assert (after.status, after.error, after.seq, after.owner, after.wake_at) == (
        before.status,
        before.error,
        before.seq,
        before.owner,
        before.wake_at,
    )


@pytest.mark.parametrize("ending", ["waits", "fails", "ends"])
async def test_other_arguments_or_another_function_are_refused(world: World, ending: str) -> None:
    @world.durable()
    async def agent(number: int) -> None:
        if ending == "waits":
            await world.api.ask("refund", deadline=1000)
        if ending == "fails":
            raise ValueError("no")

    @world.durable()
    async def other(number: int) -> None: ...

    try:
        await agent.run("t", 1)
    except (holdfast.Suspended, ValueError):
        assert ending != "ends"
    await refused(world, agent.run("t", 2), holdfast.KeyReused, "other arguments")
    await refused(world, other.run("t", 1), holdfast.KeyReused, "another thread id")
    await refused(world, other.resume("t"), holdfast.KeyReused, "another thread id")


async def test_the_same_arguments_may_be_spelled_otherwise(world: World) -> None:
    @world.durable()
    async def agent(first: int, second: int = 2) -> int:
        return first + second

    assert await agent.run("t", 1, second=5) == await agent.run("t", first=1, second=5) == await agent.run("t", 1, 5)


async def test_wrong_arguments_are_refused_before_anything_is_recorded(world: World) -> None:
    @world.durable()
    async def agent(number: int) -> int:
        return number

    with pytest.raises(TypeError, match="agent: missing a required argument: 'number'"):
        await agent.run("t")
    with pytest.raises(holdfast.UnstorableValue):
        await agent.run("t", object())
    assert await agent.run("t", 1) == 1


async def test_arguments_are_recorded_alike_however_they_were_given(world: World) -> None:
    @world.durable()
    async def agent(first: Any, /, second: Any, *rest: Any, third: Any = 3, **more: Any) -> list[Any]:
        return [first, second, rest, third, more]

    given = ((1, (2, 3)), {"third": {4}, "other": None})
    await agent.run("t", 1, (2, 3), third={4}, other=None)
    assert await agent.run("t", *given[0], **given[1]) == [1, (2, 3), (), {4}, {"other": None}]
    with pytest.raises(holdfast.UnstorableValue, match="parameter 'second' of agent: an object"):
        await agent.run("u", 1, object())
    with pytest.raises(holdfast.UnstorableValue, match=r"""parameter 'more' of agent\["other"\]: an object"""):
        await agent.run("u", 1, 2, other=object())


async def test_a_thread_keeps_the_defaults_it_was_started_with(world: World) -> None:
    async def at_first(first: int, second: int = 2, *, third: int = 3) -> None:
        raise KeyboardInterrupt

    async def later(first: int, second: int = 20, *, third: int = 30) -> list[int]:
        return [first, second, third]

    started = world.durable(name="with defaults")(at_first)
    with pytest.raises(KeyboardInterrupt):
        await started.run("t", 1)
    with pytest.raises(KeyboardInterrupt):
        await started.run("t", 1, 2, third=3)
    del registry["with defaults"]
    deployed = world.durable(name="with defaults")(later)
    assert await deployed.resume("t") == [1, 2, 3]
    assert await deployed.run("u", 1) == [1, 20, 30]
    del registry["with defaults"]


async def test_a_default_that_cannot_be_stored_is_left_to_the_code(world: World) -> None:
    @world.durable()
    async def agent(number: int, client: Any = print) -> int:
        return number if client is print else 0

    assert await agent.run("t", 7) == await agent.run("t", number=7) == 7


async def test_what_does_not_tell_its_arguments_is_refused_at_once(world: World) -> None:
    async def agent() -> None: ...

    agent.__signature__ = "nonsense"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        world.durable()(agent)


async def test_what_was_never_started_cannot_be_resumed(world: World) -> None:
    @world.durable(labels={"app": "test"})
    async def agent() -> None: ...

    with pytest.raises(holdfast.NotFound):
        await agent.resume("nobody")
    assert not await world.store.threads()
    await world.store.save("t", {"plain": True})
    await refused(world, agent.resume("t"), holdfast.NotFound, "pass its arguments to run")


async def test_without_a_thread_the_function_is_just_called(world: World) -> None:
    @world.durable()
    async def agent(number: int) -> int:
        return number + 1

    with pytest.warns(holdfast.HoldfastWarning, match="nothing is recorded"):
        assert await agent(1) == 2
    assert not await world.store.threads()


async def test_a_function_is_of_its_world(world: World) -> None:
    def plain() -> None: ...

    async def awaitable() -> None: ...

    with pytest.raises(holdfast.ConfigurationError, match=r"plain function; use @holdfast\.sync\.durable"):
        holdfast.durable(plain)  # type: ignore[arg-type]
    with pytest.raises(holdfast.ConfigurationError, match=r"async; use @holdfast\.durable"):
        sync.durable(awaitable)
    with pytest.raises(holdfast.ConfigurationError):
        world.durable(lease=0.1)


async def test_an_async_function_in_the_blocking_world_is_named(world: World) -> None:
    async def look() -> None: ...

    store = getattr(world.store, "_inner", None)
    if store is None:
        return
    with store.run("t") as run, pytest.raises(holdfast.StepFailed, match="look is async"):
        run.step("look", look)
    with store.run("t") as run, pytest.raises(holdfast.StepFailed, match="look is async"):
        run.step("look in time", look, timeout=60)


def test_an_async_step_can_time_out_or_be_cancelled(world: World) -> None:
    if world.name != "awaitable":
        return

    async def forever() -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with world.store.run("t") as run:
            with pytest.raises(holdfast.StepTimeout):
                await run.step("hang", forever, timeout=0.02)
            task = asyncio.ensure_future(run.step("cancelled", forever))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await run.step("cancelled", lambda: "executed again") == "executed again"

    world.play(scenario())


def test_a_cancelled_wait_for_a_result_does_not_execute_the_step_again(world: World) -> None:
    if world.name != "awaitable":
        return
    calls: list[int] = []

    async def scenario() -> None:
        async with world.store.run("t") as run:
            task = asyncio.ensure_future(run.step("work", lambda: calls.append(1)))
            while not calls:
                await asyncio.sleep(0)
            while not task.done() and not run._ledger.claim._unsettled:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await run.step("work", lambda: calls.append(1))
        assert len((await world.store.latest("t")).steps) == 1  # type: ignore[union-attr]

    world.play(scenario())
    assert calls == [1]


def test_a_plain_durable_function_is_recovered_in_the_awaitable_world(world: World) -> None:
    if world.name != "awaitable":
        return

    def agent(number: int) -> int:
        doubled: int = sync.current().step("double", lambda: number * 2)
        return doubled + int(sync.ask("add").value)

    async def scenario() -> None:
        from holdfast.testing.handles import blocking_store

        blocking = blocking_store(world.place.open(), closes=False)
        durable = sync.durable(store=blocking)(agent)
        outcome = durable.start("t", 20)
        await world.store.answer(outcome.requests[0].id, value=2)
        world.clock.now = int(1e16)
        assert (await world.store.recover()).completed == ("t",)
        assert durable.run("t", 20) == 42

    world.play(scenario())


@pytest.mark.parametrize("within", ["the body", "a step"])
async def test_a_function_whose_inner_function_waits_for_a_person_waits_too(world: World, within: str) -> None:
    searched: list[str] = []

    @world.step()
    async def search() -> str:
        searched.append("kelp")
        return "kelp"

    @world.durable()
    async def approval(what: str) -> Any:
        return (await world.api.ask("publish", what)).value

    @world.durable()
    async def essay() -> str:
        found = await search()
        if within == "the body":
            return f"{found}: {await approval.run('inner', found)}"
        step = world.step(name="approval")(approval.run)
        return f"{found}: {await step('inner', found)}"

    with pytest.raises(holdfast.Suspended) as caught:
        await essay.run("outer")
    assert [request.name for request in caught.value.requests] == ["publish"]
    outer = await world.store.thread("outer")
    assert (outer.status, outer.owner, outer.error) == ("working", None, None)
    assert outer.wake_at is not None
    assert (await essay.start("outer")).requests == caught.value.requests
    await world.store.answer(caught.value.requests[0].id, value="yes")
    assert (await world.store.recover()).completed == ("inner",)
    world.clock.advance(31)
    assert (await world.store.recover()).completed == ("outer",)
    assert await essay.resume("outer") == "kelp: yes"
    assert searched == ["kelp"]


async def test_a_function_that_moved_goes_on_under_its_old_name(world: World) -> None:
    @world.durable(name="shop:before")
    async def before(number: int) -> int:
        raise KeyboardInterrupt

    async def after(number: int) -> int:
        return number * 2

    with pytest.raises(KeyboardInterrupt):
        await before.run("t", 21)
    with pytest.raises(holdfast.KeyReused, match="name='shop:before'"):
        await world.durable()(after).resume("t")
    del registry["shop:before"]
    assert await world.durable(name="shop:before")(after).resume("t") == 42
    del registry["shop:before"]


async def test_two_functions_of_one_name_are_refused(world: World) -> None:
    @world.durable(name="the same")
    async def first() -> None: ...

    with pytest.raises(holdfast.ConfigurationError, match="rename one"):

        @world.durable(name="the same")
        async def second() -> None: ...

    del registry["the same"]


@pytest.mark.parametrize("name", ["", 7, "\ud800"])
def test_a_name_is_a_text(name: Any) -> None:
    async def agent() -> None: ...

    with pytest.raises(holdfast.ConfigurationError, match="`name` must be"):
        holdfast.durable(name=name)(agent)
