"""What there is to say of the thread of a workflow: its superstep, and which executors ran, run next, or wait."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.cli.screen import counted
from holdfast.cli.text import printable
from holdfast.cli.work import Work
from holdfast.codec import decode
from holdfast.history.journal import Journal
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import HoldfastError
from holdfast.runtimes.workflow.execution import GRAPH, STARTED
from holdfast.runtimes.workflow.snapshot import Snapshot

MOST = 40
"""How many executors are shown."""


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a workflow is, and the graph to draw that on."""

    name: str
    supersteps: int
    runs: dict[str, int]
    """How often each executor ran."""
    failures: dict[str, int]
    next: list[str]
    """The executors that have messages waiting, without those that are done in the superstep under way."""
    waiting: list[str]
    """The executors that wait for a response."""
    gathering: list[str]
    """The fan-ins that wait for other sources."""
    outputs: int
    signature: str
    graph: dict[str, Any]


def read_workflow(work: Work, newest: Checkpoint | None, journal: Journal) -> WorkflowView | None:
    """Return the workflow of a thread; None if it is none, or none that can be read."""
    if work.function != STARTED or newest is None:
        return None
    try:
        now = Snapshot.of(newest.state, newest.thread_id)
        noted = journal.noted(GRAPH, now.signature)
        graph: dict[str, Any] = {} if noted is None else decode(noted.content)
    except HoldfastError:
        return None
    steps = [(step.action, step.error is not None) for step in newest.steps if "superstep" in step.metadata]
    under_way = [step for step in newest.steps if step.metadata.get("superstep") == now.iteration + 1]
    done = {step.action for step in under_way if step.error is None}
    return WorkflowView(
        name=now.workflow,
        supersteps=now.iteration,
        runs=Counter(action for action, failed in steps if not failed),
        failures=Counter(action for action, failed in steps if failed),
        next=list(dict.fromkeys(each.target for each in now.messages if each.target not in done)),
        waiting=list(dict.fromkeys(each.executor for each in now.requests.values())),
        gathering=list(now.buffers),
        outputs=len(now.outputs),
        signature=now.signature,
        graph=graph,
    )


def workflow_facts(view: WorkflowView) -> Iterator[tuple[str, str]]:
    """Say where a workflow is: executors that ran are ticked, an arrow is at those that are next."""
    outputs = counted(view.outputs, "output")
    yield "workflow", f"{printable(view.name)}, {counted(view.supersteps, 'superstep')} done, {outputs}"
    nodes = [id_ for id_, node in view.graph.get("nodes", {}).items() if node.get("kind") != "workflow"]
    for number, id_ in enumerate(nodes[:MOST]):
        hidden = f" (… {len(nodes) - MOST} more)" if number == MOST - 1 and len(nodes) > MOST else ""
        yield "graph" if number == 0 else "", _line(view, id_) + hidden
    for edge in view.gathering:
        yield "gathering", printable(edge)


def _line(view: WorkflowView, id_: str) -> str:
    mark = "→" if id_ in view.next else "?" if id_ in view.waiting else "✓" if view.runs.get(id_) else "·"
    ran = f" x{view.runs[id_]}" if view.runs.get(id_, 0) > 1 else ""
    failed = f", failed {counted(view.failures[id_], 'time')}" if view.failures.get(id_) else ""
    waits = ", waits for a response" if id_ in view.waiting else ""
    return f"{mark} {printable(id_)}{ran}{failed}{waits}"
