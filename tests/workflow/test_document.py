"""The document on checkpoints of workflows: each sentence that states a behaviour, and each of its samples."""

import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    Executor,
    ExecutorFailed,
    FileStore,
    IncompatibleCheckpoint,
    MemoryStore,
    Retention,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    handler,
    response_handler,
    sync,
)
from workflow.flows import types_of

if sys.version_info >= (3, 12):
    from typing import override
else:

    def override(method: Any) -> Any:
        """As `typing.override`."""
        return method


class StatefulWorker(Executor):
    """The document's, word for word."""

    def __init__(self, id: str) -> None:  # noqa: A002  the document's
        super().__init__(id=id)
        self._processed_items: list[Any] = []
        self._total_count = 0

    @handler
    async def process(self, item: dict[str, Any], ctx: WorkflowContext[dict[str, Any], str]) -> None:
        self._processed_items.append(item["id"])
        self._total_count += 1

        if self._total_count >= 10:
            await ctx.yield_output(f"Processed {self._total_count} items")
        else:
            await ctx.send_message(item)

    @override
    async def on_checkpoint_save(self) -> dict[str, Any]:
        """Save executor state for checkpointing."""
        return {"processed_items": self._processed_items, "total_count": self._total_count}

    @override
    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Restore executor state from checkpoint."""
        self._processed_items = state.get("processed_items", [])
        self._total_count = state.get("total_count", 0)


class Approver(Executor):
    @handler
    async def take(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
        ctx.set_state("seen", text)
        await ctx.request_info(text, bool)

    @response_handler
    async def answered(self, request: str, response: bool, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{request} {response}")


def stateful(store: Any, **options: Any) -> holdfast.Workflow:
    worker = StatefulWorker(id="worker")
    return WorkflowBuilder(worker, store, name="data-pipeline", **options).add_edge(worker, worker).build()


ITEM = {"id": 7}


async def partly_done(store: holdfast.Store, thread_id: str = "job", steps: int = 3) -> WorkflowCheckpoint:
    """A run that was left after some supersteps, and its newest checkpoint."""
    stream = stateful(store).run(ITEM, thread_id=thread_id, stream=True)
    async for event in stream:
        if event.type == "superstep_completed" and event.data["superstep"] == steps:
            break
    await stream.close()
    latest = await stateful(store).latest()
    assert latest is not None
    return latest


async def test_pause_and_resume_stop_a_workflow_and_continue_later() -> None:
    async with MemoryStore() as store:
        await partly_done(store)
        result = await stateful(store).run(thread_id="job")
        assert result.outputs == ["Processed 10 items"]
        assert types_of(result.events).count("executor_invoked") == 7


async def test_fault_tolerance_recover_from_failures_without_losing_progress() -> None:
    async with MemoryStore() as store:
        workflow = stateful(store)
        process, failures = StatefulWorker.process, [5, 8]

        async def unreliable(self: Any, item: dict[str, Any], ctx: Any) -> None:
            if failures and self._total_count == failures[0]:
                failures.pop(0)
                raise ConnectionError
            await process(self, item, ctx)

        StatefulWorker.process = unreliable  # type: ignore[method-assign]
        try:
            for _ in range(2):
                with pytest.raises(ExecutorFailed):
                    await workflow.run(ITEM, thread_id="job")
            result = await workflow.run(ITEM, thread_id="job")
        finally:
            StatefulWorker.process = process  # type: ignore[method-assign]
        assert result.outputs == ["Processed 10 items"]
        assert types_of(result.events).count("executor_invoked") == 2


async def test_state_inspection_debug_by_examining_saved_state_at_any_point() -> None:
    async with MemoryStore() as store:
        await stateful(store).run(ITEM, thread_id="job")
        checkpoints = await stateful(store).checkpoints("job")
        counts = [each.state["_executor_state"]["worker"]["total_count"] for each in checkpoints]
        assert counts == list(range(10, -1, -1))


async def test_a_checkpoint_is_automatically_created_at_the_end_of_each_super_step() -> None:
    async with MemoryStore() as store:
        result = await stateful(store).run(ITEM, thread_id="job")
        saved = [event.checkpoint_id for event in result.events if event.type == "checkpoint_saved"]
        listed = [each.checkpoint_id for each in await stateful(store).checkpoints("job")]
        assert len(saved) == 11  # at the entry, and after each of ten supersteps
        assert listed == saved[::-1]


async def test_a_checkpoint_captures_messages_state_pending_requests_iteration_count_and_metadata() -> None:
    async with MemoryStore() as store:
        latest = await partly_done(store)
        assert latest.messages == [{"source": "worker", "target": "worker", "data": ITEM}]
        assert latest.state == {"_executor_state": {"worker": {"processed_items": [7, 7, 7], "total_count": 3}}}
        assert (latest.iteration_count, latest.pending_request_info_events) == (3, {})
        assert (latest.workflow_name, latest.version) == ("data-pipeline", 1)
        assert latest.graph_signature_hash == stateful(store).signature
        assert latest.metadata == {"superstep": 3, "executor": "worker"}
        approval = WorkflowBuilder(Approver(), store, name="approval").build()
        await approval.run("x")
        waiting = await approval.latest()
        assert waiting is not None
        assert waiting.state == {"seen": "x"}
        assert [*waiting.pending_request_info_events.values()] == [{"executor_id": "Approver", "data": "x"}]


async def test_provide_a_store_when_building_your_workflow() -> None:
    """The document's first sample; the storage is a store."""

    class Start(Executor):
        @handler
        async def begin(self, item: dict[str, Any], ctx: WorkflowContext[dict[str, Any]]) -> None:
            await ctx.send_message(item)

    async with MemoryStore() as checkpoint_storage:
        start, worker = Start("start"), StatefulWorker("worker")
        workflow = (
            WorkflowBuilder(start_executor=start, store=checkpoint_storage)
            .add_edge(start, worker)
            .add_edge(worker, worker)  # Self-loop
            .build()
        )
        assert (await workflow.run(ITEM)).get_outputs() == ["Processed 10 items"]


