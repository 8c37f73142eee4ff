"""techrevati-runtime: `put` of its SQLite saver, the part of `run_turn` that writes the checkpoint."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import POWER_LOSS, Saver
from benchmarks.workloads import State


class TechrevatiSaver(Saver):
    name = "techrevati put"
    durability = POWER_LOSS
    family = "peer"

    def open(self, directory: Path) -> None:
        from techrevati.runtime.checkpoint import SqliteSaver

        self.saver = SqliteSaver(directory / "techrevati.db")

    def save(self, thread: str, state: State) -> str:
        return self.saver.put(thread, state).id

    def latest(self, thread: str) -> State:
        return self.saver.get(thread).state

    def restore(self, thread: str, key: str) -> State:
        return self.saver.get(thread, key).state

    def close(self) -> None:
        self.saver.close()
