"""langgraph: `put` of its SQLite saver, given whole states as the channels of a checkpoint: one commit per save."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.contender import POWER_LOSS, Saver
from benchmarks.workloads import State


class LanggraphSaver(Saver):
    name = "langgraph SQLite"
    durability = POWER_LOSS
    family = "peer"

    def open(self, directory: Path) -> None:
        self.saver = open_saver(directory)

    def save(self, thread: str, state: State) -> str:
        checkpoint = checkpoint_of(state)
        self.saver.put(config_of(thread), checkpoint, {"source": "loop", "step": 0, "parents": {}}, {})
        return checkpoint["id"]

    def latest(self, thread: str) -> State:
        return self.saver.get_tuple(config_of(thread)).checkpoint["channel_values"]

    def restore(self, thread: str, key: str) -> State:
        return self.saver.get_tuple(config_of(thread, key)).checkpoint["channel_values"]

    def close(self) -> None:
        self.saver.conn.close()


def open_saver(directory: Path) -> Any:
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(sqlite3.connect(directory / "langgraph.db", check_same_thread=False))


def checkpoint_of(channel_values: State) -> dict[str, Any]:
    """A checkpoint as the graph's loop makes it, with these channels."""
    from langgraph.checkpoint.base.id import uuid6

    return {
        "v": 4,
        "id": str(uuid6()),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": channel_values,
        "channel_versions": dict.fromkeys(channel_values, 1),
        "versions_seen": {},
        "updated_channels": None,
    }


def config_of(thread: str, checkpoint_id: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}
