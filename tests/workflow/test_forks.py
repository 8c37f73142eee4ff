"""Forks and threads that are refused: nothing is left of them, and nothing that cannot be read is passed over."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import HoldfastWarning, IncompatibleCheckpoint, KeyReused, NotFound
from holdfast.records.head import decode_head, encode_head
from holdfast.records.rows import Swap
from holdfast.sync import MemoryStore, Workflow, WorkflowBuilder, WorkflowContext, executor


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as opened:
        yield opened


@executor
def halve(number: int, ctx: WorkflowContext[int, str]) -> None:
    ctx.yield_output("odd") if number % 2 else ctx.send_message(number // 2)


def halving(store: MemoryStore, name: str = "halving", **options: Any) -> Workflow:
    return WorkflowBuilder(halve, store, name=name, **options).add_edge(halve, halve).build()


def ids(store: MemoryStore) -> list[str]:
    return [info.thread_id for info in store.threads()]


@pytest.mark.parametrize("on_incompatible", ["raise", "fresh"])
def test_a_fork_for_a_workflow_of_another_name_is_not_made(store: MemoryStore, on_incompatible: str) -> None:
    halving(store).run(8, thread_id="t")
    checkpoint = halving(store).checkpoints("t")[2].checkpoint_id
    with pytest.raises(KeyReused, match="runs workflow 'halving', not 'other'"):
        halving(store, "other", on_incompatible=on_incompatible).run(checkpoint_id=checkpoint)
    assert ids(store) == ["t"]


@pytest.mark.parametrize("place", [0, -1])
def test_a_checkpoint_of_something_else_than_a_workflow_is_key_reused(store: MemoryStore, place: int) -> None:
    with store.run("plain") as run:
        run.checkpoint({"x": 1})
        run.checkpoint({"x": 2})
    with pytest.raises(KeyReused, match=r"does not (hold|belong to) a workflow"):
        halving(store).run(checkpoint_id=list(store.history("plain"))[place].id)
    assert ids(store) == ["plain"]


def test_responses_for_a_thread_or_fork_that_does_not_exist_yet_make_none(store: MemoryStore) -> None:
    halving(store).run(8, thread_id="t")
    checkpoint = halving(store).checkpoints("t")[2].checkpoint_id
    with pytest.raises(NotFound, match=r"request fork#1\.abc does not exist yet: run the fork"):
        halving(store).run(checkpoint_id=checkpoint, thread_id="fork", responses={"fork#1.abc": 1})
    with pytest.raises(NotFound, match="thread 'new' does not exist"):
        halving(store).run(8, thread_id="new", responses={"new#1.abc": 1})
    assert ids(store) == ["t"]


def test_an_executor_is_not_renamed_to_one_that_the_thread_has(store: MemoryStore) -> None:
    def flow(*names: str, renamed: dict[str, str]) -> Workflow:
        @executor(id="start")
        def start(number: int, ctx: WorkflowContext[int, str]) -> None:
            ctx.send_message(number)

        ends = [executor(id=name)(halve.function) for name in names]
        builder = WorkflowBuilder(start, store, name="w", max_supersteps=1)
        for end in ends:
            builder.add_edge(start, end).add_edge(end, end)
        return builder.migrate(renamed=renamed).build()

    with pytest.raises(Exception, match="max_supersteps"):
        flow("a", "x", renamed={}).run(8, thread_id="t")
    row = store.thread("t").seq
    with pytest.raises(IncompatibleCheckpoint, match="executors 'a' and 'x' would both be 'x'"):
        flow("x", renamed={"a": "x"}).run(thread_id="t")
    assert store.thread("t").seq == row


@pytest.mark.parametrize("listed", [Workflow.latest, Workflow.checkpoints])
def test_a_thread_that_cannot_be_read_is_warned_of(store: MemoryStore, listed: Any) -> None:
    halving(store).run(1, thread_id="older")
    halving(store).run(1, thread_id="newer")
    backend, key = store._store._backend, b"\0newer"
    stored = backend.heads([key])[0]
    assert stored is not None
    head = decode_head(key, stored)
    damaged = encode_head(key, replace(head, seq=-1))
    assert backend.swap([Swap(key, stored, damaged, head)]) == [True]
    with pytest.warns(HoldfastWarning, match="some checkpoints of workflow 'halving' may be missing.* thread 'newer'"):
        assert listed(halving(store))
