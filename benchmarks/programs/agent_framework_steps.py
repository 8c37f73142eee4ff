"""agent-framework: a functional workflow over its file storage, resumed from the newest checkpoint by replay."""

import asyncio
import warnings
from typing import Any

warnings.simplefilter("ignore")  # the functional API says that it is experimental

from agent_framework import FileCheckpointStorage, step, workflow  # noqa: E402
from told import Clock, main, result_of  # noqa: E402

clock: Clock | None = None


class Unfinished(Exception):
    """The agent is to be resumed."""


@step
async def work(index: int) -> dict[str, object]:
    """One step."""
    return result_of(index)


@workflow(name="agent")
async def agent(count: int) -> None:
    """COUNT steps; then, if it is resumed, one more."""
    if clock is not None:
        clock.enter()
    for index in range(count):
        await work(index)
    if clock is None:
        raise Unfinished
    clock.replay_ends()
    await work(count)
    clock.tell()


def built(directory: str) -> tuple[Any, Any]:
    """The workflow and its storage."""
    storage = FileCheckpointStorage(directory)
    return agent.build(checkpoint_storage=storage), storage


def prepare(directory: str, count: int) -> None:
    """A checkpoint after each step."""
    try:
        asyncio.run(built(directory)[0].run(count))
    except Unfinished:
        return


async def _resume(directory: str) -> None:
    running, storage = built(directory)
    newest = await storage.get_latest(workflow_name="agent")
    await running.run(checkpoint_id=newest.checkpoint_id)


def resume(directory: str, _count: int) -> None:
    """Another process, from the newest checkpoint."""
    global clock  # noqa: PLW0603 - the function is called by the library
    clock = Clock()
    asyncio.run(_resume(directory))


if __name__ == "__main__":
    main(prepare, resume)
