"""Checkpoints belong to a graph: what another graph makes of them."""

from typing import Any

import pytest

from holdfast import (
    ConfigurationError,
    Corrupt,
    Executor,
    ExecutorFailed,
    IncompatibleCheckpoint,
    KeyReused,
    WorkflowContext,
    WorkflowExecutor,
    handler,
)
from holdfast.runtimes.workflow.graph import Renaming
from runs.worlds import World
from workflow.flows import Builder, Flow

failing: set[str] = set()
calls: list[str] = []


@pytest.fixture(autouse=True)
def _new_world() -> None:
    failing.clear()
    calls.clear()


class Pass(Executor):
    """Sends on what it gets; keeps how much that was; pays once."""

    def __init__(self, id: str) -> None:  # noqa: A002  as in Executor
        super().__init__(id)
        self.count = 0

    @handler
    async def take(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.count += 1
        await ctx.step("pay", calls.append, self.__class__.__name__ + text, effect=True, on_doubt="retry")
        if text in failing:
            failing.clear()
            raise ConnectionError
        await ctx.send_message(f"{text}{self.count}")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class End(Executor):
    @handler
    async def take(self, texts: list[str], ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output("+".join(texts))


def flow(world: World, *names: str, name: str | None = "w", prefix: str = "", **options: Any) -> Flow:
    """start -> two at once -> end; names of the two may differ."""
    start, end, pair = Pass("start"), End("end"), [Pass(f"{prefix}{each}") for each in names]
    renamed = options.pop("renamed", {})
    builder = Builder(world, start, name=name, **options).add_fan_out(start, pair).add_fan_in(pair, end)
    return builder.migrate(renamed=renamed).build()


async def failed(world: World, *names: str, **options: Any) -> None:
    """A thread whose second superstep is half done."""
    failing.add("x1")
    with pytest.raises(ExecutorFailed):
        await flow(world, *names, **options).run("x", thread_id="t")
    assert len(calls) == 3
    calls.clear()


async def test_a_changed_graph_is_an_error_that_names_the_difference(world: World) -> None:
    await failed(world, "a", "b")
    with pytest.raises(IncompatibleCheckpoint) as refused:
        await flow(world, "a", "c").run("x", thread_id="t")
    text = str(refused.value)
    assert "executor 'b' was removed; executor 'c' was added" in text
    assert "fan_in: a + b -> end was removed" in text
    assert ".migrate(" in text
    with pytest.raises(IncompatibleCheckpoint, match=r"with the graph that wrote it, or use on_incompatible='fresh'"):
        await flow(world, "a", "b", "c").run("x", thread_id="t")
    assert (await world.store.thread("t")).status == "failed"  # as it was found
    assert (await flow(world, "a", "b").run("x", thread_id="t")).outputs == ["x11+x11"]
    assert calls == []


async def test_a_workflow_without_a_name_says_the_same(world: World) -> None:
    await failed(world, "a", "b", name=None)
    with pytest.raises(IncompatibleCheckpoint, match="executor 'b' was removed"):
        await flow(world, "a", "c", name=None).run("x", thread_id="t")


async def test_renamed_executors_resume_with_what_they_kept_did_and_paid(world: World) -> None:
    await failed(world, "a", "b")
    renamed = {"a": "first", "b": "second"}
    result = await flow(world, "first", "second", renamed=renamed).run("x", thread_id="t")
    assert result.outputs == ["x11+x11"]
    assert calls == []  # steps of the unfinished superstep are found under the names of then
    with pytest.raises(IncompatibleCheckpoint, match="executor 'second' was added"):
        await failed_then(world, renamed={"a": "first"})


async def failed_then(world: World, **options: Any) -> None:
    failing.add("x1")
    with pytest.raises(ExecutorFailed):
        await flow(world, "a", "b").run("x", thread_id="other")
    await flow(world, "first", "second", **options).run("x", thread_id="other")


async def test_a_migrated_thread_needs_no_migration_any_more(world: World) -> None:
    await failed(world, "a", "b")
    failing.add("x1")
    with pytest.raises(ExecutorFailed):  # fails again, within the same superstep
        await flow(world, "a", "c", renamed={"b": "c"}).run("x", thread_id="t")
    async for event in flow(world, "a", "c", renamed={"b": "c"}).stream("x", thread_id="t"):
        if event.type == "superstep_completed":
            break
    latest = await flow(world, "a", "c").latest()
    assert (latest.graph_signature_hash, latest.iteration_count) == (flow(world, "a", "c").inner.signature, 2)
    assert (await flow(world, "a", "c").run("x", thread_id="t")).outputs == ["x11+x11"]
    assert calls == []


async def test_a_superstep_that_is_cut_off_again_while_ids_are_swapped_is_resumed_with_what_was_done(
    world: World,
) -> None:
    async for event in flow(world, "a", "b").stream("x", thread_id="t"):
        if event.type == "superstep_completed":
            break
    swapped: dict[str, Any] = {"renamed": {"a": "b", "b": "a"}}
    failing.add("x1")
    with pytest.raises(ExecutorFailed):  # one of the two is done, and noted before the new ids are
        await flow(world, "b", "a", **swapped).run("x", thread_id="t")
    assert len(calls) == 3
    assert (await flow(world, "b", "a", **swapped).run("x", thread_id="t")).outputs == ["x11+x11"]
    assert len(calls) == 3


async def test_an_incompatible_thread_may_start_over(world: World) -> None:
    await failed(world, "a", "b")
    result = await flow(world, "a", "c", on_incompatible="fresh").run("x", thread_id="t")
    assert result.outputs == ["x11+x11"]
    assert len(calls) == 3  # all of it is done again: the old steps are not taken for the new ones
    assert [each.iteration_count for each in await flow(world, "a", "c").checkpoints("t")][:3] == [3, 2, 1]


async def test_a_finished_thread_returns_its_outputs_whatever_the_graph_is_now(world: World) -> None:
    await flow(world, "a", "b").run("x", thread_id="t")
    assert (await flow(world, "a", "c").run("x", thread_id="t")).outputs == ["x11+x11"]


async def test_a_renamed_sub_workflow_takes_its_executors_along(world: World) -> None:
    def outer(name: str, **options: Any) -> Flow:
        inner = WorkflowExecutor(flow(world, "a", "b").inner, id=name)
        return Builder(world, inner, name="outer").migrate(**{"renamed": {}} | options).build()

    failing.add("x1")
    with pytest.raises(ExecutorFailed, match="'old/"):
        await outer("old").run("x", thread_id="t")
    calls.clear()
    with pytest.raises(IncompatibleCheckpoint):
        await outer("new").run("x", thread_id="t")
    assert (await outer("new", renamed={"old": "new"}).run("x", thread_id="t")).outputs == ["x11+x11"]
    assert calls == []


def test_keys_of_a_renamed_sub_workflow_are_renamed_whatever_they_are() -> None:
    stored = {"start": "sub", "nodes": {"sub": {"takes": [], "kind": "workflow"}, "sub/a": {"takes": []}}, "edges": []}
    renaming = Renaming({"sub": "review"}, stored)
    keys = {
        "sub/total": "review/total",
        "sub/a/b": "review/a/b",
        "sub/x/b": "review/x/b",
        "subs/total": "subs/total",
        "total": "total",
    }
    assert {key: renaming.key(key) for key in keys} == keys


async def test_the_signature_is_the_same_in_whatever_order_the_graph_is_built(world: World) -> None:
    a, b, end = Pass("a"), Pass("b"), End("end")

    def big(text: str) -> bool:
        return bool(text)

    one = Builder(world, a).add_edge(a, b, condition=big).add_fan_in([a, b], end).build()
    other = Builder(world, a).add_fan_in([a, b], end).add_edge(a, b, condition=big).build()
    assert one.name == other.name
    changed = Builder(world, a).add_edge(a, b).add_fan_in([a, b], end).build()
    assert changed.name != one.name


async def test_another_message_or_another_workflow_for_a_known_thread_is_refused(world: World) -> None:
    await flow(world, "a", "b").run("x", thread_id="t")
    with pytest.raises(KeyReused, match="was started before, and its message differed"):
        await flow(world, "a", "b").run("y", thread_id="t")
    await world.store.save("saved", {"a": 1})
    with pytest.raises(KeyReused):
        await flow(world, "a", "b").run("x", thread_id="saved")
    with pytest.raises(ConfigurationError, match="has no workflow to resume; pass a message"):
        await flow(world, "a", "b").run(thread_id="none")


async def test_the_outputs_of_another_workflow_are_never_returned(world: World) -> None:
    refund, ship = (Builder(world, end, name=name).build() for name, end in (("refund", End("r")), ("ship", End("s"))))
    await refund.run(["x"], thread_id="t")
    for start in ({"message": ["x"]}, {}):
        with pytest.raises(KeyReused, match="runs workflow 'refund', not 'ship'"):
            await ship.run(**start, thread_id="t")
    with pytest.raises(KeyReused, match="runs workflow 'refund'"):
        await Builder(world, End("s")).build().run(["x"], thread_id="t")
    assert (await refund.run(["x"], thread_id="t")).outputs == ["x"]


async def test_a_damaged_state_is_corrupt(world: World) -> None:
    await failed(world, "a", "b")
    latest = await world.store.latest("t")
    assert latest is not None
    for broken in ({"workflow": "w"}, {**latest.state, "messages": 5}, {**latest.state, "iteration": "two"}):
        await world.store.save("t", broken)
        with pytest.raises(Corrupt, match="does not hold a checkpoint of a workflow"):
            await flow(world, "a", "b").run("x", thread_id="t")
    await world.store.save("t", latest.state)
    assert (await flow(world, "a", "b").run("x", thread_id="t")).outputs == ["x11+x11"]
