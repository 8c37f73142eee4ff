"""triage-agent: its SQLite checkpoint store, saved to directly.

Its checkpoint is a state and a trajectory of steps; the steps of a conversation go where its agents put them. It uses
Python's default journal mode, which was seen to lose acknowledged commits at power loss although it syncs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contender import POWER_LOSS, AwaitableSaver
from benchmarks.workloads import State


class TriageSaver(AwaitableSaver):
    name = "triage SQLite"
    durability = f"{POWER_LOSS}*"
    family = "peer"

    async def open(self, directory: Path) -> None:
        from triage.checkpoint.sqlite import SQLiteCheckpointStore

        self.store = SQLiteCheckpointStore(str(directory / "triage.db"))
        self.trajectory: list[Any] = []

    async def save(self, thread: str, state: State) -> str:
        from triage.checkpoint.base import make_checkpoint

        steps = state.get("steps", ())
        self.trajectory.extend(_to_step(step) for step in steps[len(self.trajectory) :])
        rest = {key: value for key, value in state.items() if key != "steps"}
        checkpoint = make_checkpoint(rest, self.trajectory, run_id=thread)
        await self.store.save(checkpoint)
        return checkpoint.id

    async def latest(self, thread: str) -> State:
        return _to_state(await self.store.latest(thread))

    async def restore(self, thread: str, key: str) -> State:
        return _to_state(await self.store.load(key))

    async def close(self) -> None:
        """Nothing stays open: it connects anew for every call."""


def _to_step(step: State) -> Any:
    from triage.taxonomy import Step

    return Step(
        index=step["index"],
        action=step["role"],
        tool_called=step["tool"],
        tool_input=step["arguments"],
        llm_output=step["content"],
        timestamp=step["at"],
        metadata={"id": step["id"]},
    )


def _to_state(checkpoint: Any) -> State:
    steps = [_from_step(step) for step in checkpoint.trajectory_snapshot]
    return {**checkpoint.state, "steps": steps} if steps else checkpoint.state


def _from_step(step: Any) -> State:
    return {
        "index": step.index,
        "role": step.action,
        "tool": step.tool_called,
        "arguments": step.tool_input,
        "content": step.llm_output,
        "id": step.metadata["id"],
        "at": step.timestamp,
    }
