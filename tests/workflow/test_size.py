"""What checkpoints of workflows cost: a list that grows costs its growth."""

import operator
from typing import Any

import pytest

from holdfast import sync
from holdfast.sync import Executor, WorkflowContext, handler

pytestmark = pytest.mark.large


def text_of(number: int) -> str:
    """A text of 100 bytes that is unlike the others."""
    return "".join(f"{(number * each * 7919) % 99991:05d}" for each in range(1, 21))


class InMessage(Executor):
    count = 0

    @handler
    def take(self, texts: list[str], ctx: WorkflowContext[list[str], int]) -> None:
        if ctx.superstep == self.count:
            ctx.yield_output(len(texts))
        else:
            ctx.send_message([*texts, text_of(ctx.superstep)])


class InState(InMessage):
    @handler
    def take(self, texts: list[str], ctx: WorkflowContext[list[str], int]) -> None:
        ctx.update_state("texts", [text_of(ctx.superstep)])
        if ctx.superstep == self.count:
            ctx.yield_output(ctx.superstep)
        else:
            ctx.send_message(texts)


class InExecutor(InMessage):
    def __init__(self, id: str | None = None) -> None:  # noqa: A002  as in Executor
        super().__init__(id)
        self.texts: list[str] = []

    @handler
    def take(self, texts: list[str], ctx: WorkflowContext[list[str], int]) -> None:
        self.texts.append(text_of(ctx.superstep))
        if ctx.superstep == self.count:
            ctx.yield_output(len(self.texts))
        else:
            ctx.send_message(texts)

    def on_checkpoint_save(self) -> dict[str, Any]:
        return {"texts": self.texts}

    def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.texts = state["texts"]


def stored_bytes(kind: type[InMessage], count: int, width: int = 1) -> int:
    """How many bytes a run of that many supersteps stores."""
    with sync.MemoryStore(compress=False) as store:
        nodes = [kind(f"w{number}") for number in range(width)]
        for node in nodes:
            node.count = count
        if width == 1:
            builder = sync.WorkflowBuilder(nodes[0], store, max_supersteps=9999, reducers={"texts": operator.add})
        else:
            start = InMessage("start")
            start.count = -1
            builder = sync.WorkflowBuilder(start, store, max_supersteps=9999, reducers={"texts": operator.add})
            builder.add_fan_out(start, nodes)
        for node in nodes:
            builder.add_edge(node, node)
        builder.build().run([], thread_id="t")
        return store.thread("t").stored_bytes


@pytest.mark.parametrize("kind", [InMessage, InState, InExecutor])
def test_bytes_are_linear_in_a_list_that_grows_with_each_superstep(kind: type[InMessage]) -> None:
    """For each superstep: 100 bytes of text, what a row costs, and its part of a keyframe. All of it would be 8 MB."""
    assert stored_bytes(kind, 400) < 400 * 500


@pytest.mark.parametrize("kind", [InState, InExecutor])
def test_bytes_are_linear_also_where_executors_run_side_by_side(kind: type[InMessage]) -> None:
    """For each superstep four rows: of three executors that are done, and the superstep's. All of it would be 6 MB."""
    assert stored_bytes(kind, 200, width=3) < 200 * 3500
