"""A workflow on a claimed thread: executes supersteps, commits each, waits for responses, ends the thread."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from holdfast.records.errors import ExecutorFailed, RunCancelled, StoreError, SuperstepLimit, Suspended
from holdfast.runs.driver import Driver, Line, Run, note
from holdfast.runtimes.workflow.branch import Branch, Ended, Superstep
from holdfast.runtimes.workflow.builder import WorkflowTerms
from holdfast.runtimes.workflow.context import ContextBase
from holdfast.runtimes.workflow.decisions import Result, committed, deliveries, grown
from holdfast.runtimes.workflow.events import WorkflowEvent
from holdfast.runtimes.workflow.graph import UNCHANGED
from holdfast.runtimes.workflow.loading import GRAPH, MISSING, load
from holdfast.runtimes.workflow.seats import Seats
from holdfast.runtimes.workflow.snapshot import Message, Pending, Snapshot

OURS = (RunCancelled, Suspended, StoreError)
"""Errors that say nothing about an executor."""


class Execution:
    """One run of a workflow on its thread."""

    def __init__(self, terms: WorkflowTerms, context: type[ContextBase], run: Run, message: Any = MISSING) -> None:
        self._terms = terms
        self._graph = terms.graph
        self._driver = Driver(run)
        self._seats = Seats(terms.graph, self._driver.ports)
        self._context = context
        self._message = message
        self._renaming = UNCHANGED
        """How ids differ from those of the stored checkpoint, until the next one is written."""
        self.outputs: list[Any] = []
        """All outputs of the thread so far."""

    async def events(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Work to the end of the workflow, or until it waits for responses: the run is suspended then."""
        driver = self._driver
        loaded = await load(driver, self._terms, self._message)
        yield WorkflowEvent("started", {"thread_id": driver.thread_id})
        if loaded is None:
            self.outputs = driver.run.result
            for output in self.outputs:
                yield WorkflowEvent("output", output)
        else:
            driver.refuse_divergence()
            self._renaming = loaded.renaming
            try:
                async with aclosing(self._supersteps(loaded.snapshot, is_new=loaded.is_new)) as events:
                    async for event in events:
                        yield event
            finally:
                self._seats.leave()
        yield WorkflowEvent("status", "complete")

    async def _supersteps(self, snapshot: Snapshot, *, is_new: bool) -> AsyncGenerator[WorkflowEvent, None]:
        driver = self._driver
        snapshot = replace(snapshot, executors=await self._seats.take(snapshot.executors))
        if is_new:  # the input is durable before anything is done with it
            await self._write(snapshot, None, {"superstep": 0})
            yield WorkflowEvent("checkpoint_saved", checkpoint_id=driver.run.checkpoint_id)
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

    async def _write(
        self,
        snapshot: Snapshot,
        before: Snapshot | None,
        metadata: dict[str, str | int],
        *lines: Line,
        journal: bool = False,
        grown: dict[str, list[Any]] | None = None,
    ) -> None:
        """Write a snapshot: what changed since the one before, and of lists that grew only what they gained.

        With it goes its graph, if the thread does not have that yet.
        """
        driver, signature = self._driver, self._graph.signature
        if driver.noted(GRAPH, signature) is None:
            graph = note(GRAPH, self._graph.plain(), driver.ports.now(), key=signature, lasting=True)
            lines = (*lines, graph)
        known = before if self._renaming is UNCHANGED else None
        appended = {("state", key): items for key, items in (grown or {}).items()}
        if known is not None and appended and all(driver.takes_append(*path) for path in appended):
            known = replace(known, state=snapshot.state)
        else:
            appended = {}
        given: dict[str, Any] = {"metadata": metadata, "journal": journal, "appended": appended}
        await driver.write(*lines, **given, change=lambda: snapshot.changes_since(known))
        self._renaming = UNCHANGED

    # Requests

    async def _ask_again(self, snapshot: Snapshot) -> None:
        """Ask the requests that a fork took over: there they are answered for this thread."""
        open_ = {key: each for key, each in snapshot.requests.items() if not self._driver.request_id(key)}
        if open_:
            await self._driver.write(*(self._question(key, each) for key, each in open_.items()), journal=True)

    def _question(self, key: str, pending: Pending) -> Line:
        return self._driver.question(key, pending.executor, pending.data, pending.choices)

    async def _answered(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the responses that arrived as messages; committed, so that they are delivered together."""
        messages, lines, requests = list[Message](), list[Line](), dict(snapshot.requests)
        for key, pending in snapshot.requests.items():
            answer = await self._driver.answer_to(key)
            if answer is None:
                continue
            del requests[key]
            response = pending.response(answer)
            if self._graph.nodes[pending.executor].handlers.find(pending.data, response) is not None:
                messages.append(Message(pending.executor, pending.executor, response, [pending.data]))
            else:  # what was answered cannot be used: ask once more
                requests[f"{key}'"] = pending
                lines.append(self._question(f"{key}'", pending))
        if len(requests) == len(snapshot.requests) and not lines:
            return snapshot
        after = replace(snapshot, messages=messages, requests=requests)
        metadata: dict[str, str | int] = {"superstep": snapshot.iteration, "responses": len(messages)}
        await self._write(after, snapshot, metadata, *lines, journal=True)
        return after

    # Supersteps

    async def _superstep(self, snapshot: Snapshot) -> AsyncGenerator["WorkflowEvent | Snapshot", None]:
        """Execute and commit one superstep; the last thing it gives is the snapshot after it."""
        self._driver.check()
        if snapshot.iteration >= self._terms.max_supersteps:
            raise SuperstepLimit(
                f"workflow {self._terms.name!r} took {snapshot.iteration} supersteps and has messages left; build it"
                " with a larger max_supersteps and run the thread again: it continues here"
            )
        waiting, shared = deliveries(self._graph, snapshot), (self._graph, self._driver, self._seats, self._context)
        step = Superstep(*shared, snapshot, snapshot.executors, self._renaming, is_parallel=len(waiting) > 1)
        branches = {id_: Branch(step, self._graph.nodes[id_], messages) for id_, messages in waiting.items()}
        yield WorkflowEvent("superstep_started", {"superstep": step.number, "executors": [*branches]})
        ended: dict[str, Ended] = {}
        async with aclosing(self._ended(branches)) as endings:
            async for each in endings:
                if isinstance(each, Ended):
                    ended[each.id] = each
                else:
                    yield each
        in_order = [ended[id_] for id_ in branches]
        self._raise_failures(in_order, step.number)
        after = await self._commit(step, in_order)
        for event in self._committed_events(step, after, in_order):
            yield event
        yield after

    async def _ended(self, branches: dict[str, Branch]) -> AsyncGenerator["WorkflowEvent | Ended", None]:
        """Each branch as it ends, with its events. Those that were noted as done are not executed again."""
        replayed = {id_: done for id_, branch in branches.items() if (done := branch.replayed()) is not None}
        for id_, done in replayed.items():
            yield WorkflowEvent("executor_replayed", executor_id=id_)
            yield done
        rest = {id_: branch for id_, branch in branches.items() if id_ not in replayed}
        for id_ in rest:
            yield WorkflowEvent("executor_invoked", executor_id=id_)
        async with aclosing(self._driver.ports.side_by_side([branch.run() for branch in rest.values()])) as endings:
            async for each in endings:
                yield each
                if each.error is not None:
                    yield WorkflowEvent("executor_failed", each.error, each.id)
                elif each.result is not None:
                    yield WorkflowEvent("executor_completed", executor_id=each.id)

    def _raise_failures(self, ended: list[Ended], number: int) -> None:
        """Raise why the superstep cannot be committed: the first error, or that the run waits."""
        failed = [(each.id, each.error) for each in ended if each.error is not None]
        for _, error in failed:
            if isinstance(error, OURS):
                raise error
        if failed:
            (id_, error), *others = failed
            also = f" (and {', '.join(repr(other) for other, _ in others)})" if others else ""
            raise ExecutorFailed(
                f"executor {id_!r}{also} of workflow {self._terms.name!r} failed in superstep {number}"
                f" of thread {self._driver.thread_id!r}: {type(error).__name__}: {error}"
            ) from error
        for each in ended:
            if each.waits is not None:
                raise each.waits

    async def _commit(self, step: Superstep, ended: list[Ended]) -> Snapshot:
        """Commit a superstep, all or nothing: its messages, state, requests and outputs."""
        driver, before = self._driver, step.snapshot
        results = {each.id: each.result or Result() for each in ended}
        asked = {
            driver.key("request", f"{before.generation}.{step.number}.{index}:{id_}"): pending
            for id_, result in results.items()
            for index, pending in enumerate(result.asked)
        }
        after = committed(self._graph, before, results, step.saved)
        after = replace(after, requests={**before.requests, **asked}) if asked else after
        lines: list[Line] = [each.line for each in ended if each.line is not None]
        lines += [self._question(key, pending) for key, pending in asked.items()]
        metadata: dict[str, str | int] = {"superstep": step.number}
        metadata |= {"executors": len(ended)} if len(ended) > 1 else {"executor": ended[0].id}
        gained = grown(self._graph.reducers, before.state, results)
        await self._write(after, before, metadata, *lines, grown=gained)
        for key, pending in asked.items():
            request, content = driver.request_id(key), {"payload": pending.data}
            await driver.emit("asked", content, request=request, name=pending.executor)
        return after

    def _committed_events(self, step: Superstep, after: Snapshot, ended: list[Ended]) -> list[WorkflowEvent]:
        id_, driver = self._driver.run.checkpoint_id, self._driver
        yielded = [(each.id, output) for each in ended if each.result for output in each.result.outputs]
        asked = [(key, each) for key, each in after.requests.items() if key not in step.snapshot.requests]
        return [
            WorkflowEvent("checkpoint_saved", checkpoint_id=id_),
            *(WorkflowEvent("output", output, executor) for executor, output in yielded),
            *(WorkflowEvent("request_info", p.data, p.executor, request_id=driver.request_id(k)) for k, p in asked),
            WorkflowEvent("superstep_completed", {"superstep": step.number}, checkpoint_id=id_),
        ]
