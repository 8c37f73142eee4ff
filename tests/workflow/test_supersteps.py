"""Supersteps: who receives what, what runs side by side, what is executed again, and how state is merged."""

import operator
from threading import Barrier
from typing import Any

import pytest

from holdfast import (
    ConfigurationError,
    Executor,
    ExecutorFailed,
    SuperstepLimit,
    UnstorableValue,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    sync,
)
from runs.worlds import World
from workflow.flows import Builder, Flow, types_of

calls: list[str] = []
failing: set[str] = set()


@pytest.fixture(autouse=True)
def _new_world() -> None:
    calls.clear()
    failing.clear()


class Pass(Executor):
    """Sends on what it gets, with its id; yields it where nothing follows."""

    @handler
    async def take(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        calls.append(self.id)
        if self.id in failing:
            failing.discard(self.id)
            raise ConnectionError(f"{self.id} is down")
        await ctx.send_message(f"{text}.{self.id}")


class End(Executor):
    """Yields what it gets: a text, or what a fan-in gathered."""

    @handler
    async def one(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(text)

    @handler
    async def many(self, texts: list[str], ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output("+".join(texts))


def diamond(world: World, width: int = 4, **options: Any) -> Flow:
    start, end = Pass("start"), End("end")
    branches = [Pass(f"b{number}") for number in range(width)]
    return Builder(world, start, **options).add_fan_out(start, branches).add_fan_in(branches, end).build()


async def test_a_fan_out_sends_to_all_and_a_fan_in_delivers_a_list_in_the_order_of_its_sources(world: World) -> None:
    result = await diamond(world).run("x", thread_id="t")
    assert result.outputs == ["x.start.b0+x.start.b1+x.start.b2+x.start.b3"]
    assert (result.status, result.thread_id) == ("complete", "t")
    assert [event.data["superstep"] for event in result.events if event.type == "superstep_completed"] == [1, 2, 3]


async def test_one_failing_branch_of_four_is_the_only_one_that_is_executed_again(world: World) -> None:
    flow = diamond(world)
    failing.add("b2")
    with pytest.raises(ExecutorFailed, match=r"'b2'.*superstep 2 of thread 't': ConnectionError: b2 is down") as failed:
        await flow.run("x", thread_id="t")
    assert (failed.value.executor, failed.value.superstep, failed.value.thread_id) == ("b2", 2, "t")
    assert (await world.store.thread("t")).status == "failed"
    calls.clear()
    result = await diamond(world).run("x", thread_id="t")
    assert calls == ["b2"]
    assert result.outputs == ["x.start.b0+x.start.b1+x.start.b2+x.start.b3"]
    assert types_of(result.events).count("executor_replayed") == 3


async def test_all_other_branches_come_to_their_end_before_a_failure_is_raised(world: World) -> None:
    failing.update({"b0", "b3"})
    with pytest.raises(ExecutorFailed, match=r"'b0' \(and 'b3'\)"):
        await diamond(world).run("x", thread_id="t")
    assert sorted(calls) == ["b0", "b1", "b2", "b3", "start"]
    calls.clear()
    await diamond(world).run("x", thread_id="t")
    assert sorted(calls) == ["b0", "b3"]


async def test_retry_resumes_from_the_last_checkpoint_by_itself(world: World) -> None:
    failing.update({"start", "b1"})
    result = await diamond(world).run("x", thread_id="t", retry=2)
    assert sorted(calls) == ["b0", "b1", "b1", "b2", "b3", "start", "start"]
    assert result.outputs == ["x.start.b0+x.start.b1+x.start.b2+x.start.b3"]
    assert types_of(result.events).count("failed") == 2
    failing.add("start")
    with pytest.raises(ExecutorFailed):
        await diamond(world).run("x", thread_id="other", retry=0)


async def test_executors_of_a_superstep_run_at_the_same_time(world: World) -> None:
    barrier = Barrier(3, timeout=20)
    start, end = Pass("start"), End("end")

    def meet(text: str, ctx: Any) -> None:
        barrier.wait()
        ctx.send_message(text)

    branches = [executor(id=name)(meet) for name in "abc"]
    flow = Builder(world, start).add_fan_out(start, branches).add_fan_in(branches, end).build()
    assert (await flow.run("x")).outputs == ["x.start+x.start+x.start"]


async def test_an_edge_takes_what_its_condition_allows(world: World) -> None:
    start, short, long = Pass("start"), End("short"), End("long")

    async def is_long(text: str) -> bool:
        return len(text) > 10

    flow = (
        Builder(world, start)
        .add_edge(start, long, condition=is_long)
        .add_edge(start, short, condition=lambda text: len(text) <= 10, name="is_short")
        .build()
    )
    for text in ("x", "xxxxxxxxxx"):
        result = await flow.run(text)
        invoked = [event.executor_id for event in result.events if event.type == "executor_invoked"]
        assert invoked == ["start", "short" if text == "x" else "long"]


async def test_a_switch_takes_the_first_case_that_is_true_else_its_default(world: World) -> None:
    start, a, b, c = Pass("start"), End("a"), End("b"), End("c")

    def has_a(text: str) -> bool:
        return "a." in text

    def has_b(text: str) -> bool:
        return "b." in text

    flow = Builder(world, start).add_switch(start, [(has_a, a), (has_b, b)], default=c).build()
    for text, target in (("ba", "a"), ("b", "b"), ("z", "c")):
        result = await flow.run(text)
        assert [event.executor_id for event in result.events if event.type == "output"] == [target]


async def test_a_switch_asks_no_case_after_the_first_that_is_true(world: World) -> None:
    def is_text(message: Any) -> bool:
        return isinstance(message, str)

    def is_long(message: Any) -> bool:
        raise TypeError(f"asked about {message!r}")

    start = Pass("start")
    flow = Builder(world, start).add_switch(start, [(is_text, End("text")), (is_long, End("long"))]).build()
    assert (await flow.run("x")).outputs == ["x.start"]


async def test_a_multi_selection_sends_to_the_chosen_targets(world: World) -> None:
    start, targets = Pass("start"), [End("a"), End("b"), End("c")]

    def choose(text: str, ids: list[str]) -> list[str]:
        return [each for each in ids if each in text.split(".", maxsplit=1)[0]]

    flow = Builder(world, start).add_multi_selection(start, targets, choose).build()
    result = await flow.run("ca")
    assert [event.executor_id for event in result.events if event.type == "output"] == ["a", "c"]
    with pytest.raises(ExecutorFailed, match=r"after executor 'start' must choose among the targets .*, got 'z'"):
        await Builder(world, start).add_multi_selection(start, targets, lambda *_: ["z"], name="wrong").build().run("x")


async def test_a_message_goes_to_the_targets_whose_handlers_take_its_type(world: World) -> None:
    class Sorter(Executor):
        @handler
        async def sort(self, items: list[Any], ctx: WorkflowContext[int | str | float]) -> None:
            for item in items:
                await ctx.send_message(item)

    class Ints(Executor):
        @handler
        async def take(self, number: int, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output(f"int {number}")

        @handler
        async def other(self, number: float, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output(f"float {number}")

    sorter, ints, texts = Sorter(), Ints(), End("texts")
    flow = Builder(world, sorter).add_fan_out(sorter, [ints, texts]).build()
    assert (await flow.run([1, "a", 2.5])).outputs == ["int 1", "float 2.5", "a"]
    with pytest.raises(ExecutorFailed, match="'Sorter' sends bytes, but no handler of 'Ints', 'texts' accepts it"):
        await flow.run([b"x"])


async def test_a_message_may_be_sent_to_one_target_only(world: World) -> None:
    class Chooser(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(text, target_id=text)

    start = Chooser()
    flow = Builder(world, start).add_fan_out(start, [End("a"), End("b")]).build()
    assert [each.executor_id for each in (await flow.run("b")).events if each.type == "output"] == ["b"]
    with pytest.raises(ExecutorFailed, match=r"'Chooser' has no edge to 'c', only to \['a', 'b'\]"):
        await flow.run("c")


async def test_a_message_without_an_edge_is_an_error_and_not_lost(world: World) -> None:
    with pytest.raises(ExecutorFailed, match="'start' has no outgoing edge, so the message would be lost"):
        await Builder(world, Pass("start")).build().run("x")


async def test_a_context_that_is_used_after_its_handler_returned_is_an_error(world: World) -> None:
    contexts: list[Any] = []

    class Keeps(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
            contexts.append(ctx)
            await ctx.send_message(text)

    class Late(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext) -> None:
            await contexts[0].send_message(text)

    start = Keeps()
    with pytest.raises(ExecutorFailed, match="executor 'Keeps': send_message after its handler returned would be lost"):
        await Builder(world, start).add_edge(start, Late()).build().run("x")


async def test_what_is_done_to_a_message_after_it_was_sent_reaches_nobody(world: World) -> None:
    class Sender(Executor):
        @handler
        async def take(self, items: list[int], ctx: WorkflowContext[list[int], list[int]]) -> None:
            await ctx.send_message(items)
            items.append(99)
            ctx.set_state("items", items)
            items.append(100)

    class Changer(Executor):
        @handler
        async def take(self, items: list[int], ctx: WorkflowContext[Any, list[int]]) -> None:
            items.append(len(items))
            ctx.get_state("items").append(7)
            await ctx.yield_output(items)
            items.append(8)

    start = Sender()
    flow = Builder(world, start).add_fan_out(start, [Changer("a"), Changer("b")]).build()
    result = await flow.run([1])
    assert result.outputs == [[1, 1], [1, 1]]
    assert (await flow.latest()).state == {"items": [1, 99]}


# State


class Add(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
        ctx.update_state("total", 1)
        ctx.update_state("names", [self.id])
        await ctx.send_message(text)


REDUCERS: dict[str, Any] = {"total": operator.add, "names": operator.add}


async def test_five_parallel_updates_with_a_reducer_are_five(world: World) -> None:
    start, end, adders = Pass("start"), End("end"), [Add(f"a{number}") for number in range(5)]
    built = Builder(world, start, reducers=REDUCERS).add_fan_out(start, adders).add_fan_in(adders, end)
    flow = built.build()
    await flow.run("x")
    assert (await flow.latest()).state == {"total": 5, "names": ["a0", "a1", "a2", "a3", "a4"]}


async def test_updates_without_a_reducer_are_an_error_and_no_lost_update(world: World) -> None:
    start, adders = Pass("start"), [Add(f"a{number}") for number in range(5)]
    flow = Builder(world, start).add_fan_out(start, adders).add_fan_in(adders, End("end")).build()
    with pytest.raises(ExecutorFailed, match="the key 'total' of the state has no reducer"):
        await flow.run("x")


class Log(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
        for part in ("1", "2"):
            ctx.update_state("log", [self.id + part])
            calls.append(" ".join(ctx.get_state("log")))
        await ctx.send_message(text)


async def test_a_reducer_that_changes_its_argument_adds_each_update_once(world: World) -> None:
    a, b, c = Log("a"), Log("b"), Log("c")
    built = Builder(world, a, reducers={"log": operator.iadd}).add_fan_out(a, [b, c]).add_fan_in([b, c], End("end"))
    flow = built.build()
    await flow.run("x")
    assert (await flow.latest()).state == {"log": ["a1", "a2", "b1", "b2", "c1", "c2"]}
    assert sorted(calls) == ["a1", "a1 a2", "a1 a2 b1", "a1 a2 b1 b2", "a1 a2 c1", "a1 a2 c1 c2"]


class Set(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        if self.id in failing:
            ctx.set_state("winner", self.id)
        await ctx.yield_output(ctx.get_state("winner", "nobody"))


async def test_two_executors_that_set_one_key_are_an_error_and_the_thread_goes_on_once_that_is_mended(
    world: World,
) -> None:
    start = Pass("start")
    flow = Builder(world, start).add_fan_out(start, [Set("a"), Set("b")]).build()
    failing.update({"a", "b"})
    with pytest.raises(ExecutorFailed, match="both wrote the key 'winner' of the state in one superstep"):
        await flow.run("x", thread_id="t")
    failing.clear()  # the one that came second is executed again
    result = await flow.run("x", thread_id="t")
    assert sorted(result.outputs) in (["a", "nobody"], ["b", "nobody"])
    assert (await flow.latest()).state["winner"] in {"a", "b"}


async def test_an_executor_sees_its_own_changes_and_not_those_of_its_siblings(world: World) -> None:
    class Both(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
            ctx.update_state("total", 10)
            ctx.update_state("total", 1)
            seen = ctx.get_state("total")
            ctx.set_state(self.id, 5)
            await ctx.yield_output([seen, ctx.get_state(self.id), ctx.get_state("none"), ctx.superstep])

    start = Pass("start")
    flow = Builder(world, start, reducers=REDUCERS).add_fan_out(start, [Both("a"), Both("b")]).build()
    assert (await flow.run("x")).outputs == [[11, 5, None, 2], [11, 5, None, 2]]
    assert (await flow.latest()).state["total"] == 22


# Fan-in buffers, loops, limits


async def test_a_fan_in_keeps_what_came_early_over_a_crash(world: World) -> None:
    """One source is three supersteps away, the other one: what it sent waits in the checkpoint."""
    start, quick, end = Pass("start"), Pass("quick"), End("end")
    slow = [Pass("s1"), Pass("s2"), Pass("s3")]

    def built() -> Flow:
        builder = Builder(world, start).add_fan_out(start, [quick, slow[0]]).add_chain(slow)
        return builder.add_fan_in([quick, slow[-1]], end).build()

    failing.add("s3")
    with pytest.raises(ExecutorFailed):
        await built().run("x", thread_id="t")
    calls.clear()
    assert (await built().run("x", thread_id="t")).outputs == ["x.start.quick+x.start.s1.s2.s3"]
    assert calls == ["s3"]


async def test_a_fan_in_pairs_messages_in_the_order_in_which_they_came(world: World) -> None:
    class Twice(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(f"{text}1{self.id}")
            await ctx.send_message(f"{text}2{self.id}")

    start, sources, end = Pass("start"), [Twice("a"), Twice("b")], End("end")
    flow = Builder(world, start).add_fan_out(start, sources).add_fan_in(sources, end).build()
    assert (await flow.run("x")).outputs == ["x.start1a+x.start1b", "x.start2a+x.start2b"]


class Count(Executor):
    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        calls.append(str(number))
        if number == 0:
            await ctx.yield_output(ctx.superstep)
        else:
            await ctx.send_message(number - 1)


async def test_the_superstep_limit_is_raised_by_a_larger_one_and_the_thread_continues(world: World) -> None:
    count = Count()
    short = Builder(world, count, max_supersteps=3, name="c").add_edge(count, count).build()
    with pytest.raises(SuperstepLimit, match="has messages left after 3 supersteps"):
        await short.run(9, thread_id="t")
    with pytest.raises(SuperstepLimit):
        await short.run(9, thread_id="t")
    longer = Builder(world, count, name="c").add_edge(count, count).build()
    assert (await longer.run(9, thread_id="t")).outputs == [10]
    assert calls == [str(number) for number in range(9, -1, -1)]


# Steps


async def test_a_thread_whose_newest_checkpoint_was_deleted_is_resumed_from_the_one_before(world: World) -> None:
    a, b, c = Pass("a"), Pass("b"), Pass("c")
    flow = Builder(world, a).add_chain([a, b, c, End("end")]).build()
    failing.add("c")
    with pytest.raises(ExecutorFailed):
        await flow.run("x", thread_id="t")
    await world.store.delete_checkpoint((await flow.latest()).checkpoint_id)
    assert (await flow.run(thread_id="t")).outputs == ["x.a.b.c"]
    assert calls == ["a", "b", "c", "b", "c"]


async def test_a_handler_that_fails_after_four_of_five_steps_repeats_none_of_them(world: World) -> None:
    paid: list[tuple[str, str]] = []

    def pay(what: str, idempotency_key: str) -> str:
        paid.append((what, idempotency_key))
        return f"paid {what}"

    class Payer(Executor):
        @handler
        async def pay(self, items: list[str], ctx: WorkflowContext[Any, list[str]]) -> None:
            done = []
            for item in items:
                done.append(await ctx.step("pay", pay, item, effect=True))
                if len(done) == 4 and "crash" in failing:
                    failing.clear()
                    raise ConnectionError
            await ctx.yield_output(done)

    flow = Builder(world, Payer()).build()
    failing.add("crash")
    with pytest.raises(ExecutorFailed):
        await flow.run(list("abcde"), thread_id="t")
    assert (await flow.run(list("abcde"), thread_id="t")).outputs == [[f"paid {each}" for each in "abcde"]]
    assert [what for what, _ in paid] == list("abcde")
    assert len({key for _, key in paid}) == 5


async def test_a_step_that_failed_is_executed_again_when_the_workflow_is_resumed(world: World) -> None:
    tries: list[str] = []

    def flaky(name: str) -> str:
        tries.append(name)
        if len(tries) < 3:
            raise ConnectionError(name)
        return name.upper()

    class Caller(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output(await ctx.step("flaky", flaky, self.id))

    start = Pass("start")
    flow = Builder(world, start).add_fan_out(start, [Caller("a"), Caller("b")]).build()
    with pytest.raises(ExecutorFailed, match="StepFailed"):
        await flow.run("x", thread_id="t")
    assert (await flow.run("x", thread_id="t")).outputs == ["A", "B"]
    assert len(tries) == 4


# Executors that keep something


class Keeper(Executor):
    def __init__(self, id: str) -> None:  # noqa: A002  as in Executor
        super().__init__(id)
        self.seen: list[str] = []

    @handler
    async def take(self, text: str, ctx: WorkflowContext[str, list[str]]) -> None:
        self.seen.append(text)
        if f"{self.id}{len(self.seen)}" in failing:
            failing.clear()
            raise ConnectionError
        if len(self.seen) < 3:
            await ctx.send_message(text, target_id=self.id)
        else:
            await ctx.yield_output(list(self.seen))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Filler(Keeper):
    """Is restored in place."""

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.seen[:] = state["seen"]


async def test_what_a_failed_handler_did_to_its_executor_is_undone(world: World) -> None:
    start, keepers = Pass("start"), [Keeper("a"), Keeper("b")]
    builder = Builder(world, start).add_fan_out(start, keepers)
    flow = builder.add_edge(keepers[0], keepers[0]).add_edge(keepers[1], keepers[1]).build()
    failing.add("b2")
    result = await flow.run("x", thread_id="t", retry=1)
    assert result.outputs == [["x.start"] * 3, ["x.start"] * 3]


@pytest.mark.parametrize("kind", [Keeper, Filler])
async def test_threads_share_nothing_that_executors_keep_one_after_the_other_or_at_once(
    world: World, kind: type[Keeper]
) -> None:
    keeper = kind("k")
    flow = Builder(world, keeper).add_edge(keeper, keeper).build()
    assert (await flow.run("a")).outputs == [["a"] * 3]
    assert (await flow.run("b")).outputs == [["b"] * 3]
    other = Builder(world, keeper, name="other").add_edge(keeper, keeper).build()
    flows = {"c": flow, "d": other, "e": flow, "f": other}
    results = await world.gather(*(each.run(name) for name, each in flows.items()))
    assert [each.outputs for each in results] == [[[each] * 3] for each in "cdef"]
    assert (await other.run("g")).outputs == [["g"] * 3]


async def test_a_sub_workflow_that_is_used_twice_keeps_what_it_keeps_apart(world: World) -> None:
    class Join(Executor):
        @handler
        async def take(self, texts: list[str], ctx: WorkflowContext[str]) -> None:
            await ctx.send_message(texts[0] + "!")

    keeper, join = Keeper("k"), Join("join")
    sub = Builder(world, keeper, name="sub").add_edge(keeper, keeper).build()
    first, second = WorkflowExecutor(sub.inner, id="one"), WorkflowExecutor(sub.inner, id="two")
    flow = Builder(world, first, name="outer").add_chain([first, join, second]).build()
    assert (await flow.run("x")).outputs == [["x!"] * 3]


async def test_what_cannot_be_stored_names_the_executor(world: World) -> None:
    class Bad(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output({"lock": object()})

    with pytest.raises(ExecutorFailed, match=r"'Bad'.*output of executor 'Bad'") as failed:
        await Builder(world, Bad()).build().run("x")
    assert isinstance(failed.value.__cause__, UnstorableValue)


# Sub-workflows


def nested(world: World) -> Flow:
    """start -> sub (first -> two at once -> gathered) -> end."""
    first, gathered = Pass("first"), End("gathered")
    pair = [Pass("p"), Pass("q")]
    sub = Builder(world, first, name="sub").add_fan_out(first, pair).add_fan_in(pair, gathered).build()
    start, end, inner = Pass("start"), End("end"), WorkflowExecutor(sub.inner)
    return Builder(world, start, name="outer").add_chain([start, inner, end]).build()


async def test_a_sub_workflow_is_a_node_that_sends_on_what_it_yields(world: World) -> None:
    assert (await nested(world).run("x")).outputs == ["x.start.first.p+x.start.first.q"]


async def test_a_sub_workflow_checkpoints_with_its_parent(world: World) -> None:
    failing.add("q")
    with pytest.raises(ExecutorFailed, match="'sub/q' of workflow 'outer'"):
        await nested(world).run("x", thread_id="t")
    calls.clear()
    assert (await nested(world).run("x", thread_id="t")).outputs == ["x.start.first.p+x.start.first.q"]
    assert calls == ["q"]


async def test_a_sub_workflow_has_a_state_of_its_own_and_its_outputs_are_those_of_the_whole_at_the_end(
    world: World,
) -> None:
    def adding(name: str) -> Flow:
        add, end = Add("add"), End("end")
        return Builder(world, add, name=name, reducers=REDUCERS).add_edge(add, end).build()

    first, second = (WorkflowExecutor(adding(name).inner) for name in ("one", "two"))
    flow = Builder(world, first, name="outer").add_edge(first, second).build()
    assert (await flow.run("x")).outputs == ["x"]
    assert (await flow.latest()).state == {
        "one/total": 1,
        "one/names": ["add"],
        "two/total": 1,
        "two/names": ["add"],
    }


async def test_no_key_of_the_state_is_taken_for_one_of_a_sub_workflow(world: World) -> None:
    class Writer(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[str]) -> None:
            ctx.set_state("part/total" if text == "part" else "start/total", 1)
            await ctx.send_message(text)

    start, inner = Writer("start"), Builder(world, End("end")).build()
    flow = Builder(world, start).add_edge(start, WorkflowExecutor(inner.inner, id="part")).build()
    assert (await flow.run("other")).outputs == ["other"]
    with pytest.raises(ExecutorFailed, match="the key 'part/total' of the state belongs to the sub-workflow 'part'"):
        await flow.run("part")


def test_a_plain_function_needs_no_await_in_the_awaitable_world_either(memory_store: sync.Store) -> None:
    @executor
    def upper(text: str, ctx: sync.WorkflowContext[str, str]) -> None:
        ctx.yield_output(text.upper())

    result = sync.WorkflowBuilder(upper, memory_store).build().run("x")
    assert result.get_outputs() == ["X"]


async def test_an_async_handler_in_the_blocking_world_is_a_clear_error(world: World) -> None:
    if world.name == "awaitable":
        return
    store: Any = world.store
    with pytest.raises(ExecutorFailed, match=r"take is async; holdfast\.sync takes plain functions"):
        sync.WorkflowBuilder(Pass("p"), store._inner).add_edge("p", "p").build().run("x")


async def test_a_message_that_the_start_does_not_take_is_refused_before_anything_is_written(world: World) -> None:
    with pytest.raises(ConfigurationError, match="the start executor 'Count' handles int, not str"):
        await Builder(world, Count()).build().run("x", thread_id="t")
    assert await world.store.latest("t") is None


async def test_a_reducer_that_fails_is_named_and_the_thread_goes_on_once_it_is_mended(world: World) -> None:
    start, end, adders = Pass("start"), End("end"), [Add("a"), Add("b")]

    def built(total: Any) -> Flow:
        builder = Builder(world, start, name="sums", reducers={**REDUCERS, "total": total})
        return builder.add_fan_out(start, adders).add_fan_in(adders, end).build()

    with pytest.raises(ConfigurationError, match="the reducer of key 'total' failed: ZeroDivisionError"):
        await built(lambda total, _: total / 0).run("x", thread_id="t")
    await built(operator.add).run("x", thread_id="t")
    assert (await built(operator.add).latest()).state["total"] == 2