async def test_file_storage_persists_checkpoints_to_disk(tmp_path: Path) -> None:
    async with FileStore(tmp_path / "checkpoints") as storage:
        await partly_done(storage)
    async with FileStore(tmp_path / "checkpoints") as storage:
        assert (await stateful(storage).run(thread_id="job")).outputs == ["Processed 10 items"]


async def test_capturing_checkpoints_the_event_of_a_superstep_has_the_id_of_its_checkpoint() -> None:
    async with MemoryStore() as store:
        captured = [
            event.checkpoint_id
            async for event in stateful(store).run(ITEM, stream=True)
            if event.type == "superstep_completed"
        ]
        assert [(await store.load(id_ or "")).id for id_ in captured] == captured


async def test_restoring_from_checkpoints_resumes_from_the_latest(tmp_path: Path) -> None:
    """The document's sample: `get_latest` is `workflow.latest()`."""
    async with FileStore(tmp_path / "checkpoints") as storage:
        await partly_done(storage, steps=6)
        workflow = stateful(storage)
        latest = await workflow.latest()
        printed: list[str] = []
        if latest:
            events = await workflow.run(checkpoint_id=latest.checkpoint_id, stream=True)
            async for event in events:
                if event.type == "output":
                    printed.append(f"Output: {event.data}")  # noqa: PERF401  as the document has it
        assert printed == ["Output: Processed 10 items"]
        assert [info.thread_id for info in await storage.threads()] == ["job"]  # its own thread: it was the head


async def test_a_checkpoint_that_is_not_the_newest_is_continued_in_a_fork() -> None:
    async with MemoryStore() as store:
        await stateful(store).run(ITEM, thread_id="job")
        third = (await stateful(store).checkpoints("job"))[-4]
        assert third.iteration_count == 3
        result = await stateful(store).run(checkpoint_id=third.checkpoint_id)
        assert (result.outputs, result.thread_id != "job") == (["Processed 10 items"], True)
        assert types_of(result.events).count("executor_invoked") == 7
        named = await stateful(store).run(checkpoint_id=third.checkpoint_id, thread_id="branch")
        assert named.thread_id == "branch"
        assert len(await stateful(store).checkpoints("job")) == 11  # the origin is as it was


async def test_executors_can_save_and_restore_internal_state_across_workflow_restarts() -> None:
    async with MemoryStore() as store:
        await partly_done(store)
        worker = StatefulWorker("worker")
        workflow = WorkflowBuilder(worker, store, name="data-pipeline").add_edge(worker, worker).build()
        await workflow.run(thread_id="job")
        assert (worker._total_count, worker._processed_items) == (10, [7] * 10)


async def test_list_checkpoints_of_a_workflow_without_its_graph() -> None:
    async with MemoryStore() as storage:
        await stateful(storage).run(ITEM, thread_id="a")
        await stateful(storage).run(ITEM, thread_id="b")
        checkpoints = await holdfast.workflow_checkpoints(storage, "data-pipeline")
        lines = []
        for cp in checkpoints:
            lines.append(f"ID: {cp.checkpoint_id}")
            lines.append(f"Timestamp: {cp.timestamp}")
            lines.append(f"Iteration: {cp.iteration_count}")
            lines.append(f"State keys: {list(cp.state.keys())}")
        assert len(lines) == 2 * 11 * 4
        latest = await holdfast.latest_workflow_checkpoint(storage, "data-pipeline")
        assert latest is not None
        assert (latest.thread_id, latest.iteration_count) == ("b", 10)
        assert await holdfast.latest_workflow_checkpoint(storage, "other") is None


async def test_the_latest_checkpoint_is_found_without_the_history_of_every_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryStore() as storage:
        for name in "abcde":
            await partly_done(storage, name, steps=2)
        read: list[str] = []
        history = type(storage).history

        def counted(store: Any, thread_id: str, **options: Any) -> Any:
            read.append(thread_id)
            return history(store, thread_id, **options)

        monkeypatch.setattr(type(storage), "history", counted)
        latest = await holdfast.latest_workflow_checkpoint(storage, "data-pipeline")
        assert latest is not None
        assert (latest.thread_id, read) == ("e", ["e"])


