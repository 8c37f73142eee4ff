"""What the workers of the fleet run: a report of four steps. Each execution of a step appends a line to a file."""

import asyncio
import os

import holdfast

STEPS = 4


def note(thread_id: str, part: int) -> None:
    """Say that a step is executed, and by which process: one write, so that lines of several processes do not mix."""
    log = os.open(os.environ["FLEET_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{thread_id} {part} {os.getpid()}\n".encode())
    os.close(log)


@holdfast.step
async def research(topic: str, part: int) -> str:
    note(holdfast.current().thread_id, part)
    await asyncio.sleep(0.2)  # a model is asked
    return f"part {part} of {topic}"


@holdfast.durable(name="report")
async def report(topic: str) -> str:
    parts = [await research(topic, part) for part in range(STEPS)]
    return ", ".join(parts)
