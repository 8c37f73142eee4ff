"""The checkpoints of workflows, as their documents name them: listed by workflow and by thread."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast.records.checkpoint import Checkpoint, CheckpointInfo
from holdfast.records.errors import NotFound
from holdfast.records.identity import CheckpointId
from holdfast.runs.driver import Store
from holdfast.runtimes.workflow.snapshot import Snapshot

SUPERSTEP = "superstep"
"""In the metadata of a row: the number of the superstep."""
EXECUTOR_STATE = "_executor_state"
"""In the state of a checkpoint: what executors saved, by id."""
PAGE = 100


class WorkflowCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow after a superstep, with everything that its thread would continue with."""

    checkpoint_id: str
    workflow_name: str
    thread_id: str
    timestamp: str
    """When it was written, in ISO 8601."""
    iteration_count: int
    graph_signature_hash: str
    messages: list[dict[str, Any]]
    """The messages that are delivered next: `source`, `target`, `data`."""
    state: dict[str, Any]
    """The shared state; what executors saved is under `_executor_state`."""
    pending_request_info_events: dict[str, dict[str, Any]]
    """The requests without a response: `executor_id` and `data`."""
    outputs: list[Any]
    metadata: dict[str, Any]
    version: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "WorkflowCheckpoint":
        """Read a checkpoint of a workflow's thread; `Corrupt` if it is of something else."""
        found = Snapshot.of(checkpoint.state, f"checkpoint {checkpoint.id!r}")
        return cls(
            checkpoint_id=checkpoint.id,
            workflow_name=found.workflow,
            thread_id=checkpoint.thread_id,
            timestamp=checkpoint.created_at.isoformat(),
            iteration_count=found.iteration,
            graph_signature_hash=found.signature,
            messages=[{"source": each.source, "target": each.target, "data": each.data} for each in found.messages],
            state={**found.state, **({EXECUTOR_STATE: found.executors} if found.executors else {})},
            pending_request_info_events={
                key: {"executor_id": each.executor, "data": each.data} for key, each in found.requests.items()
            },
            outputs=found.outputs,
            metadata=checkpoint.metadata,
            version=found.version,
        )


async def supersteps(store: Store, thread_id: str) -> AsyncIterator[CheckpointInfo]:
    """The rows of a thread that committed a superstep, the newest first."""
    async for info in _every(await store.history(thread_id, limit=PAGE)):
        if SUPERSTEP in info.metadata:
            yield info


async def _every(page: Any) -> AsyncIterator[Any]:
    while page is not None:
        for item in page:
            yield item
        page = await page.next_page()


async def workflow_checkpoints(
    store: Store, workflow_name: str, thread_id: str | None = None
) -> list[WorkflowCheckpoint]:
    """The checkpoints of a workflow, without its graph: of one thread or of all, the newest first in each."""
    threads = [thread_id] if thread_id is not None else [each async for each in _threads(store, workflow_name)]
    return [WorkflowCheckpoint.of(await store.load(i.id)) for each in threads async for i in supersteps(store, each)]


async def latest_workflow_checkpoint(store: Store, workflow_name: str) -> WorkflowCheckpoint | None:
    """The newest checkpoint of a workflow among all its threads; None if there is none."""
    newest: CheckpointInfo | None = None
    async for thread_id in _threads(store, workflow_name):
        async for info in supersteps(store, thread_id):
            newest = info if newest is None or info.created_at > newest.created_at else newest
            break
    return None if newest is None else WorkflowCheckpoint.of(await store.load(newest.id))


async def _threads(store: Store, workflow_name: str) -> AsyncIterator[str]:
    async for info in _every(await store.threads(labels={"workflow": workflow_name}, limit=PAGE)):
        if info.damaged is None:
            yield info.thread_id


async def continued_thread(store: Store, checkpoint_id: str, thread_id: str | None) -> str:
    """The thread that continues at a checkpoint: its own if that is its newest superstep, else a fork of it.

    A fork that was made of that checkpoint under the same id before is continued itself.
    """
    wanted = CheckpointId.parse(checkpoint_id)
    async for info in supersteps(store, wanted.thread_id):
        newest = CheckpointId.parse(info.id)
        if newest.life == wanted.life and newest.seq <= wanted.seq and thread_id in {None, wanted.thread_id}:
            return wanted.thread_id
        break
    if thread_id is not None and await _is_fork(store, thread_id, checkpoint_id):
        return thread_id
    return await store.fork(checkpoint_id, to=thread_id)


async def _is_fork(store: Store, thread_id: str, checkpoint_id: str) -> bool:
    try:
        return (await store.get(thread_id, 1)).parent_id == checkpoint_id
    except NotFound:
        return False
