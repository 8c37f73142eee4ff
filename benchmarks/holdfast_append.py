"""Holdfast told what is new: `store.append`, one item to the list of steps per checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contender import Contender
from benchmarks.holdfast_options import StoreOptions
from benchmarks.workloads import THREAD, State, empty_conversation


class HoldfastAppend(Contender):
    family = "holdfast"

    def __init__(self, options: StoreOptions, steps: list[State], thread: str = THREAD) -> None:
        self.options, self.steps, self.thread = options, steps, thread
        self.name = f"Holdfast append, {options.label}"
        self.durability = options.durability

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.join(self.options.open_blocking(directory))

    def join(self, store: Any) -> None:
        """Begin the thread in this store, which others may use as well."""
        self.store = store
        self.first_seq = store.save(self.thread, empty_conversation()).seq

    def step(self, index: int) -> None:
        self.store.append(self.thread, "steps", self.steps[index % len(self.steps)])

    def finish(self) -> None:
        self.store.close()

    def load(self) -> State:
        self.store = self.options.open_blocking(self.directory)
        return self.store.latest(self.thread).state

    def restore(self, index: int) -> State:
        return self.store.get(self.thread, self.first_seq + index + 1).state
