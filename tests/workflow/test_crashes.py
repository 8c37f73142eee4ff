"""A workflow is killed at every point, and in pairs of points; it always ends the same."""

import operator
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Corrupt, Executor, Suspended, handler, response_handler, sync
from holdfast.runtimes.workflow.branch import Branch
from holdfast.testing import crash_everywhere
from kinds import ON_DISK, new_place
from rounds import points, rounds
from workflow.flows import Builder

paid: dict[str, str] = {}


def pay(what: str, idempotency_key: str) -> str:
    """A payment that happens once for each key."""
    paid.setdefault(idempotency_key, what)
    return f"paid {what}"


class Start(Executor):
    @handler
    async def take(self, number: int, ctx: holdfast.WorkflowContext[int]) -> None:
        await ctx.send_message(number)


class Work(Executor):
    """Pays, adds to the shared state, and counts down by itself."""

    def __init__(self, id: str) -> None:  # noqa: A002  as in Executor
        super().__init__(id)
        self.done: dict[int, str] = {}

    @handler
    async def take(self, number: int, ctx: holdfast.WorkflowContext[int | str]) -> None:
        self.done[number] = await ctx.step("pay", pay, f"{self.id} {number}", effect=True)
        ctx.update_state("total", 1)
        if number > 1:
            await ctx.send_message(number - 1, target_id=self.id)
        else:
            await ctx.send_message(", ".join(self.done.values()))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"done": self.done}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.done = state["done"]


class Gather(Executor):
    """Asks whether to go on with what a fan-in gathered."""

    @handler
    async def take(self, texts: list[str], ctx: holdfast.WorkflowContext[str]) -> None:
        await ctx.request_info({"texts": texts}, bool)

    @response_handler
    async def answered(
        self,
        request: dict[str, Any],
        response: bool,
        ctx: holdfast.WorkflowContext[str],
    ) -> None:
        await ctx.send_message(f"{'; '.join(request['texts'])}: {response}")


class End(Executor):
    @handler
    async def take(self, text: str, ctx: holdfast.WorkflowContext[Any, str]) -> None:
        ctx.set_state("end", text.upper())
        await ctx.yield_output(text)


def graph(world: Any, store: Any) -> Any:
    """Fan-out to a sub-workflow and a self-loop, fan-in, a request, an end."""
    options: dict[str, Any] = {"reducers": {"total": operator.add}, "store": store}
    inner = Work("inner")
    sub = Builder(world, inner, name="sub", **options).add_edge(inner, inner, is_number).add_edge(inner, End())
    start, loop, gather, end = Start("start"), Work("loop"), Gather("gather"), End("end")
    node = holdfast.WorkflowExecutor(sub.build().inner)
    return (
        Builder(world, start, name="outer", **options)
        .add_fan_out(start, [loop, node])
        .add_edge(loop, loop, is_number)
        .add_fan_in([loop, node], gather)
        .add_edge(gather, end)
        .build()
        .inner
    )


def is_number(message: Any) -> bool:
    return isinstance(message, int)


def ended(result: holdfast.WorkflowResult) -> Any:
    if result.status == "input_required":
        raise Suspended("it waits", thread_id=result.thread_id, requests=result.requests)
    return result.outputs


async def awaitable_workflow(store: holdfast.Store) -> Any:
    return ended(await graph(_World("awaitable"), store).run(2, thread_id="t"))


def blocking_workflow(store: sync.Store) -> Any:
    return ended(graph(_World("blocking"), _Inner(store)).run(2, thread_id="t"))


async def streamed_workflow(store: holdfast.Store) -> Any:
    stream = graph(_World("awaitable"), store).run(2, thread_id="t", stream=True)
    async for _ in stream:
        pass
    return ended(await stream.result())


class _World:
    """Only the name of a world."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.store = None


class _Inner:
    def __init__(self, store: sync.Store) -> None:
        self._inner = store


WORKFLOWS: dict[str, Callable[..., Any]] = {
    "awaitable": awaitable_workflow,
    "blocking": blocking_workflow,
    "streamed": streamed_workflow,
}
RESULT = "paid loop 2, paid loop 1; paid inner 2, paid inner 1: True"


def check() -> None:
    """Each payment happened once."""
    assert sorted(paid.values()) == ["inner 1", "inner 2", "loop 1", "loop 2"]


@pytest.mark.faults
@pytest.mark.parametrize("name", ["awaitable", "blocking", pytest.param("streamed", marks=pytest.mark.slow)])
def test_a_workflow_ends_the_same_wherever_it_is_killed(name: str) -> None:
    options: dict[str, Any] = {"pairs": rounds(2, 100), "max_points": points(25)}
    report = crash_everywhere(WORKFLOWS[name], before=paid.clear, after=check, **options)
    assert report.result == [RESULT]
    assert len(report.points) > 60


@pytest.mark.faults
@pytest.mark.parametrize("kind", ON_DISK)
def test_a_workflow_on_disk_ends_the_same_wherever_it_is_killed(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"pairs": rounds(0, 5), "max_points": points(12)}
    place = partial(new_place, kind, tmp_path)
    crash_everywhere(blocking_workflow, before=paid.clear, after=check, place=place, **options)


async def _note_without_state(self: Branch, line: Any, saved: Any) -> None:
    await self._step.driver.write(line, journal=True)
    self._step.saved = {**self._step.saved, self._node.id: saved}


@pytest.mark.faults
def test_a_broken_workflow_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: here executors are noted without what they saved."""
    monkeypatch.setattr(Branch, "_record", _note_without_state)
    with pytest.raises((AssertionError, Corrupt)):
        crash_everywhere(blocking_workflow, before=paid.clear, after=check, pairs=0, limit=1)
