"""Holdfast: a run whose state is a list of what was done; whoever comes next reads it and goes on."""

import os

from told import Clock, main, result_of

import holdfast.sync as holdfast

store = holdfast.open(os.environ["HOLDFAST_STORE"], durability=os.environ["HOLDFAST_LEVEL"])


def prepare(_directory: str, count: int) -> None:
    """A checkpoint after each step."""
    with store.run("t") as run:
        for index in range(count):
            run.append("steps", result_of(index))


def resume(_directory: str, count: int) -> None:
    """Read the state, do the next step."""
    clock = Clock()
    with store.run("t") as run:
        clock.enter()
        done = len(run.state["steps"])
        if done < count:
            raise AssertionError(f"{done} of {count} steps are there")
        clock.replay_ends()
        run.append("steps", result_of(done))
        clock.tell()


if __name__ == "__main__":
    main(prepare, resume)
