"""What is raced: the interface of a contender, and the two that every whole-state saver shares.

A contender does one workload in one directory. Only its steps are timed, one by one, in slices; several contenders
take turns slice by slice, so that a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.disk import file_bytes, stored_bytes
from benchmarks.workloads import THREAD, Script, State

POWER_LOSS = "P"
PROCESS_CRASH = "C"


class Contender(ABC):
    """One way to do one workload."""

    name: str
    durability: str
    family: str  # holdfast, peer or raw
    directory: Path

    @abstractmethod
    def setup(self, directory: Path) -> None:
        """Open everything; not timed."""

    @abstractmethod
    def step(self, index: int) -> None:
        """One step, acknowledged at the contender's durability when it returns."""

    def slice(self, steps: range) -> list[float]:
        """Do these steps; the seconds that each took."""
        seconds = []
        for index in steps:
            started = perf_counter()
            self.step(index)
            seconds.append(perf_counter() - started)
        return seconds

    @abstractmethod
    def finish(self) -> None:
        """Close everything; not timed."""

    def bytes(self) -> int:
        """What is stored now, without the write-ahead logs that SQLite reuses."""
        return stored_bytes(self.directory)

    def final_bytes(self) -> int:
        """What it came to in the end, logs and free pages included."""
        return file_bytes(self.directory)

    def load(self) -> State | None:
        """The latest state through a fresh handle, or None where the contender keeps no state."""
        return None

    def restore(self, index: int) -> State | None:
        """The state as it was after step `index`, likewise."""
        return None


class Saver(ABC):
    """A blocking store of whole states; a peer needs only this to take part in W1, W2, W3 and W5."""

    name: str
    durability: str
    family: str

    @abstractmethod
    def open(self, directory: Path) -> None: ...

    @abstractmethod
    def save(self, thread: str, state: State) -> Any:
        """Save, and return what `restore` needs to find this checkpoint again."""

    @abstractmethod
    def latest(self, thread: str) -> State: ...

    @abstractmethod
    def restore(self, thread: str, key: Any) -> State: ...

    @abstractmethod
    def close(self) -> None: ...


class AwaitableSaver(ABC):
    """The same for a store whose calls are awaited."""

    name: str
    durability: str
    family: str

    @abstractmethod
    async def open(self, directory: Path) -> None: ...

    @abstractmethod
    async def save(self, thread: str, state: State) -> Any: ...

    @abstractmethod
    async def latest(self, thread: str) -> State: ...

    @abstractmethod
    async def restore(self, thread: str, key: Any) -> State: ...

    @abstractmethod
    async def close(self) -> None: ...


class BlockingSaves(Contender):
    """Any workload as saves of whole states, one blocking call after the other."""

    def __init__(self, saver: Saver, script: Script) -> None:
        self.saver, self.script = saver, script
        self.name, self.durability, self.family = saver.name, saver.durability, saver.family
        self.keys: list[Any] = []

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.saver.open(directory)

    def step(self, index: int) -> None:
        self.keys.append(self.saver.save(THREAD, self.script(index)))

    def finish(self) -> None:
        self.saver.close()

    def load(self) -> State:
        self.saver.open(self.directory)
        return self.saver.latest(THREAD)

    def restore(self, index: int) -> State:
        return self.saver.restore(THREAD, self.keys[index])


class AwaitableSaves(Contender):
    """The same, one awaited call after the other, on an event loop of its own."""

    def __init__(self, saver: AwaitableSaver, script: Script) -> None:
        self.saver, self.script = saver, script
        self.name, self.durability, self.family = saver.name, saver.durability, saver.family
        self.keys: list[Any] = []
        self.runner = asyncio.Runner()

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self._run(self.saver.open(directory))

    def step(self, index: int) -> None:
        self._run(self._step(index))

    def slice(self, steps: range) -> list[float]:
        return self._run(self._slice(steps))

    def finish(self) -> None:
        self._run(self.saver.close())

    def load(self) -> State:
        return self._run(self._load())

    def restore(self, index: int) -> State:
        return self._run(self.saver.restore(THREAD, self.keys[index]))

    async def _step(self, index: int) -> None:
        self.keys.append(await self.saver.save(THREAD, self.script(index)))

    async def _slice(self, steps: range) -> list[float]:
        seconds = []
        for index in steps:
            started = perf_counter()
            await self._step(index)
            seconds.append(perf_counter() - started)
        return seconds

    async def _load(self) -> State:
        await self.saver.open(self.directory)
        return await self.saver.latest(THREAD)

    def _run(self, work: Awaitable[Any]) -> Any:
        return self.runner.run(work)


def saves(saver: Saver | AwaitableSaver, script: Script) -> Contender:
    """The contender that does `script` with this saver."""
    if isinstance(saver, Saver):
        return BlockingSaves(saver, script)
    return AwaitableSaves(saver, script)
