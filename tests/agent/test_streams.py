"""Agents that yield: each item is stored before it is delivered, and delivered again to whoever comes later."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import holdfast
from agent.agents import agent, doomed_store, streamed
from holdfast import RecoveryAction, Step
from holdfast.testing.faults import Crash
from runs.worlds import World


async def words(task: str, *, record_step: Any, update_state: Any, restored_state: Any = None) -> AsyncIterator[str]:
    said = (restored_state or {"said": 0})["said"]
    for number, word in list(enumerate(task.split()))[said:]:
        update_state({"said": number + 1})
        record_step(Step(action=word))
        yield word


async def consume(items: AsyncIterator[Any], take: Callable[[Any], None]) -> None:
    async for item in items:
        take(item)


async def test_a_stream_delivers_what_the_agent_yields_and_delivers_it_again(world: World) -> None:
    made = agent(world, words)
    first = [item async for item in streamed(made, "what holds kelp", thread_id="t")]
    assert first == ["what", "holds", "kelp"]
    assert [item async for item in streamed(made, "what holds kelp", thread_id="t")] == first
    assert await made.run("what holds kelp", thread_id="t") == first
    latest = await world.store.latest("t")
    assert latest is not None
    assert (latest.status, [step.action for step in latest.steps]) == ("complete", first)


async def test_a_stream_that_was_left_goes_on_after_what_was_delivered(world: World) -> None:
    made, got = agent(world, words), list[str]()
    stream = streamed(made, "what holds kelp", thread_id="t")
    async for item in stream:
        got.append(item)
        if len(got) == 2:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    info = await world.store.thread("t")
    assert (info.status, info.lease) == ("working", None)
    assert [item async for item in streamed(made, "what holds kelp", thread_id="t")] == ["what", "holds", "kelp"]


async def test_a_stream_goes_on_in_another_process(world: World) -> None:
    got: list[str] = []

    def heard(item: str) -> None:
        got.append(item)
        if len(got) == 2:
            world.die_at_next_write()

    doomed = agent(world, words, store=doomed_store(world))
    with pytest.raises(Crash):
        await consume(streamed(doomed, "what holds kelp", thread_id="t"), heard)
    world.clock.advance(60)
    assert got == ["what", "holds"]
    again = [item async for item in streamed(agent(world, words), "what holds kelp", thread_id="t")]
    assert again == ["what", "holds", "kelp"]


async def test_a_failing_stream_is_tried_again_and_knows_what_was_delivered(world: World) -> None:
    told: list[int] = []

    async def counting(_task: str, *, recovery: Any = None) -> AsyncIterator[int]:
        told.append(recovery.delivered if recovery else 0)
        for number in range(told[-1], 4):
            yield number
            if number == 1 and len(told) == 1:
                raise ConnectionError("lost")

    made = agent(world, counting, policy=RecoveryAction.RETRY)
    assert [item async for item in streamed(made, "t", thread_id="t")] == [0, 1, 2, 3]
    assert told == [0, 2]


async def test_whoever_consumes_a_stream_is_in_no_run_of_it(world: World) -> None:
    async def asking(_task: str) -> AsyncIterator[str]:
        yield world.api.current().thread_id
        holdfast.record_step(Step(action="within"))
        yield world.api.current().thread_id

    seen = []
    async for item in streamed(agent(world, asking), "t", thread_id="t"):
        seen.append(item)
        with pytest.raises(holdfast.ConfigurationError, match="no run here"):
            world.api.current()
        with pytest.raises(holdfast.ConfigurationError, match="no agent is running here"):
            holdfast.record_step(Step(action="outside"))
    assert seen == ["t", "t"]


async def test_a_stream_that_escalates_raises_where_it_is_consumed(world: World) -> None:
    async def failing(_task: str) -> AsyncIterator[int]:
        yield 1
        raise ConnectionError("lost")

    got: list[int] = []
    with pytest.raises(holdfast.Escalated, match="lost"):
        await consume(streamed(agent(world, failing), "t", thread_id="t"), got.append)
    assert got == [1]


async def test_an_agent_that_yields_nothing_has_no_stream(world: World) -> None:
    async def worker(task: str) -> str:
        return task

    with pytest.raises(holdfast.ConfigurationError, match="does not yield"):
        await consume(streamed(agent(world, worker), "t"), print)


async def test_a_stream_that_recorded_nothing_but_its_items_knows_what_was_delivered(world: World) -> None:
    async def counting(_task: str, *, recovery: Any = None) -> AsyncIterator[int]:
        for number in range(recovery.delivered if recovery else 0, 4):
            yield number

    made = agent(world, counting)
    stream = streamed(made, "t", thread_id="t")
    assert [await anext(stream), await anext(stream)] == [0, 1]
    await stream.aclose()  # type: ignore[attr-defined]
    assert [item async for item in streamed(made, "t", thread_id="t")] == [0, 1, 2, 3]
