"""A workflow on a claimed thread: loads what the thread holds, executes supersteps, commits each, ends the thread."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.codec import decode, encode
from holdfast.records.errors import (
    ConfigurationError,
    ExecutorFailed,
    HoldfastError,
    IncompatibleCheckpoint,
    KeyReused,
    RunCancelled,
    StoreError,
    SuperstepLimit,
    Suspended,
)
from holdfast.runs.driver import Driver, Line, Run, note
from holdfast.runtimes.workflow.branch import Branch, Ended, Superstep
from holdfast.runtimes.workflow.builder import WorkflowTerms
from holdfast.runtimes.workflow.context import YES_OR_NO, ContextBase
from holdfast.runtimes.workflow.decisions import Result, committed, deliveries, entry, grown
from holdfast.runtimes.workflow.events import WorkflowEvent
from holdfast.runtimes.workflow.graph import UNCHANGED, Renaming, differences
from holdfast.runtimes.workflow.message_types import hint_name
from holdfast.runtimes.workflow.seats import SeatPlan, Seats
from holdfast.runtimes.workflow.snapshot import VERSION, Message, Pending, Snapshot

STARTED = "workflow"
"""What the thread of a workflow was started with."""
GRAPH = "graph"
"""The kind of note that holds a graph, by its signature."""
OURS = (RunCancelled, Suspended, StoreError)
"""Errors that say nothing about an executor."""


class Missing(msgspec.Struct, frozen=True):
    """No message was given."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class Execution:
    """One run of a workflow on its thread."""

    def __init__(
        self, terms: WorkflowTerms, seats: SeatPlan, context: type[ContextBase], run: Run, message: Any = MISSING
    ) -> None:
        self._terms = terms
        self._graph = terms.graph
        self._driver = Driver(run)
        self._seats = Seats(seats, self._driver.ports)
        self._context = context
        self._message = message
        self._renaming = UNCHANGED
        self.outputs: list[Any] = []
        """All outputs of the thread so far."""
        self._is_new = False
        """True if no checkpoint of the thread is resumed."""
        self._where = f"thread {run.thread_id!r}"

    async def events(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Work to the end of the workflow, or until it waits for responses: the run is suspended then."""
        driver, run = self._driver, self._driver.run
        snapshot = await self._begin()
        yield WorkflowEvent("started", {"thread_id": run.thread_id})
        if snapshot is None:
            self.outputs = run.result
            for output in self.outputs:
                yield WorkflowEvent("output", output)
        else:
            driver.refuse_divergence()
            try:
                async with aclosing(self._supersteps(snapshot)) as events:
                    async for event in events:
                        yield event
            finally:
                self._seats.leave()
        yield WorkflowEvent("status", "complete")

    async def _supersteps(self, snapshot: Snapshot) -> AsyncGenerator[WorkflowEvent, None]:
        driver = self._driver
        if self._is_new:
            snapshot = await self._entered(snapshot)
            yield WorkflowEvent("checkpoint_saved", checkpoint_id=driver.run.checkpoint_id)
        else:
            snapshot = replace(snapshot, executors=await self._seats.take(snapshot.executors))
            await self._ask_again(snapshot)
        yield WorkflowEvent("status", "working")
        while True:
            self.outputs = snapshot.outputs
            snapshot = snapshot if snapshot.messages else await self._answered(snapshot)
            if not snapshot.messages:
                break
            async with aclosing(self._superstep(snapshot)) as events:
                async for event in events:
                    if isinstance(event, Snapshot):
                        snapshot = event
                    else:
                        yield event
        if snapshot.requests:
            await driver.wait_for_answers()
        await driver.run.complete(snapshot.outputs)

    # The thread

    async def _begin(self) -> Snapshot | None:
        """Load what the thread holds, or start it; None if it is finished. One that does not fit is left as it was."""
        driver = self._driver
        try:
            arguments, state = self._arguments(), driver.run.state
            if state and driver.record.started is None:
                raise KeyReused(f"{self._where} holds something else than a workflow; give another thread id")
            await driver.start(STARTED, arguments, "message", {**self._terms.labels, "workflow": self._terms.name})
            if driver.run.finished:
                return None
            first = entry(self._graph, self._terms.name, decode(arguments)[0][0])
            snapshot = self._loaded(Snapshot.of(state, self._where), first) if state else first
        except HoldfastError:
            driver.leave_untouched()
            raise
        self._is_new = snapshot.messages is first.messages
        return snapshot

    def _arguments(self) -> bytes:
        """The input of the workflow, encoded; without a message, what the thread was started with."""
        started, message = self._driver.record.started, self._message
        if not isinstance(message, Missing):
            node = self._graph.nodes[self._graph.entry(self._graph.start)]
            if node.handlers.find(message) is None:
                raise ConfigurationError(
                    f"the start executor {node.id!r} takes {', '.join(node.takes)}, and not {hint_name(type(message))}"
                )
            return encode([[message], {}], path="message")
        if started is None:
            raise ConfigurationError(f"{self._where} has no workflow to resume; give a message to start one")
        return started.arguments

    def _loaded(self, found: Snapshot, first: Snapshot) -> Snapshot:
        """What the thread holds, fitted to the graph of this program; or how it begins afresh."""
        terms, graph = self._terms, self._graph
        if found.version != VERSION:
            raise IncompatibleCheckpoint(
                f"{self._where} holds a workflow checkpoint of version {found.version}, and this is {VERSION}"
            )
        if terms.is_named and found.workflow != terms.name:
            raise KeyReused(f"{self._where} runs workflow {found.workflow!r}, not {terms.name!r}; give another id")
        if found.signature == graph.signature:
            return found
        known = self._driver.noted(GRAPH, found.signature)
        renaming = Renaming(terms.renamed, decode(known.content)) if known else UNCHANGED
        differing = differences(renaming.plain(), graph.plain())
        if not differing:
            self._renaming = renaming
            return found.renamed(renaming, graph.signature)
        if terms.on_incompatible == "fresh":
            return replace(first, generation=found.generation + 1)
        raise IncompatibleCheckpoint(
            f"{self._where} was written by another graph of workflow {found.workflow!r}: {'; '.join(differing)}. Resume"
            " it with the graph that wrote it, or give .migrate(renamed={'old': 'new'}) or on_incompatible='fresh'"
        )

    async def _entered(self, snapshot: Snapshot) -> Snapshot:
        """Commit the input, before anything is done with it."""
        snapshot = replace(snapshot, executors=await self._seats.take({}))
        await self._write(snapshot, None, {"superstep": 0})
        return snapshot

    async def _write(
        self,
        snapshot: Snapshot,
        before: Snapshot | None,
        metadata: dict[str, str | int],
        *lines: Line,
        grown: dict[str, list[Any]] | None = None,
    ) -> None:
        """Write a snapshot: what changed since the one before, and of lists that grew only what they gained."""
        driver, signature = self._driver, self._graph.signature
        if driver.noted(GRAPH, signature) is None:
            graph = note(GRAPH, self._graph.plain(), driver.ports.now(), key=signature, lasting=True)
            lines = (*lines, graph)
        appended = {("state", key): items for key, items in (grown or {}).items()}
        if before is not None and appended and all(driver.takes_append(*path) for path in appended):
            before = replace(before, state=snapshot.state)
        else:
            appended = {}
        await driver.write(*lines, metadata=metadata, change=lambda: snapshot.changes_since(before), appended=appended)

    # Requests

    async def _ask_again(self, snapshot: Snapshot) -> None:
        """Ask the requests that a fork took over: there they are answered for this thread."""
        driver = self._driver
        open_ = {key: each for key, each in snapshot.requests.items() if not driver.request_id(key)}
        if open_:
            await driver.write(*(self._question(key, each) for key, each in open_.items()), journal=True)

    def _question(self, key: str, pending: Pending) -> Line:
        return self._driver.question(key, pending.executor, pending.data, pending.choices)

    async def _answered(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the responses that arrived as messages; committed, so that they are delivered together."""
        before, messages, lines = snapshot, list[Message](), list[Line]()
        requests = dict(snapshot.requests)
        for key, pending in snapshot.requests.items():
            answer = await self._driver.answer_to(key)
            if answer is None:
                continue
            del requests[key]
            response = answer.value
            if pending.choices:
                response = answer.choice == YES_OR_NO[0] if pending.choices == YES_OR_NO else answer.choice
            if self._graph.nodes[pending.executor].handlers.find(pending.data, response) is None:
                again = f"{key}'"  # what was answered cannot be used: ask once more
                requests[again] = pending
                lines.append(self._question(again, pending))
            else:
                messages.append(Message(pending.executor, pending.executor, response, [pending.data]))
        if len(messages) or lines:
            snapshot = replace(snapshot, messages=messages, requests=requests)
            metadata: dict[str, str | int] = {"superstep": snapshot.iteration, "responses": len(messages)}
            await self._driver.write(
                *lines, journal=True, metadata=metadata, change=lambda: snapshot.changes_since(before)
            )
        return snapshot

    # Supersteps

    async def _superstep(self, snapshot: Snapshot) -> AsyncGenerator["WorkflowEvent | Snapshot", None]:
        """Execute and commit one superstep; the last thing it gives is the snapshot after it."""
        self._driver.check()
        if snapshot.iteration >= self._terms.max_supersteps:
            raise SuperstepLimit(
                f"workflow {self._terms.name!r} took {snapshot.iteration} supersteps and has messages left; build it"
                " with a larger max_supersteps and run the thread again: it continues here"
            )
        waiting = deliveries(self._graph, snapshot)
        step = self._step(snapshot, is_parallel=len(waiting) > 1)
        branches = {id_: Branch(step, self._graph.nodes[id_], messages) for id_, messages in waiting.items()}
        yield WorkflowEvent("superstep_started", {"superstep": step.number, "executors": [*branches]})
        ended: dict[str, Ended] = {}
        async with aclosing(self._ended(branches)) as endings:
            async for each in endings:
                if isinstance(each, Ended):
                    ended[each.id] = each
                else:
                    yield each
        in_order = {id_: ended[id_] for id_ in branches}
        self._raise_failures(in_order, step)
        after = await self._commit(step, in_order)
        for event in self._committed_events(step, after, in_order):
            yield event
        yield after

    def _step(self, snapshot: Snapshot, *, is_parallel: bool) -> Superstep:
        saved = dict(snapshot.executors) if snapshot.executors else snapshot.executors
        renaming, self._renaming = self._renaming, UNCHANGED
        return Superstep(self._graph, self._driver, self._seats, snapshot, self._context, is_parallel, saved, renaming)

    async def _ended(self, branches: dict[str, Branch]) -> AsyncGenerator["WorkflowEvent | Ended", None]:
        """Each branch as it ends, with its events. Those that were noted as done are not executed again."""
        replayed = {id_: done for id_, branch in branches.items() if (done := branch.replayed()) is not None}
        for id_, done in replayed.items():
            yield WorkflowEvent("executor_replayed", executor_id=id_)
            yield done
        rest = {id_: branch for id_, branch in branches.items() if id_ not in replayed}
        for id_ in rest:
            yield WorkflowEvent("executor_invoked", executor_id=id_)
        if not rest:
            return
        async with aclosing(self._driver.ports.side_by_side([branch.run() for branch in rest.values()])) as endings:
            async for each in endings:
                yield each
                if each.error is not None:
                    yield WorkflowEvent("executor_failed", each.error, each.id)
                elif each.result is not None:
                    yield WorkflowEvent("executor_completed", executor_id=each.id)

    def _raise_failures(self, ended: dict[str, Ended], step: Superstep) -> None:
        errors = {each.id: each.error for each in ended.values() if each.error is not None}
        for error in errors.values():
            if isinstance(error, OURS):
                raise error
        for id_, error in errors.items():
            others = f" (and {', '.join(map(repr, [*errors][1:]))})" if len(errors) > 1 else ""
            raise ExecutorFailed(
                f"executor {id_!r}{others} of workflow {self._terms.name!r} failed in superstep {step.number}:"
                f" {type(error).__name__}: {error}"
            ) from error
        for each in ended.values():
            if each.waits is not None:
                raise each.waits

    async def _commit(self, step: Superstep, ended: dict[str, Ended]) -> Snapshot:
        """Commit a superstep, all or nothing: its messages, state, requests and outputs."""
        driver, before = self._driver, step.snapshot
        results = {id_: each.result or Result() for id_, each in ended.items()}
        after = committed(self._graph, before, results, step.saved)
        asked = {
            driver.key("request", f"{before.generation}.{step.number}.{index}:{id_}"): pending
            for id_, result in results.items()
            for index, pending in enumerate(result.asked)
        }
        after = replace(after, requests={**before.requests, **asked}) if asked else after
        lines: list[Line] = [each.line for each in ended.values() if each.line is not None]
        lines += [self._question(key, pending) for key, pending in asked.items()]
        metadata: dict[str, str | int] = {"superstep": step.number}
        metadata |= {"executors": len(ended)} if len(ended) > 1 else {"executor": next(iter(ended))}
        gained = grown(self._graph.reducers, before.state, results)
        await self._write(after, before, metadata, *lines, grown=gained)
        for key, pending in asked.items():
            request, content = driver.request_id(key), {"payload": pending.data}
            await driver.emit("asked", content, request=request, name=pending.executor)
        return after

    def _committed_events(self, step: Superstep, after: Snapshot, ended: dict[str, Ended]) -> list[WorkflowEvent]:
        id_, driver = self._driver.run.checkpoint_id, self._driver
        yielded = [(each.id, output) for each in ended.values() if each.result for output in each.result.outputs]
        asked = [(key, each) for key, each in after.requests.items() if key not in step.snapshot.requests]
        return [
            WorkflowEvent("checkpoint_saved", checkpoint_id=id_),
            *(WorkflowEvent("output", output, executor) for executor, output in yielded),
            *(WorkflowEvent("request_info", p.data, p.executor, request_id=driver.request_id(k)) for k, p in asked),
            WorkflowEvent("superstep_completed", {"superstep": step.number}, checkpoint_id=id_),
        ]
