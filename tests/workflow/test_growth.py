"""Lists of the state that grow: what is written of them, and what comes back."""

import operator
from typing import Any, Protocol

import pytest

from holdfast import Conflict, NotFound, WorkflowContext, executor
from holdfast.records.type_hints import fits
from holdfast.runs.driver import Driver
from holdfast.runtimes.workflow.decisions import Result, Write, grown
from runs.worlds import World
from workflow.flows import Builder, Flow


@executor(id="agent")
async def agent(number: int, ctx: WorkflowContext[int, int]) -> None:
    ctx.update_state("messages", [{"number": number}, {"reply": number}])
    if number < 4:
        await ctx.send_message(number + 1)
    else:
        await ctx.yield_output(len(ctx.get_state("messages")))


def conversation(world: World, reducer: Any = operator.add) -> Flow:
    builder = Builder(world, agent, name="conversation", reducers={"messages": reducer})
    return builder.add_edge(agent, agent).build()


def messages(count: int) -> list[dict[str, int]]:
    return [{key: number} for number in range(count) for key in ("number", "reply")]


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The top-level keys that each checkpoint writes."""
    found: list[set[str]] = []
    write = Driver.write

    def spying(self: Driver, *lines: Any, change: Any = None, **named: Any) -> Any:
        def noting() -> Any:
            found.append({*change()})
            return change()

        return write(self, *lines, change=change and noting, **named)

    monkeypatch.setattr(Driver, "write", spying)
    return found


async def test_a_list_that_is_concatenated_costs_its_growth_in_time_too(world: World, changed: list[set[str]]) -> None:
    await conversation(world).run(0, thread_id="t")
    assert ["state" in keys for keys in changed] == [True, True, False, False, False, False]


async def test_every_checkpoint_has_the_list_as_it_was(world: World) -> None:
    flow = conversation(world)
    result = await flow.run(0, thread_id="t")
    assert result.outputs == [10]
    found = await flow.checkpoints("t")
    assert [each.state.get("messages", []) for each in found] == [messages(count) for count in range(5, -1, -1)]


async def test_a_fork_of_an_earlier_checkpoint_continues_with_its_list(world: World) -> None:
    flow = conversation(world)
    await flow.run(0, thread_id="t")
    third = (await flow.checkpoints("t"))[2]
    fork = await flow.run(checkpoint_id=third.checkpoint_id)
    assert fork.outputs == [10]
    assert (await flow.checkpoints(fork.thread_id))[0].state["messages"] == messages(5)


async def test_a_fork_under_an_id_is_continued_by_the_same_call(world: World) -> None:
    flow = conversation(world)
    await flow.run(0, thread_id="t")
    third = (await flow.checkpoints("t"))[2]
    for _ in range(2):
        fork = await flow.run(checkpoint_id=third.checkpoint_id, thread_id="fork")
        assert (fork.thread_id, fork.outputs) == ("fork", [10])
    other = (await flow.checkpoints("t"))[3]
    with pytest.raises(Conflict, match=f"thread 'fork' exists and is not a fork of '{other.checkpoint_id}'"):
        await flow.run(checkpoint_id=other.checkpoint_id, thread_id="fork")


async def test_a_checkpoint_that_does_not_exist_is_not_taken_for_the_newest(world: World) -> None:
    flow = conversation(world)
    await flow.run(0, thread_id="t")
    newest = (await flow.checkpoints("t"))[0].checkpoint_id
    number, _, life = newest.rpartition("@")[2].partition(".")
    with pytest.raises(NotFound, match=f"thread 't' has no checkpoint {number}999"):
        await flow.run(checkpoint_id=f"t@{number}999.{life}")
    with pytest.raises(NotFound, match=r"'t@3' is not a checkpoint id; one looks like .*`store.history` lists them"):
        await flow.run(checkpoint_id="t@3")


async def test_a_reducer_of_the_program_is_not_taken_for_a_concatenation(world: World, changed: list[set[str]]) -> None:
    def newest_first(old: list[Any], new: list[Any]) -> list[Any]:
        return [*new, *old]

    flow = conversation(world, newest_first)
    await flow.run(0, thread_id="t")
    assert all("state" in keys for keys in changed)
    found = (await flow.checkpoints("t"))[0].state["messages"]
    assert found[:2] == [{"number": 4}, {"reply": 4}]


def test_only_concatenation_of_lists_is_growth() -> None:
    add, state = {"m": operator.add}, {"m": [1]}
    one, two = Result(writes={"m": Write(deltas=[[2], [3, 4]])}), Result(writes={"m": Write(deltas=[[5]])})
    assert grown(add, state, {"a": one, "b": two}) == {"m": [2, 3, 4, 5]}
    assert grown(add, state, {"a": Result()}) == {}
    assert grown(add, {}, {"a": one}) is None
    assert grown(add, {"m": 1}, {"a": Result(writes={"m": Write(deltas=[2])})}) is None
    assert grown(add, state, {"a": Result(writes={"m": Write([9], is_set=True)})}) is None
    assert grown({"m": operator.iadd}, state, {"a": one}) is None


def test_a_list_of_anything_and_a_list_of_a_protocol_take_every_list() -> None:
    class Named(Protocol):
        name: str

    assert fits([1, "a"], list[Any])
    assert fits([1, "a"], list[object])
    assert fits([1], list[Named])
    assert not fits([1, "a"], list[int])
