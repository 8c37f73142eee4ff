"""langgraph as its users run it, for W2: a real graph, one node in a loop that adds one step per superstep.

The graph is streamed with `durability="sync"`. Its channel is the usual list with a reducer, or the same list annotated
with `DeltaChannel(reducer)`. Beyond what the saver costs, this has the price of a superstep, which Holdfast's own rows
do not have: compare those with the rows of the saver.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from benchmarks.contender import POWER_LOSS, Contender
from benchmarks.peer_langgraph import open_saver
from benchmarks.peer_langgraph_delta import SNAPSHOT_FREQUENCY, extended
from benchmarks.workloads import THREAD, State, empty_conversation

_CONFIG = {"configurable": {"thread_id": THREAD}}


class LanggraphGraph(Contender):
    family = "peer"
    durability = POWER_LOSS

    def __init__(self, steps: list[State], *, delta: bool) -> None:
        self.steps, self.delta = steps, delta
        self.name = "langgraph graph, DeltaChannel" if delta else "langgraph graph"
        self.stream: Iterator[Any] = iter(())

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.graph = _build(self.steps, delta=self.delta).compile()
        self._open()
        config = {**_CONFIG, "recursion_limit": len(self.steps) + 10}
        self.stream = self.graph.stream(empty_conversation(), config, stream_mode="updates", durability="sync")

    def step(self, index: int) -> None:
        """One superstep: the checkpoint of the step before, then this step and its write."""
        next(self.stream)
        if index + 1 == len(self.steps):
            self._drain()

    def finish(self) -> None:
        self._drain()
        self.saver.conn.close()

    def load(self) -> State:
        self._open()
        return self.graph.get_state(_CONFIG).values

    def restore(self, index: int) -> State:
        found = next(self.saver.list(_CONFIG, filter={"step": index + 1}, limit=1))
        return self.graph.get_state(found.config).values

    def _open(self) -> None:
        self.saver = self.graph.checkpointer = open_saver(self.directory)

    def _drain(self) -> None:
        """Let the graph reach its end, which writes the last checkpoint."""
        for _ in self.stream:
            pass


def _build(steps: list[State], *, delta: bool) -> Any:
    from langgraph.channels import DeltaChannel
    from langgraph.graph import END, START, StateGraph

    reducer = DeltaChannel(extended, snapshot_frequency=SNAPSHOT_FREQUENCY) if delta else operator.add
    fields = {"goal": str, "steps": Annotated[list[State], reducer]}
    builder = StateGraph(TypedDict("Conversation", fields))
    builder.add_node("act", lambda state: {"steps": [steps[len(state["steps"])]]})
    builder.add_edge(START, "act")
    builder.add_conditional_edges("act", lambda state: "act" if len(state["steps"]) < len(steps) else END)
    return builder
