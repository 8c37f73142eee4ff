"""Streams of events: what they tell, and what becomes of a run whose stream is left."""

import asyncio
from time import sleep
from typing import Any

import pytest

import holdfast
from holdfast import (
    ConfigurationError,
    Executor,
    ExecutorFailed,
    RunCancelled,
    WorkflowContext,
    handler,
    response_handler,
)
from holdfast.ports import BlockingPorts, iterate_blocking
from runs.worlds import World
from workflow.flows import Builder, Flow, types_of


class Count(Executor):
    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        if number < 0:
            raise ValueError(number)
        await ctx.yield_output(number)
        if number:
            await ctx.send_message(number - 1)


def counter(world: World) -> Flow:
    count = Count()
    return Builder(world, count, name="count").add_edge(count, count).build()


async def test_a_stream_tells_what_happens_and_its_outputs_are_stored_by_then(world: World) -> None:
    events = [event async for event in counter(world).stream(1, thread_id="t")]
    step = ["superstep_started", "executor_invoked", "executor_completed", "checkpoint_saved", "output"]
    step += ["superstep_completed"]
    assert types_of(events) == ["started", "checkpoint_saved", "status", *step, *step, "status"]
    assert [event.data for event in events if event.type == "output"] == [1, 0]
    completed = [event for event in events if event.type == "superstep_completed"]
    assert [event.checkpoint_id for event in completed] == [
        each.checkpoint_id for each in reversed((await counter(world).checkpoints("t"))[:2])
    ]
    assert (await world.store.load(completed[0].checkpoint_id or "")).metadata == {"superstep": 1, "executor": "Count"}


async def test_the_stream_of_a_finished_thread_gives_its_outputs_again(world: World) -> None:
    await counter(world).run(2, thread_id="t")
    events = [event async for event in counter(world).stream(2, thread_id="t")]
    assert [(event.type, event.data) for event in events][1:] == [
        ("output", 2),
        ("output", 1),
        ("output", 0),
        ("status", "complete"),
    ]


async def test_what_a_consumer_does_to_an_event_changes_nothing_that_is_stored(world: World) -> None:
    class Lists(Executor):
        @handler
        async def take(self, numbers: list[int], ctx: WorkflowContext[Any, list[int]]) -> None:
            await ctx.yield_output(numbers)
            await ctx.request_info(numbers)

        @response_handler
        async def answered(self, asked: list[int], _response: str, ctx: WorkflowContext[Any, list[int]]) -> None:
            await ctx.yield_output(asked)

    flow = Builder(world, Lists()).build()
    async for event in flow.stream([1], thread_id="t"):
        if event.type in {"output", "request_info"}:
            event.data.append("changed")
    (request,) = (await world.store.outcome("t")).requests
    await world.store.answer(request.id, value="yes")
    async for event in flow.stream(thread_id="t"):
        if event.type == "output":
            event.data.append("changed")
    assert (await flow.run(thread_id="t")).outputs == [[1], [1]]


async def test_a_stream_that_is_left_releases_its_thread_which_is_resumed(world: World) -> None:
    flow = counter(world)
    async for event in flow.stream(3, thread_id="t"):
        if event.type == "superstep_completed":
            break
    result = await flow.run(3, thread_id="t")
    assert result.outputs == [3, 2, 1, 0]
    assert [event.data for event in result.events if event.type == "output"] == [2, 1, 0]


async def test_a_loop_that_is_left_releases_the_thread_though_the_stream_is_still_referred_to(world: World) -> None:
    count = Count()
    flow = Builder(world, count, wait=2).add_edge(count, count).build()
    stream = flow.inner.run(3, thread_id="t", stream=True)
    if world.name == "awaitable":
        async for _ in stream:
            break
    else:
        for _ in stream:
            break
    assert (await flow.run(3, thread_id="t")).outputs == [3, 2, 1, 0]


async def test_a_failure_is_told_and_then_raised(world: World) -> None:
    seen: list[Any] = []

    async def drain() -> None:
        async for event in counter(world).stream(-1, thread_id="t"):
            seen.append(event)  # noqa: PERF401  kept when it raises

    with pytest.raises(ExecutorFailed):
        await drain()
    assert types_of(seen)[-2:] == ["executor_failed", "failed"]
    assert isinstance(seen[-2].data, ValueError)


async def test_a_stream_may_be_awaited_and_drained(world: World) -> None:
    stream = counter(world).inner.run(2, thread_id="t", stream=True)
    if world.name == "awaitable":
        assert await stream is stream
        result = await stream.result()
        await stream.close()
    else:
        result = stream.result()
        stream.close()
    assert (result.status, result.outputs) == ("complete", [2, 1, 0])


