"""The state of an agent, whoever changes it; and the task, which no attempt changes for the next."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast
from agent.agents import agent, doomed_store, stored
from holdfast import RecoveryAction, Step
from holdfast.testing.faults import Crash
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


WRITES: dict[str, Callable[[World], Awaitable[Any]]] = {
    "step": lambda world: world.api.current().step("two", str),
    "effect": lambda world: world.api.current().step("two", str, effect=True),
    "append": lambda world: world.api.append("messages", "hello"),
    "checkpoint": lambda world: world.api.checkpoint({"kept": True}),
    "sleep": lambda world: world.api.sleep(0.001),
}


@pytest.mark.parametrize("write", list(WRITES))
async def test_an_update_travels_with_the_next_row_of_any_kind(world: World, write: str) -> None:
    """It was lost: a process that died after `update_state` and two steps of the run came back with no state."""
    found: list[Any] = []
    store = doomed_store(world)

    async def worker(_task: str, *, update_state: Any, restored_state: Any = None) -> None:
        if restored_state is not None:
            found.append(restored_state)
            return
        update_state({"one": 1, "deep": {"two": [2]}})
        await WRITES[write](world)
        world.die_at_next_write()
        await world.api.current().step("three", str)

    with pytest.raises(Crash):
        await agent(world, worker, store).run("t", thread_id="t")
    world.clock.advance(60)
    await agent(world, worker).run("t", thread_id="t")
    (state,) = found
    assert (state["one"], state["deep"]) == (1, {"two": [2]})
    assert state.get("messages") == (["hello"] if write == "append" else None)


async def test_an_update_is_made_to_states_of_every_shape(world: World) -> None:
    """Cells that do not change are kept; states that lie in one cell are made anew."""
    shapes: list[dict[Any, Any]] = [
        {},
        {"a": 1, "b": {"c": {"d": 1}}, "e": [1]},
        {1: "an int as a key"},
        {str(number): number for number in range(1024)},
        {"a": {str(number): number for number in range(65)}},
    ]
    updates: list[dict[Any, Any]] = [
        {"a": 2},
        {"b": {"c": 3}, "new": {"x": {"y": 1}}},
        {2: "another"},
        {"b": {}, "a": None},
        {str(number): -number for number in range(1000, 1030)},
    ]

    async def worker(task: int, *, replace_state: Any, update_state: Any, record_step: Any) -> None:
        expected = dict(shapes[task])
        replace_state(expected)
        await stored(record_step(Step(action="begin")))
        for update in updates:
            update_state(update)
            expected.update(update)
            assert world.api.current().state == expected
            await stored(record_step(Step(action="step")))
            assert world.api.current().state == expected
            assert list(world.api.current().state) == list(expected)

    for number in range(len(shapes)):
        await agent(world, worker).run(number, thread_id=f"t{number}")
        latest = await world.store.latest(f"t{number}")
        assert latest is not None
        expected = dict(shapes[number])
        for update in updates:
            expected.update(update)
        assert latest.state == expected


async def test_only_a_dict_can_be_updated(world: World) -> None:
    async def worker(_task: str, *, update_state: Any, replace_state: Any) -> None:
        await world.api.checkpoint([1, 2])
        with pytest.raises(holdfast.ConfigurationError, match="is a list, and only a dict has keys to update"):
            update_state({"a": 1})
        replace_state({"a": 1})

    await agent(world, worker).run("t", thread_id="t")
    latest = await world.store.latest("t")
    assert latest is not None
    assert latest.state == {"a": 1}


async def test_a_checkpoint_is_not_taken_for_the_state_before_an_update(world: World) -> None:
    """The very object was known as the content of its cell, though an update had changed that."""
    text = "a text that is " + str(len("long"))

    async def worker(_task: str, *, update_state: Any) -> Any:
        await world.api.checkpoint({"x": text})
        update_state({"x": "new"})
        await world.api.checkpoint({"x": text})
        await world.api.checkpoint({"x": text})
        return world.api.current().state

    assert await agent(world, worker).run("t", thread_id="t") == {"x": text}


async def test_a_checkpoint_takes_the_place_of_a_replacement_that_came_before_it(world: World) -> None:
    async def worker(_task: str, *, replace_state: Any) -> Any:
        replace_state({"a": 1})
        await world.api.checkpoint({"b": 2})
        return world.api.current().state

    assert await agent(world, worker).run("t", thread_id="t") == {"b": 2}


async def test_a_checkpoint_of_something_else_than_a_dict_takes_no_update_along(world: World) -> None:
    async def worker(_task: str, *, update_state: Any) -> Any:
        update_state({"a": 1})
        await world.api.checkpoint([1, 2])
        return world.api.current().state

    assert await agent(world, worker).run("t", thread_id="t") == [1, 2]


async def test_a_row_that_becomes_a_checkpoint_by_an_update_was_not_made_by_hand(world: World) -> None:
    async def worker(_task: str, *, update_state: Any) -> None:
        update_state({"a": 1})
        await world.api.current().step("effect", str, effect=True)

    await agent(world, worker).run("t", thread_id="t")
    assert {info.cause for info in (await world.store.history("t")).items} == {holdfast.Cause.EVENT}
