"""Agents and workflows that any process runs by their name: submitted, resumed by `recover`, with a place."""

import asyncio
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.stores.agenda import entry_of
from patience import GIVE_UP_SECONDS
from runs.test_submitting import head_of

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with sync.open(tmp_path / "holdfast.db") as opened:
        yield opened


def clerk(store: Any, name: str, **options: Any) -> Any:
    def work(task: str) -> str:
        calls.append(task)
        return task.upper()

    return sync.Agent(work, store=store, name=name, **options)


class Upper(sync.Executor):
    @sync.handler
    def upper(self, text: str, ctx: sync.WorkflowContext[str, str]) -> None:
        calls.append(text)
        ctx.yield_output(text.upper())


def shouter(store: Any, name: str | None, **options: Any) -> Any:
    return sync.WorkflowBuilder(Upper("upper"), store, name=name, **options).build()


def made(kind: str, store: Any, name: str, **options: Any) -> tuple[Any, str, Any]:
    """An agent or a workflow, the name that its threads record, and its result for "hello"."""
    if kind == "agent":
        return clerk(store, name, **options), f"agent {name}", "HELLO"
    return shouter(store, name, **options), f"workflow {name}", ["HELLO"]


def run(runtime: Any, text: str, thread_id: str) -> Any:
    found = runtime.run(text, thread_id=thread_id)
    return getattr(found, "outputs", found)


@pytest.mark.parametrize("kind", ["agent", "workflow"])
def test_recover_runs_what_was_submitted(store: Any, kind: str) -> None:
    runtime, name, result = made(kind, store, "recovered", queue="slow", version=3)
    handle = runtime.options(priority=1, labels={"tenant": "acme"}).submit("hello", thread_id="t")
    info = store.thread("t")
    assert (info.status, info.queue, info.priority, info.function, info.version) == ("queued", "slow", 1, name, 0)
    assert info.labels == {kind: "recovered", "tenant": "acme"}
    assert calls == []
    assert store.recover().completed == ("t",)
    assert handle.result() == result
    assert store.thread("t").version == 3
    assert run(runtime, "hello", "t") == result
    assert calls == ["hello"]


@pytest.mark.parametrize("kind", ["agent", "workflow"])
def test_the_same_work_is_the_same_thread_however_it_is_submitted(store: Any, kind: str) -> None:
    name = f"{kind} same"
    store.submit(name, "t", ("hello",))  # before this program has it
    runtime, _, result = made(kind, store, "same")
    store.submit(name, "t", ("hello",))
    assert runtime.submit("hello", thread_id="t").thread_id == "t"
    assert store.thread("t").row_count == 1
    with pytest.raises(holdfast.KeyReused):
        runtime.submit("other", thread_id="t")
    assert run(runtime, "hello", "t") == result
    runtime.submit("hello", thread_id="t")
    assert run(runtime, "hello", "direct") == result
    assert runtime.submit("hello", thread_id="direct").result(0) == result
    for wrong in [(("hello", 1),), (("hello",), {"more": 1})]:
        with pytest.raises(holdfast.ConfigurationError, match="one argument"):
            store.submit(name, "wrong", *wrong)
    assert runtime.submit("new").thread_id.startswith(f"{kind}-")


