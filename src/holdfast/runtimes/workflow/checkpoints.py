"""List the checkpoints of workflows, by workflow and by thread."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast.records.checkpoint import Checkpoint, CheckpointInfo
from holdfast.records.thread import ThreadInfo
from holdfast.runs.driver import Store, every, warn_of_damaged
from holdfast.runtimes.workflow.snapshot import Snapshot

PAGE = 100


class WorkflowCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow after a superstep, with everything it resumes from."""

    checkpoint_id: str
    workflow_name: str
    thread_id: str
    timestamp: str
    """When it was written, in ISO 8601."""
    iteration_count: int
    graph_signature_hash: str
    messages: list[dict[str, Any]]
    """The messages to deliver next: `source`, `target`, `data`."""
    state: dict[str, Any]
    """The shared state; the saved states of executors are under `_executor_state`."""
    pending_request_info_events: dict[str, dict[str, Any]]
    """The requests without a response: `executor_id` and `data`."""
    outputs: list[Any]
    metadata: dict[str, Any]
    version: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "WorkflowCheckpoint":
        """Read a checkpoint of a workflow's thread; `Corrupt` if it is not one."""
        found = Snapshot.of(checkpoint.state, f"checkpoint {checkpoint.id!r}")
        return cls(
            checkpoint_id=checkpoint.id,
            workflow_name=found.workflow,
            thread_id=checkpoint.thread_id,
            timestamp=checkpoint.created_at.isoformat(),
            iteration_count=found.iteration,
            graph_signature_hash=found.signature,
            messages=[{"source": each.source, "target": each.target, "data": each.data} for each in found.messages],
            state={**found.state, **({"_executor_state": found.executors} if found.executors else {})},
            pending_request_info_events={
                key: {"executor_id": each.executor, "data": each.data} for key, each in found.requests.items()
            },
            outputs=found.outputs,
            metadata=checkpoint.metadata,
            version=found.version,
        )


async def supersteps(store: Store, thread_id: str) -> AsyncIterator[CheckpointInfo]:
    """Yield the rows of a thread that committed a superstep, the newest first."""
    async for info in every(await store.history(thread_id, limit=PAGE)):
        if "superstep" in info.metadata:
            yield info


async def _threads(store: Store, workflow_name: str) -> list[ThreadInfo]:
    listed = [info async for info in every(await store.threads(labels={"workflow": workflow_name}, limit=PAGE))]
    for info in [each for each in listed if each.damaged is not None][:1]:
        what = f"some checkpoints of workflow {workflow_name!r} may be missing"
        warn_of_damaged(what, info.thread_id, info.damaged)
    return [info for info in listed if info.damaged is None]


async def workflow_checkpoints(
    store: Store, workflow_name: str, thread_id: str | None = None
) -> list[WorkflowCheckpoint]:
    """List the checkpoints of a workflow without its graph: of one thread or of all, the newest first in each."""
    ids = [thread_id] if thread_id else [each.thread_id for each in await _threads(store, workflow_name)]
    return [WorkflowCheckpoint.of(await store.load(info.id)) for id_ in ids async for info in supersteps(store, id_)]


async def latest_workflow_checkpoint(store: Store, workflow_name: str) -> WorkflowCheckpoint | None:
    """Return the newest checkpoint of a workflow over all its threads; None if there is none."""
    newest: CheckpointInfo | None = None
    for thread in sorted(await _threads(store, workflow_name), key=lambda each: each.updated_at, reverse=True):
        if newest is not None and thread.updated_at < newest.created_at:
            break  # the remaining threads have nothing newer
        async for info in supersteps(store, thread.thread_id):
            newest = info if newest is None or info.created_at > newest.created_at else newest
            break
    return None if newest is None else WorkflowCheckpoint.of(await store.load(newest.id))
