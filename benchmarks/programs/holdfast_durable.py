"""Holdfast: a durable function, resumed by replay of its steps."""

import os
import sys

from told import Clock, main, result_of

import holdfast.sync as holdfast

store = holdfast.open(os.environ["HOLDFAST_STORE"], durability=os.environ["HOLDFAST_LEVEL"])
clock: Clock | None = None


class Unfinished(Exception):
    """The agent is to be resumed."""


@holdfast.step
def work(index: int) -> dict[str, object]:
    """One step."""
    return result_of(index)


@holdfast.durable(store=store)
def agent(count: int) -> None:
    """COUNT steps; then, if it is resumed, one more."""
    if clock is None:
        for index in range(count):
            work(index)
        raise Unfinished
    clock.enter()
    for index in range(count):
        work(index)
    clock.replay_ends()
    work(count)
    clock.tell()


def prepare(_directory: str, count: int) -> None:
    """All steps."""
    try:
        agent.run("t", count)
    except Unfinished:
        return


def resume(_directory: str, _count: int) -> None:
    """Another process, the same thread."""
    global clock  # noqa: PLW0603 - the function is called by the library
    clock = Clock()
    agent.resume("t")


if __name__ == "__main__":
    main(prepare, resume)
    sys.exit(0)
