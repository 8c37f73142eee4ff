"""Agents that kill their own process after some steps: run as a script. Says first how many steps it recorded."""

import asyncio
import os
import signal
import sys
from typing import Any

import holdfast
from holdfast import Step, sync

COUNT = 12


def die(count: int) -> None:
    os.write(1, str(count).encode())
    os.kill(os.getpid(), signal.SIGKILL)


async def busy(_task: str, *, record_step: Any) -> None:
    """Never lets the event loop work."""
    for number in range(COUNT):
        record_step(Step(action=f"step {number}"))
    die(COUNT)


async def polite(_task: str, *, record_step: Any) -> None:
    for number in range(COUNT):
        record_step(Step(action=f"step {number}"))
        await asyncio.sleep(0)
    die(COUNT)


async def awaited(_task: str, *, record_step: Any, update_state: Any) -> None:
    for number in range(COUNT):
        update_state({"n": number})
        await record_step(Step(action=f"step {number}"))
    die(COUNT)


def plain(_task: str, *, record_step: Any) -> None:
    """On a thread of its own in the awaitable world, and in the blocking world as it is."""
    for number in range(COUNT):
        record_step(Step(action=f"step {number}"))
    die(COUNT)


def main() -> None:
    scene, path = sys.argv[1:]
    if scene == "blocking":
        sync.Agent(plain, store=sync.open(path)).run("task", thread_id="t")
    else:
        made = holdfast.Agent(globals()[scene], store=holdfast.open(path))
        asyncio.run(made.run("task", thread_id="t"))


if __name__ == "__main__":
    main()
