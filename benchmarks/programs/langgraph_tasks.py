"""langgraph: an entrypoint of its functional API, resumed by replay of its tasks."""

import sqlite3
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from told import Clock, main, result_of

CONFIG: Any = {"configurable": {"thread_id": "t"}}
clock: Clock | None = None


class Unfinished(Exception):
    """The agent is to be resumed."""


@task
def work(index: int) -> dict[str, object]:
    """One step."""
    return result_of(index)


def agent(count: int) -> None:
    """COUNT steps; then, if it is resumed, one more."""
    if clock is not None:
        clock.enter()
    for index in range(count):
        work(index).result()
    if clock is None:
        raise Unfinished
    clock.replay_ends()
    work(count).result()
    clock.tell()


def built(directory: str) -> Any:
    """The agent over a saver."""
    saver = SqliteSaver(sqlite3.connect(f"{directory}/langgraph.db", check_same_thread=False))
    return entrypoint(checkpointer=saver)(agent)


def prepare(directory: str, count: int) -> None:
    """All steps."""
    try:
        built(directory).invoke(count, CONFIG, durability="sync")
    except Unfinished:
        return


def resume(directory: str, _count: int) -> None:
    """Another process, the same thread."""
    global clock  # noqa: PLW0603 - the function is called by the library
    clock = Clock()
    built(directory).invoke(None, CONFIG, durability="sync")


if __name__ == "__main__":
    main(prepare, resume)
