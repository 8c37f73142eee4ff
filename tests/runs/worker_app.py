"""An app for worker processes. Each execution of a step is a line in a file, which no crash takes back."""

import asyncio
import os
import signal
import time
from pathlib import Path

import holdfast
from holdfast import sync

VERSION, SINCE = int(os.environ.get("APP_VERSION", "1")), int(os.environ.get("APP_SINCE", "0"))


def note(text: str) -> None:
    """Append a line to the log of executions, in one write."""
    with Path(os.environ["APP_LOG"]).open("a") as log:
        log.write(f"{text}\n")


@holdfast.step
async def work_on(name: str, number: int) -> int:
    note(f"{name} {number}")
    await asyncio.sleep(float(os.environ.get("APP_STEP", "0.02")))
    return number


@holdfast.durable(version=VERSION, since=SINCE or None)
async def count(name: str, steps: int) -> list[int]:
    """Do some steps, and tell which version began the thread and which ran it."""
    for number in range(steps):
        await work_on(name, number)
    note(f"{name} by {VERSION} for {holdfast.current().version}")
    return [steps, holdfast.current().version]


@holdfast.durable
async def deadly() -> None:
    """Kill the process that runs it."""
    note("deadly")
    os.kill(os.getpid(), signal.SIGKILL)


@sync.step
def block(seconds: float) -> None:
    note("blocks")
    time.sleep(seconds)


@sync.durable
def stubborn(seconds: float) -> None:
    """A plain function that cannot be cancelled."""
    block(seconds)
