"""langgraph: a graph of one node in a loop, resumed from its newest checkpoint."""

import operator
import sqlite3
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from told import Clock, main, result_of


class State(TypedDict):
    """What the graph keeps."""

    steps: Annotated[list[Any], operator.add]


clock: Clock | None = None
goal = 0


class Unfinished(Exception):
    """The graph is to be resumed."""


def act(state: State) -> State:
    """One step; the one after the goal ends the process that prepares."""
    done = len(state["steps"])
    if clock is None and done == goal:
        raise Unfinished
    if clock is not None and not clock.replayed:
        clock.replay_ends()
    return {"steps": [result_of(done)]}


def built(directory: str) -> Any:
    """The graph over a saver."""
    builder = StateGraph(State)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    builder.add_conditional_edges("act", lambda state: "act" if len(state["steps"]) < 10**6 else END)
    return builder.compile(SqliteSaver(sqlite3.connect(f"{directory}/langgraph.db", check_same_thread=False)))


def config(count: int) -> Any:
    """The thread, and room for all supersteps."""
    return {"configurable": {"thread_id": "t"}, "recursion_limit": count + 10}


def prepare(directory: str, count: int) -> None:
    """A superstep for each step."""
    global goal  # noqa: PLW0603 - the node is called by the library
    goal = count
    try:
        built(directory).invoke({"steps": []}, config(count), durability="sync")
    except Unfinished:
        return


def resume(directory: str, count: int) -> None:
    """From the newest checkpoint; the update of the first node is told when its checkpoint is stored."""
    global clock  # noqa: PLW0603 - the node is called by the library
    clock = Clock()
    stream = built(directory).stream(None, config(count), stream_mode="updates", durability="sync")
    clock.enter()
    next(stream)
    clock.tell()


if __name__ == "__main__":
    main(prepare, resume)
