"""langgraph's DeltaChannel (beta), through the saver: what its loop writes for a channel annotated with it.

Per step the new items (`put_writes`) and a checkpoint without the channel (`put`), two commits; every hundredth
checkpoint, its default, holds a snapshot of the whole list. A load replays the writes since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from benchmarks.contender import POWER_LOSS, Contender
from benchmarks.peer_langgraph import checkpoint_of, config_of, open_saver
from benchmarks.workloads import THREAD, State, empty_conversation

SNAPSHOT_FREQUENCY = 100


def extended(value: list[State], writes: Sequence[list[State]]) -> list[State]:
    """The reducer: the list with all writes since, at once."""
    return value + [step for write in writes for step in write]


class LanggraphDelta(Contender):
    name = "langgraph DeltaChannel"
    durability = POWER_LOSS
    family = "peer"

    def __init__(self, steps: list[State]) -> None:
        self.steps = steps
        self.ids: list[str] = []

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.saver = open_saver(directory)
        self._put(0, empty_conversation(), parent=None)

    def step(self, index: int) -> None:
        parent = self.ids[-1]
        writes = [("steps", [self.steps[index]])]
        self.saver.put_writes(config_of(THREAD, parent), writes, str(uuid4()))
        self._put(index + 1, self._channels(index + 1), parent)

    def finish(self) -> None:
        self.saver.conn.close()

    def load(self) -> State:
        self.saver = open_saver(self.directory)
        return self._read(None)

    def restore(self, index: int) -> State:
        return self._read(self.ids[index + 1])

    def _channels(self, count: int) -> State:
        from langgraph.checkpoint.serde.types import _DeltaSnapshot

        channels = {"goal": empty_conversation()["goal"]}
        if count % SNAPSHOT_FREQUENCY == 0:
            channels["steps"] = _DeltaSnapshot(self.steps[:count])
        return channels

    def _put(self, number: int, channels: State, parent: str | None) -> None:
        checkpoint = checkpoint_of(channels)
        metadata = {"source": "loop", "step": number, "parents": {}}
        self.saver.put(config_of(THREAD, parent), checkpoint, metadata, {})
        self.ids.append(checkpoint["id"])

    def _read(self, checkpoint_id: str | None) -> State:
        from langgraph.channels import DeltaChannel

        found = self.saver.get_tuple(config_of(THREAD, checkpoint_id))
        channels = found.checkpoint["channel_values"]
        channel = DeltaChannel(extended, list, snapshot_frequency=SNAPSHOT_FREQUENCY)
        if "steps" in channels:
            return {**channels, "steps": channel.from_checkpoint(channels["steps"]).get()}
        history = self.saver.get_delta_channel_history(config=found.config, channels=["steps"])["steps"]
        channel = channel.from_checkpoint(history["seed"])
        channel.replay_writes(history["writes"])
        return {**channels, "steps": channel.get()}
