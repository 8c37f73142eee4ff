"""agent-framework-core: its file checkpoint storage, one JSON file per checkpoint, renamed into place, never synced."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import PROCESS_CRASH, AwaitableSaver
from benchmarks.workloads import State


class AgentFrameworkSaver(AwaitableSaver):
    name = "agent-framework file"
    durability = PROCESS_CRASH
    family = "peer"

    async def open(self, directory: Path) -> None:
        from agent_framework import FileCheckpointStorage

        self.storage = FileCheckpointStorage(directory)

    async def save(self, thread: str, state: State) -> str:
        from agent_framework import WorkflowCheckpoint

        return await self.storage.save(WorkflowCheckpoint(workflow_name=thread, graph_signature_hash="", state=state))

    async def latest(self, thread: str) -> State:
        return (await self.storage.get_latest(workflow_name=thread)).state

    async def restore(self, thread: str, key: str) -> State:
        return (await self.storage.load(key)).state

    async def close(self) -> None:
        """Nothing stays open between calls."""
