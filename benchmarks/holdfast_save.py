"""Holdfast as a saver of whole states: `store.save`, blocking and awaited."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import AwaitableSaver, Saver
from benchmarks.holdfast_options import StoreOptions
from benchmarks.workloads import State


class HoldfastSaver(Saver):
    family = "holdfast"

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.name = f"Holdfast save, {options.label}"
        self.durability = options.durability

    def open(self, directory: Path) -> None:
        self.store = self.options.open_blocking(directory)

    def save(self, thread: str, state: State) -> str:
        return self.store.save(thread, state).id

    def latest(self, thread: str) -> State:
        return self.store.latest(thread).state

    def restore(self, thread: str, key: str) -> State:
        return self.store.load(key).state

    def close(self) -> None:
        self.store.close()


class AwaitableHoldfastSaver(AwaitableSaver):
    family = "holdfast"

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.name = f"Holdfast save (awaited), {options.label}"
        self.durability = options.durability

    async def open(self, directory: Path) -> None:
        self.store = self.options.open_awaitable(directory)

    async def save(self, thread: str, state: State) -> str:
        return (await self.store.save(thread, state)).id

    async def latest(self, thread: str) -> State:
        return (await self.store.latest(thread)).state

    async def restore(self, thread: str, key: str) -> State:
        return (await self.store.load(key)).state

    async def close(self) -> None:
        await self.store.close()
