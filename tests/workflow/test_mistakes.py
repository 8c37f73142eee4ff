"""Mistakes that show only when a workflow runs: each is named, and nothing vanishes in silence."""

import asyncio
import sys
from subprocess import run
from textwrap import dedent
from typing import Any

import pytest

import holdfast
from holdfast import (
    Executor,
    ExecutorFailed,
    HoldfastWarning,
    IncompatibleCheckpoint,
    WorkflowContext,
    executor,
    handler,
)
from runs.worlds import World
from workflow.flows import Builder, Flow


@executor(id="start")
async def start(number: int, ctx: WorkflowContext[int]) -> None:
    await ctx.send_message(number)


def end(name: str) -> Any:
    @executor(id=name)
    async def take(number: int, ctx: WorkflowContext[Any, int]) -> None:
        await ctx.yield_output(number)

    return take


def is_small(number: int) -> bool:
    return number < 3


async def test_a_message_that_no_case_takes_is_dropped_with_one_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    flow = Builder(world, start).add_switch(start, [(is_small, end("small"))]).build()
    text = r"a message of type int of executor 'start' was dropped.*switch: start -> small\[is_small\]"
    with pytest.warns(HoldfastWarning, match=text):
        assert (await flow.run(5)).outputs == []
    assert "was dropped" not in caplog.text  # a program that logs warnings would print it twice
    assert (await flow.run(6)).outputs == []  # the same place: once
    assert (await flow.run(1)).outputs == [1]


