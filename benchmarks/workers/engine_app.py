"""The program on an engine: `python -m benchmarks.workers.engine_app DIRECTORY ENGINE` is a worker of it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

MODULE = "benchmarks.workers.engine_app"
LEASE = 1


class Program:
    """Functions whose store is a directory's."""

    def __init__(self, directory: Path, engine: str | None) -> None:
        import holdfast

        self.directory = directory
        self.store = holdfast.open(directory / "holdfast.db", engine=engine)
        self.story = holdfast.durable(store=self.store, name="story", lease=LEASE)(self._story)
        self.many = holdfast.durable(store=self.store, name="many", lease=LEASE)(self._many)

    async def _story(self) -> None:
        """Eight steps of 200 KB, in the middle of which the worker is killed; an approval; a timer."""
        import holdfast

        for number in range(8):
            await holdfast.current().step(f"step {number}", self._large, number)
        await holdfast.confirm("go on?")
        await holdfast.sleep(LEASE + 0.5)

    async def _large(self, number: int) -> str:
        mark = self.directory / "killed here"
        if number == 4 and not mark.exists():
            mark.touch()
            await asyncio.sleep(3600)
        return "x" * 200_000

    async def _many(self, count: int) -> None:
        import holdfast

        for number in range(count):
            await holdfast.current().step(f"step {number}", str, number)


async def main(directory: str, engine: str) -> None:
    from holdfast.engines import serving

    program = Program(Path(directory), None)
    functions: list[Any] = [program.story, program.many]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await serving.serve(engine, program.store, functions, stopped=asyncio.Event(), lease=LEASE, grace=5)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