@pytest.mark.parametrize("kind", ["agent", "workflow"])
def test_a_direct_run_has_a_place_from_which_another_process_resumes_it(store: Any, kind: str) -> None:
    runtime, name, result = made(kind, store, "direct", queue="slow", version=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.runs.run.Run.complete", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            runtime.run("hello", thread_id="t")
    info = store.thread("t")
    assert (info.status, info.queue, info.function, info.version) == ("working", "slow", name, 2)
    assert entry_of(head_of(store, "t")) is not None
    assert store.recover().completed == ("t",)
    assert run(runtime, "hello", "t") == result


def test_keywords_are_not_recorded_so_a_run_with_some_has_no_place(store: Any) -> None:
    def work(task: str, tone: str = "plain") -> str:
        return f"{tone} {task}"

    agent = sync.Agent(work, store=store, name="toned")
    assert agent.run("hello", thread_id="t", tone="warm") == "warm hello"
    assert agent.run("hello", thread_id="u") == "plain hello"
    assert (store.thread("t").queue, store.thread("u").queue) == (None, "default")


def test_an_agent_that_only_its_caller_can_run_is_not_submitted(store: Any) -> None:
    def needs(task: str, tone: str) -> str:
        return f"{tone} {task}"

    def yields(task: str) -> Any:
        yield task

    for function, why in ((needs, "needs tone"), (yields, "yields")):
        with pytest.raises(holdfast.ConfigurationError, match=why):
            sync.Agent(function, store=store).submit("hello", thread_id="t")
    with pytest.raises(holdfast.NotFound):
        store.thread("t")


def test_a_workflow_checks_the_message_and_leaves_threads_of_others_alone(store: Any) -> None:
    mine, other = shouter(store, "mine"), shouter(store, "other")
    with pytest.raises(holdfast.ConfigurationError, match="handles str, not int"):
        mine.submit(3, thread_id="t")
    mine.submit("hello", thread_id="t")
    with pytest.raises(holdfast.KeyReused, match="runs workflow mine, not workflow other"):
        other.run("hello", thread_id="t")
    assert store.thread("t").status == "queued"


def test_a_workflow_thread_of_an_earlier_version_resumes(store: Any) -> None:
    workflow = shouter(store, "old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow._runnable, "name", "workflow")
        assert workflow.run("hello", thread_id="t").outputs == ["HELLO"]
        workflow.submit("hello", thread_id="u")
    assert workflow.run("hello", thread_id="t").outputs == ["HELLO"]
    assert workflow.run("hello", thread_id="u").outputs == ["HELLO"]


def test_wrong_terms_of_service_are_refused(store: Any) -> None:
    for wrong in ({"queue": ""}, {"version": 0}, {"since": 2}):
        for make in (clerk, shouter):
            with pytest.raises(holdfast.ConfigurationError):
                make(store, "wrong", **wrong)


def test_the_awaitable_world_runs_its_own(tmp_path: Path) -> None:
    async def work(task: str) -> str:
        return task.upper()

    class Shout(holdfast.Executor):
        @holdfast.handler
        async def shout(self, text: str, ctx: holdfast.WorkflowContext[str, str]) -> None:
            await ctx.yield_output(text.upper())

    async def main() -> Any:
        async with holdfast.open(tmp_path / "holdfast.db") as store:
            agent = holdfast.Agent(work, store=store, name="awaitable")
            workflow = holdfast.WorkflowBuilder(Shout("shout"), store, name="awaitable").build()
            handles = [await agent.submit("a", thread_id="a"), await workflow.submit("b", thread_id="b")]
            await workflow.options(delay=60).submit("c", thread_id="c")
            with sync.open(tmp_path / "holdfast.db") as blocking:
                assert set((await asyncio.to_thread(blocking.recover)).skipped) == {"a", "b"}
            assert set((await store.recover()).completed) == {"a", "b"}
            return [await handle.result() for handle in handles]

    assert asyncio.run(main()) == ["A", ["B"]]


@pytest.mark.parametrize("kind", ["agent", "workflow"])
def test_a_worker_runs_blocking_work_at_once_on_threads(tmp_path: Path, kind: str) -> None:
    both = Barrier(2)

    def meet(task: str) -> str:
        both.wait(GIVE_UP_SECONDS)
        return task.upper()

    class Meet(sync.Executor):
        @sync.handler
        def meet(self, text: str, ctx: sync.WorkflowContext[str, str]) -> None:
            ctx.yield_output(meet(text))

    with sync.open(tmp_path / "holdfast.db") as store:
        runtime: Any = (
            sync.Agent(meet, store=store, name="meeting")
            if kind == "agent"
            else sync.WorkflowBuilder(Meet("meet"), store, name="meeting").build()
        )
        handles = [runtime.submit(name, thread_id=name) for name in ("a", "b")]
        sync.Worker(store, functions=[runtime]).run(once=True)
        assert [handle.result() for handle in handles] == (["A", "B"] if kind == "agent" else [["A"], ["B"]])