async def test_what_waits_at_a_fan_in_when_the_workflow_ends_is_dropped_with_one_warning(world: World) -> None:
    @executor(id="all")
    async def gather(numbers: list[int], ctx: WorkflowContext[Any, int]) -> None: ...

    @executor(id="other")
    async def other(number: int, ctx: WorkflowContext[int]) -> None: ...

    @executor(id="one")
    async def one(number: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(number)

    flow = Builder(world, start).add_fan_out(start, [one, other]).add_fan_in([one, other], gather).build()
    text = r"fan_in: one \+ other -> all: messages \(int\) from 'one' were dropped.*because 'other' sent nothing"
    with pytest.warns(HoldfastWarning, match=text):
        assert (await flow.run(5)).outputs == []
    await flow.run(6)


async def test_a_handler_that_returns_something_is_warned_of(world: World) -> None:
    class Returns(Executor):
        @handler
        async def take(self, number: int, ctx: WorkflowContext[Any, int]) -> Any:
            await ctx.yield_output(number)
            return number

    with pytest.warns(HoldfastWarning, match="executor 'Returns': take returned int, which is ignored"):
        assert (await Builder(world, Returns()).build().run(5)).outputs == [5]


async def test_a_step_that_is_not_awaited_is_an_error_that_names_it() -> None:
    class Forgets(Executor):
        @handler
        async def take(self, number: int, ctx: WorkflowContext[Any, int]) -> None:
            await asyncio.gather(ctx.step("one", abs, 1), ctx.step("one", abs, 1))
            ctx.step("charge", abs, number)  # type: ignore[unused-awaitable,unused-ignore]
            await ctx.yield_output(number)

    async with holdfast.MemoryStore() as store:
        text = r"executor 'Forgets': take did not await ctx.step\('charge'\), so it was not executed"
        with pytest.raises(ExecutorFailed, match=text):
            await holdfast.WorkflowBuilder(Forgets(), store).build().run(5)


class Hooked(Executor):
    failing: str

    @handler
    async def take(self, number: int, ctx: WorkflowContext[Any, int]) -> None:
        await ctx.yield_output(number)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        if self.failing == "on_checkpoint_save":
            raise LookupError("shelf")
        return {}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        if self.failing == "on_checkpoint_restore":
            raise LookupError("shelf")


@pytest.mark.parametrize("hook", ["on_checkpoint_save", "on_checkpoint_restore"])
async def test_a_hook_that_fails_is_named_with_its_executor(world: World, hook: str) -> None:
    hooked = Hooked("hooked")
    hooked.failing = hook
    with pytest.raises(ExecutorFailed, match=f"{hook} of executor 'hooked' failed: LookupError: shelf"):
        await Builder(world, hooked).build().run(5, thread_id="t")
    hooked.failing = ""
    assert (await Builder(world, hooked).build().run(5, thread_id="t")).outputs == [5]


async def test_a_handler_that_raises_a_cancellation_itself_fails_and_its_run_is_not_cancelled() -> None:
    @executor
    async def torn(number: int, ctx: WorkflowContext[Any, int]) -> None:
        raise asyncio.CancelledError

    async with holdfast.MemoryStore() as store:
        with pytest.raises(ExecutorFailed, match=r"executor 'torn' .*CancelledError"):
            await holdfast.WorkflowBuilder(torn, store).build().run(5, thread_id="t")
        assert (await store.thread("t")).status == "failed"


async def test_a_fork_that_another_graph_refuses_is_not_made(world: World) -> None:
    def flow(name: str) -> Flow:
        return Builder(world, start, name="w").add_edge(start, end(name)).build()

    await flow("a").run(5, thread_id="t")
    (*_, first) = await flow("a").checkpoints("t")
    with pytest.raises(IncompatibleCheckpoint, match=r"checkpoint 't@.*executor 'a' was removed"):
        await flow("b").run(checkpoint_id=first.checkpoint_id)
    assert [info.thread_id for info in await world.store.threads()] == ["t"]


ABANDONED = """
import asyncio
import holdfast

@holdfast.executor
async def count(number: int, ctx: holdfast.WorkflowContext[int, int]) -> None:
    await ctx.send_message(number + 1)

async def main():
    builder = holdfast.WorkflowBuilder(count, holdfast.MemoryStore())
    workflow = builder.add_edge(count, count).build()
    {stream} = workflow.run(1, stream=True)
    for _ in range(20):
        await anext({stream})

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["stream", "main.stream"])
def test_a_stream_that_is_abandoned_ends_in_silence(name: str) -> None:
    """One that is collected before its loop ends, and one that the loop closes."""
    script = dedent(ABANDONED.format(stream=name))
    done = run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def is_large(number: int) -> bool:
    return number > 90


def no_target(_number: int, _ids: list[str]) -> list[str]:
    return []


DROPPED = r"a message of type int of executor 'start' was dropped at switch: start -> large\[is_large\], because no c"


@pytest.mark.parametrize("beside", ["an edge that takes it", "a selection of none"])
async def test_a_message_that_a_switch_drops_is_warned_of_whatever_other_edges_do(world: World, beside: str) -> None:
    builder, tap = Builder(world, start), end("tap")
    is_taken = beside == "an edge that takes it"
    builder.add_edge(start, tap) if is_taken else builder.add_multi_selection(start, [tap], no_target)
    with pytest.warns(HoldfastWarning, match=DROPPED):
        result = await builder.add_switch(start, [(is_large, end("large"))]).build().run(5)
    assert result.outputs == ([5] if is_taken else [])


async def test_a_message_that_the_choice_of_a_switch_does_not_take_is_warned_of(world: World) -> None:
    @executor(id="untyped")
    async def untyped(number: int, ctx: WorkflowContext[Any]) -> None:
        await ctx.send_message(number)

    @executor(id="words")
    async def words(word: str, ctx: WorkflowContext[Any]) -> None: ...

    builder = Builder(world, untyped).add_edge(untyped, end("tap")).add_switch(untyped, [(is_small, words)])
    text = r"dropped at switch: untyped -> words\[is_small\], because no handler of 'words' accepts it"
    with pytest.warns(HoldfastWarning, match=text):
        assert (await builder.build().run(1)).outputs == [1]


async def test_the_warning_of_a_message_to_one_target_names_the_edges_to_that_target_only(world: World) -> None:
    @executor(id="one")
    async def one(number: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(number, target_id="large")

    builder = Builder(world, one).add_edge(one, end("small"), is_small).add_edge(one, end("large"), is_large)
    text = r"of executor 'one' to 'large' was dropped at edge: one -> large\[is_large\], because no condition sends it"
    with pytest.warns(HoldfastWarning, match=text):
        assert (await builder.build().run(1)).outputs == []


@pytest.mark.filterwarnings("error::holdfast.HoldfastWarning")
async def test_a_loop_that_ends_by_its_condition_with_an_output_is_not_warned_of(world: World) -> None:
    @executor(id="count")
    async def count(number: int, ctx: WorkflowContext[int, int]) -> None:
        await ctx.yield_output(number)
        await ctx.send_message(number + 1)

    assert (await Builder(world, count).add_edge(count, count, is_small).build().run(1)).outputs == [1, 2]


@pytest.mark.filterwarnings("error::holdfast.HoldfastWarning")
async def test_a_handler_may_return_what_a_call_of_its_context_returned() -> None:
    @executor
    async def short(number: int, ctx: WorkflowContext[Any, int]) -> Any:
        return ctx.yield_output(number)

    async with holdfast.MemoryStore() as store:
        assert (await holdfast.WorkflowBuilder(short, store).build().run(5)).outputs == [5]