async def test_delete_checkpoints_older_than_seven_days() -> None:
    """The document's sample, and the same by a retention."""
    async with MemoryStore() as storage:
        await stateful(storage).run(ITEM, thread_id="job")
        checkpoints = await holdfast.workflow_checkpoints(storage, "data-pipeline")
        cutoff = datetime.now(UTC) - timedelta(days=7)
        for cp in checkpoints:
            cp_time = datetime.fromisoformat(cp.timestamp)
            assert cp_time > cutoff
        for cp in checkpoints[3:]:
            await storage.delete_checkpoint(cp.checkpoint_id)
        left = await holdfast.workflow_checkpoints(storage, "data-pipeline")
        assert [each.checkpoint_id for each in left] == [each.checkpoint_id for each in checkpoints[:3]]
        await storage.prune(Retention(keep_last=1))
        assert len(await holdfast.workflow_checkpoints(storage, "data-pipeline")) <= 3
        assert (await stateful(storage).run(thread_id="job")).outputs == ["Processed 10 items"]


async def test_checkpoint_metadata_inspect_checkpoint_contents() -> None:
    async with MemoryStore() as storage:
        checkpoint_id = (await partly_done(storage)).checkpoint_id
        checkpoint = WorkflowCheckpoint.of(await storage.load(checkpoint_id))
        lines = [
            f"Workflow: {checkpoint.workflow_name}",
            f"Iteration: {checkpoint.iteration_count}",
            f"Messages: {len(checkpoint.messages)}",
            f"Pending requests: {len(checkpoint.pending_request_info_events)}",
        ]
        assert lines == ["Workflow: data-pipeline", "Iteration: 3", "Messages: 1", "Pending requests: 0"]


async def test_automatic_recovery_pattern(tmp_path: Path) -> None:
    """The document's loop, with its random interruptions; `retry=` is the same in one call."""
    dice = random.Random(4)
    storage = FileStore(tmp_path / "checkpoints")
    latest_checkpoint: WorkflowCheckpoint | None = None
    interruptions, completed = 0, ""

    while not completed:
        workflow = stateful(storage)
        if latest_checkpoint:
            event_stream = workflow.run(checkpoint_id=latest_checkpoint.checkpoint_id, stream=True)
        else:
            event_stream = workflow.run(message=ITEM, stream=True)
        async for event in event_stream:
            if event.type == "output":
                completed = f"Workflow completed: {event.data}"
            if event.type == "superstep_completed" and dice.random() < 0.3:
                interruptions += 1
                break
        latest_checkpoint = await workflow.latest()

    assert (completed, interruptions > 1) == ("Workflow completed: Processed 10 items", True)
    assert len(list(await storage.threads())) == 1
    await storage.close()


async def test_changing_the_workflow_structure_invalidates_existing_checkpoints() -> None:
    async with MemoryStore() as store:
        await partly_done(store)
        worker, other = StatefulWorker("worker"), StatefulWorker("other")
        changed = WorkflowBuilder(worker, store, name="data-pipeline").add_edge(worker, worker).add_edge(worker, other)
        with pytest.raises(IncompatibleCheckpoint, match="executor 'other' was added"):
            await changed.build().run(thread_id="job")


async def test_best_practice_provide_a_fallback_to_a_fresh_start_if_restore_fails() -> None:
    async with MemoryStore() as store:
        await partly_done(store)
        worker = StatefulWorker("worker")
        options: Any = {"name": "data-pipeline", "on_incompatible": "fresh"}
        changed = WorkflowBuilder(worker, store, **options).add_edge(worker, worker).add_fan_in([worker], Lists())
        result = await changed.build().run(thread_id="job")
        assert result.outputs[-1] == "Processed 10 items"


class Lists(Executor):
    @handler
    async def take(self, items: list[dict[str, Any]], ctx: WorkflowContext[Any, str]) -> None:
        """Take what a fan-in gathers, and do nothing."""


def test_the_complete_example_gives_int_keys_in_one_process_too(memory_store: sync.Store) -> None:
    from workflow.workers import StartExecutor, WorkerExecutor

    start, worker = StartExecutor(id="start"), WorkerExecutor("worker", Path("/dev/null"), 0)
    built = sync.WorkflowBuilder(start_executor=start, store=memory_store)
    workflow = built.add_edge(start, worker).add_edge(worker, worker).build()
    assert workflow.latest() is None
    events = workflow.run(message=10)
    assert events.get_outputs() == [{number: number * number for number in range(1, 11)}]


async def test_a_recovery_of_the_store_resumes_abandoned_workflows() -> None:
    async with MemoryStore() as store:
        await partly_done(store)
        workflow = stateful(store)
        report = await store.recover(workflow.resume, labels={"workflow": workflow.name})
        assert report.completed == ("job",)
        assert (await store.outcome("job")).result == ["Processed 10 items"]
