"""The application of the engine tests: run as `python program.py DIRECTORY ENGINE`, a worker of it.

Each execution of a step writes a line to the file `executed` of the directory.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast.engines import segment, serving

SECRET = "nothing-of-this-may-enter-the-engine"
LEASE = 1
"""Seconds. A sleep that is longer is a timer of the engine."""


def executed(directory: Path) -> list[str]:
    """The steps that were executed, by name, in order."""
    log = directory / "executed"
    return log.read_text().split() if log.exists() else []


class Program:
    """The durable functions of one directory, whose store is there."""

    def __init__(self, directory: Path, engine: str | None) -> None:
        self.directory = directory
        self.store = holdfast.open(directory / "holdfast.db", durability="process", engine=engine)
        self.story = holdfast.durable(store=self.store, name="story", lease=LEASE)(self._story)
        self.many = holdfast.durable(store=self.store, name="many", lease=LEASE)(self._many)
        self.gated = holdfast.durable(store=self.store, name="gated", lease=LEASE)(self._gated)
        self.failing = holdfast.durable(store=self.store, name="failing", lease=LEASE)(self._failing)

    async def step(self, name: str, size: int = 10, pause: float = 0) -> str:
        """Execute one step."""
        return await holdfast.current().step(f"step {name}", self._execute, name, size, pause)

    async def _execute(self, name: str, size: int, pause: float) -> str:
        self.note(name)
        await asyncio.sleep(pause)
        return SECRET + "x" * size

    def note(self, name: str) -> None:
        """Write a line, in one write."""
        with (self.directory / "executed").open("a") as log:
            log.write(f"{name}\n")

    async def _story(self, name: str) -> str:
        for number in range(3):
            await self.step(f"{name}-{number}", 200_000)
        is_approved = await holdfast.confirm("go on?", {"why": SECRET})
        await holdfast.sleep(LEASE + 0.5)
        await self.step(f"{name}-3")
        return f"{SECRET} {is_approved}"

    async def _many(self, name: str, count: int, pause: float) -> int:
        for number in range(count):
            await self.step(f"{name}-{number}", pause=pause)
        return count

    async def _gated(self, name: str) -> str:
        """Wait in the second step until the file `go` is there."""
        await self.step(f"{name}-before")
        await holdfast.current().step("gate", self._gate, name)
        await self.step(f"{name}-after")
        return name

    async def _gate(self, name: str) -> None:
        self.note(f"{name}-gate")
        while not (self.directory / "go").exists():  # noqa: ASYNC110  another process makes it
            await asyncio.sleep(0.02)

    async def _failing(self, name: str) -> None:
        await self.step(f"{name}-0")
        raise ValueError(SECRET)

    def functions(self) -> list[Any]:
        """All of them."""
        return [self.story, self.many, self.gated, self.failing]


async def work(directory: Path, engine: str) -> None:
    """Serve the engine until SIGTERM."""
    program, stopped = Program(directory, None), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await serving.serve(engine, program.store, program.functions(), stopped=stopped, lease=LEASE, grace=5)
    await program.store.close()


if __name__ == "__main__":
    segment.LONGEST_SECONDS = float(os.environ.get("LONGEST_SECONDS", "600"))
    serving.OVERDUE_SECONDS = float(os.environ.get("OVERDUE_SECONDS", "60"))
    serving.LOOK_SECONDS = max(serving.OVERDUE_SECONDS, 2.5)
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
