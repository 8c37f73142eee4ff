"""The state of an agent, whoever changes it; and the task, which no attempt changes for the next."""

from typing import Any

from agent.agents import agent, stored
from holdfast import RecoveryAction, Step
from runs.worlds import World


async def test_what_is_appended_within_an_agent_is_kept_by_the_next_update(world: World) -> None:
    async def worker(_task: str, *, update_state: Any, record_step: Any) -> None:
        update_state({"a": 1})
        await stored(record_step(Step(action="1")))
        await world.api.append("messages", "hello")
        update_state({"b": 2})
        await stored(record_step(Step(action="2")))
        await world.api.append("messages", "there")
        update_state({"c": 3})
        await stored(record_step(Step(action="3")))

    await agent(world, worker).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {"a": 1, "messages": ["hello", "there"], "b": 2, "c": 3}


async def test_what_is_appended_after_an_update_that_is_not_stored_yet_is_kept(world: World) -> None:
    async def worker(_task: str, *, update_state: Any, record_step: Any) -> None:
        update_state({"a": 1})
        await world.api.append("messages", "hello")
        await world.api.append("messages", "there")
        await stored(record_step(Step(action="1")))

    await agent(world, worker).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {"a": 1, "messages": ["hello", "there"]}


async def test_a_replaced_state_is_the_whole_state(world: World) -> None:
    async def worker(_task: str, *, update_state: Any, replace_state: Any, record_step: Any) -> None:
        update_state({"a": 1})
        await world.api.append("messages", "hello")
        replace_state({"b": 2})
        update_state({"c": 3})
        await stored(record_step(Step(action="1")))
        update_state({"d": 4})

    await agent(world, worker).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {"b": 2, "c": 3, "d": 4}


async def test_what_an_attempt_does_to_its_task_is_not_the_next_ones(world: World) -> None:
    seen: list[Any] = []

    async def worker(task: dict[str, str]) -> str:
        seen.append(dict(task))
        task.pop("question")
        if len(seen) == 1:
            raise ConnectionError
        return "done"

    task = {"question": "why?"}
    assert await agent(world, worker, policy=RecoveryAction.RETRY).run(task, thread_id="t") == "done"
    assert seen == [{"question": "why?"}] * 2
    assert task == {"question": "why?"}
