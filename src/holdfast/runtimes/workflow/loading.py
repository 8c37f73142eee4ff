"""What a thread holds when a run begins: the input, or a checkpoint that is fitted to the graph of this program."""

from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.codec import decode, encode
from holdfast.records.errors import ConfigurationError, HoldfastError, IncompatibleCheckpoint, KeyReused
from holdfast.runs.driver import Driver
from holdfast.runtimes.workflow.builder import WorkflowTerms
from holdfast.runtimes.workflow.decisions import entry
from holdfast.runtimes.workflow.graph import UNCHANGED, Graph, Renaming, differences
from holdfast.runtimes.workflow.message_types import hint_name
from holdfast.runtimes.workflow.snapshot import VERSION, Snapshot

STARTED = "workflow"
"""What the thread of a workflow was started with."""
GRAPH = "graph"
"""The kind of note that holds a graph, by its signature."""


class Missing:
    """No message was given."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = Missing()


class Loaded(msgspec.Struct, frozen=True):
    """Where a run begins."""

    snapshot: Snapshot
    is_new: bool
    """True if no checkpoint of the thread is resumed."""
    renaming: Renaming = UNCHANGED
    """How ids differ from those of the stored checkpoint."""


async def load(driver: Driver, terms: WorkflowTerms, message: Any) -> Loaded | None:
    """Load what a thread holds, or start it; None if it is finished. A thread that does not fit is left as it was."""
    where = f"thread {driver.thread_id!r}"
    try:
        arguments, state = _arguments(driver, terms.graph, message, where), driver.run.state
        if state and driver.record.started is None:
            raise KeyReused(f"{where} holds something else than a workflow; give another thread id")
        found = Snapshot.of(state, where) if state else None
        if found is not None and found.workflow != terms.name and (terms.is_named or driver.run.finished):
            raise KeyReused(f"{where} runs workflow {found.workflow!r}, not {terms.name!r}; give another thread id")
        await driver.start(STARTED, arguments, "message", {**terms.labels, "workflow": terms.name})
        if driver.run.finished:
            return None
        first = entry(terms.graph, terms.name, decode(arguments)[0][0])
        return Loaded(first, is_new=True) if found is None else await _fitted(driver, terms, found, first, where)
    except HoldfastError:
        driver.leave_untouched()
        raise


def _arguments(driver: Driver, graph: Graph, message: Any, where: str) -> bytes:
    """The input of the workflow, encoded; without a message, what the thread was started with."""
    if message is not MISSING:
        node = graph.nodes[graph.entry(graph.start)]
        if node.handlers.find(message) is None:
            raise ConfigurationError(
                f"the start executor {node.id!r} takes {', '.join(node.takes)}, and not {hint_name(type(message))}"
            )
        return encode([[message], {}], path="message")
    if driver.record.started is None:
        raise ConfigurationError(f"{where} has no workflow to resume; give a message to start one")
    return driver.record.started.arguments


async def _fitted(driver: Driver, terms: WorkflowTerms, found: Snapshot, first: Snapshot, where: str) -> Loaded:
    """A checkpoint as this program resumes it: with the ids of now, or afresh if that was asked for."""
    if found.version != VERSION:
        raise IncompatibleCheckpoint(f"{where} holds a workflow checkpoint of version {found.version}, not {VERSION}")
    if found.signature == terms.graph.signature:
        return Loaded(found, is_new=False)
    known = driver.noted(GRAPH, found.signature)
    renaming = Renaming(terms.renamed, decode(known.content)) if known else UNCHANGED
    differing = differences(renaming.plain(), terms.graph.plain())
    if not differing:
        renamed = found.renamed(renaming, terms.name, terms.graph.signature)
        return Loaded(renamed, is_new=False, renaming=renaming)
    if terms.on_incompatible == "fresh":
        await driver.withdraw(None, "the workflow was started afresh")
        return Loaded(replace(first, generation=found.generation + 1), is_new=True)
    raise IncompatibleCheckpoint(
        f"{where} was written by another graph of workflow {found.workflow!r}: {'; '.join(differing)}. Resume it with"
        " the graph that wrote it, or give .migrate(renamed={'old': 'new'}) or on_incompatible='fresh'"
    )
