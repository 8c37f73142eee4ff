"""Forks of threads that were run: their finished steps are theirs, and what came after is done anew."""

from typing import Any

import pytest

import holdfast
from runs.worlds import World


async def agent_of(world: World, calls: list[str]) -> Any:
    """A durable function of three steps and a question."""

    def work(what: str) -> str:
        calls.append(what)
        return f"{what} {len(calls)}"

    @world.step()
    async def plan() -> str:
        return work("plan")

    @world.step()
    async def write() -> str:
        return work("write")

    @world.durable()
    async def agent() -> list[str]:
        done = [await plan(), await world.api.current().step("search", work, "kelp")]
        done.append((await world.api.ask("go on?")).value)
        return [*done, await write()]

    return agent


async def checkpoint_of(world: World, step: str) -> str:
    """The id of the checkpoint at which a step was recorded."""
    for info in await world.store.history("t"):
        if info.metadata["step"].startswith(step):
            return info.id
    raise AssertionError(step)


async def finish(world: World, agent: Any, thread_id: str, value: str) -> Any:
    outcome = await agent.start(thread_id)
    await world.store.answer(outcome.requests[0].id, value=value)
    return await agent.resume(thread_id)


async def test_steps_before_the_fork_are_not_done_again(world: World) -> None:
    calls: list[str] = []
    agent = await agent_of(world, calls)
    assert await finish(world, agent, "t", "yes") == ["plan 1", "kelp 2", "yes", "write 3"]
    fork = await world.store.fork(await checkpoint_of(world, "plan"))
    assert (await world.store.thread(fork)).status == "idle"
    assert await finish(world, agent, fork, "no") == ["plan 1", "kelp 4", "no", "write 5"]
    assert await agent.resume("t") == ["plan 1", "kelp 2", "yes", "write 3"]
    assert calls == ["plan", "kelp", "write", "kelp", "write"]


async def test_a_fork_with_another_state_keeps_the_steps(world: World) -> None:
    calls: list[str] = []
    agent = await agent_of(world, calls)
    await agent.start("t")
    fork = await world.store.fork(await checkpoint_of(world, "search"), "u", state={"other": True})
    result = await finish(world, agent, fork, "go")
    assert calls == ["plan", "kelp", "write"]
    assert result[:2] == ["plan 1", "kelp 2"]
    checkpoint = await world.store.latest(fork)
    assert checkpoint is not None
    assert checkpoint.state == {"other": True}


async def test_a_fork_of_the_whole_has_the_answer_too(world: World) -> None:
    calls: list[str] = []
    agent = await agent_of(world, calls)
    await finish(world, agent, "t", "yes")
    fork = await world.store.fork(await checkpoint_of(world, "write"), to="u")
    assert await agent.resume(fork) == ["plan 1", "kelp 2", "yes", "write 3"]
    assert len(calls) == 3


@pytest.mark.parametrize("name", ["plan", "search"])
async def test_results_can_be_replaced_by_key_or_name(world: World, name: str) -> None:
    agent = await agent_of(world, [])
    await finish(world, agent, "t", "yes")
    fork = await world.store.fork(await checkpoint_of(world, "search"), results={name: "another"})
    place = ["plan", "search"].index(name)
    found = await finish(world, agent, fork, "yes")
    assert found[place] == "another"
    assert found[1 - place] == ["plan 1", "kelp 2"][1 - place]
    latest = await world.store.latest(fork)
    assert latest is not None
    assert [step.tool_output for step in latest.steps] == [*found[:2], found[3]]


async def test_a_result_that_is_not_there_cannot_be_replaced(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("one", list)
        await run.step("two", list)
        checkpoint = run.checkpoint_id
    assert checkpoint is not None
    with pytest.raises(holdfast.NotFound, match="has no recorded step 'three'; recorded are 'one', 'two'"):
        await world.store.fork(checkpoint, results={"three": 3})


async def test_a_name_of_several_steps_has_to_be_a_key(world: World) -> None:
    @world.step()
    async def work(number: int) -> int:
        return number

    async with world.store.run("t") as run:
        assert [await work(1), await work(2)] == [1, 2]
        checkpoint, keys = run.checkpoint_id, [step.metadata["key"] for step in run.steps]
    assert checkpoint is not None
    with pytest.raises(holdfast.NotFound, match="2 steps named 'work'"):
        await world.store.fork(checkpoint, results={"work": 3})
    fork = await world.store.fork(checkpoint, results={keys[1]: 3})
    async with world.store.run(fork):
        assert [await work(1), await work(2)] == [1, 3]


async def test_what_was_in_doubt_or_asked_is_not_so_in_a_fork(world: World) -> None:
    async with world.doomed("t") as run:
        await run.checkpoint({"n": 1})
        await run.begin_step("pay")
        await run.checkpoint({"n": 2})
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            assert run.in_doubt("pay").key == "pay"
            await run.ask("refund")
    async with world.store.run("t") as run:
        await run.checkpoint({"n": 3})
        checkpoint = run.checkpoint_id
    assert checkpoint is not None
    fork = await world.store.fork(checkpoint, state={"n": 4})
    assert [request.thread_id for request in await world.store.requests(status=None) if request.status == "open"] == [
        "t",
    ]
    async with world.store.run(fork) as run:
        assert run.state == {"n": 4}
        assert not (await run.begin_step("pay")).done