async def test_a_stream_that_was_left_has_no_result(world: World) -> None:
    stream = counter(world).inner.run(2, thread_id="t", stream=True)

    async def leave() -> None:
        if world.name == "awaitable":
            await anext(stream)
            await stream.close()
            await stream.result()
        else:
            next(stream)
            stream.close()
            stream.result()

    with pytest.raises(ConfigurationError, match="closed before its end"):
        await leave()
    assert (await counter(world).run(thread_id="t")).outputs == [2, 1, 0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "run needs a message to start with"),
        ({"checkpoint_id": "t@1.aa", "message": 1}, "run takes a message to start a workflow, or a checkpoint_id"),
        ({"message": 1, "responses": {"a": 1}}, "responses need the thread_id of the thread that waits"),
        ({"message": 1, "retry": -1}, "`retry` must be an int of at least 0"),
        ({"message": 1, "thread": "t"}, "unknown option 'thread'; did you mean 'thread_id'?"),
    ],
    ids=["nothing", "both", "no thread", "retry", "typo"],
)
async def test_wrong_arguments_of_a_run_are_clear_errors(world: World, options: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        await counter(world).run(**options)


# Runs that are cut off


class Wait(Executor):
    """Is done at once, or waits for an event that never comes."""

    def __init__(self, id: str) -> None:  # noqa: A002  as in Executor
        super().__init__(id)
        self.is_stuck = id == "stuck"
        self.calls: list[str] = []
        self.begun = asyncio.Event()

    @handler
    async def take(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        self.calls.append("begun")
        self.begun.set()
        if self.is_stuck:
            try:
                await asyncio.Event().wait()
            finally:
                self.calls.append("cut off")
        await ctx.yield_output(self.id)


def stuck(store: Any) -> tuple[holdfast.Workflow, list[Wait]]:
    nodes = [Wait("quick"), Wait("stuck")]

    @holdfast.executor
    async def start(number: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(number)

    return holdfast.WorkflowBuilder(start, store, name="w").add_fan_out(start, nodes).build(), nodes


async def test_a_stream_that_is_left_in_the_middle_of_a_superstep_cuts_off_what_runs_and_keeps_what_is_done() -> None:
    async with holdfast.MemoryStore() as store:
        workflow, nodes = stuck(store)
        async for event in workflow.run(1, thread_id="t", stream=True):
            if event.type == "executor_completed" and event.executor_id == "quick":
                break
        nodes[1].is_stuck = False
        result = await workflow.run(thread_id="t")
        assert result.outputs == ["quick", "stuck"]
        assert [each.calls for each in nodes] == [["begun"], ["begun", "cut off", "begun"]]


async def test_a_run_that_is_cancelled_leaves_its_thread_to_be_resumed() -> None:
    async with holdfast.MemoryStore() as store:
        workflow, nodes = stuck(store)
        task = asyncio.ensure_future(workflow.run(1, thread_id="t"))
        await nodes[1].begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        info = await store.thread("t")
        assert (info.status, info.lease) == ("working", None)
        nodes[1].is_stuck = False
        assert (await workflow.run(thread_id="t")).outputs == ["quick", "stuck"]
        assert nodes[1].calls == ["begun", "cut off", "begun"]


async def test_a_workflow_that_is_cancelled_from_outside_stops_before_its_next_superstep(world: World) -> None:
    seen: list[str] = []

    async def drain() -> None:
        async for event in counter(world).stream(9, thread_id="t"):
            seen.append(event.type)
            if seen.count("superstep_completed") == 2 and seen[-1] == "superstep_completed":
                await world.store.cancel("t")

    with pytest.raises(RunCancelled):
        await drain()
    assert seen.count("superstep_completed") == 2
    assert (await world.store.thread("t")).status == "cancelled"
    with pytest.raises(RunCancelled):
        await counter(world).run(9, thread_id="t")


def test_branches_on_threads_run_to_their_end_when_they_are_left() -> None:
    begun, ended = list[int](), list[int]()

    async def branch(number: int) -> int:
        begun.append(number)
        sleep(number / 50)  # noqa: ASYNC251  there is no loop
        ended.append(number)
        return number

    branches = iterate_blocking(BlockingPorts().side_by_side([branch(number) for number in range(5)]))
    assert next(branches) == 0
    branches.close()
    assert len(begun) > 1
    assert sorted(ended) == sorted(begun)
