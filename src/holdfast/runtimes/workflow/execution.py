"""Run a workflow on a claimed thread: load it, execute and commit supersteps, wait for responses, end the thread."""

from collections.abc import AsyncGenerator, Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.codec import decode, encode
from holdfast.ports import nested
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
from holdfast.records.type_hints import hint_name
from holdfast.runs.driver import Driver, Line, Record, Run, Runnable, note
from holdfast.runtimes.workflow.branch import EXECUTOR, Branch, Ended, Superstep, noted_result, work_key
from holdfast.runtimes.workflow.builder import WorkflowTerms
from holdfast.runtimes.workflow.context import ContextBase, copied_plain
from holdfast.runtimes.workflow.decisions import Result, committed, deliveries, grown
from holdfast.runtimes.workflow.events import MISSING, Call, WorkflowEvent
from holdfast.runtimes.workflow.graph import Graph, Renaming
from holdfast.runtimes.workflow.instances import ExecutorInstances
from holdfast.runtimes.workflow.snapshot import Message, Pending, Snapshot

STARTED = "workflow"
"""What the thread of a workflow records as its function, before a space and the name of the workflow.

Threads of earlier versions record this alone.
"""
GRAPH = "graph"
"""The kind of note that holds a graph; its key is the signature."""
NOT_EXECUTOR_ERRORS = (RunCancelled, Suspended, StoreError)
"""Errors that are not caused by an executor."""


def is_workflow(record: Record) -> bool:
    """True if a workflow started the thread of this record."""
    return record.started is not None and is_name_of_workflow(record.started.function)


def is_name_of_workflow(function: str) -> bool:
    """True if the threads of workflows record this function."""
    return function.partition(" ")[0] == STARTED


def packed(graph: Graph, message: Any) -> bytes:
    """Return a message as the encoded input of a workflow. `ConfigurationError` if its start does not handle it."""
    node = graph.nodes[graph.entry(graph.start)]
    if node.handlers.find(message) is None:
        raise ConfigurationError(
            f"the start executor {node.id!r} handles {', '.join(node.takes)}, not {hint_name(type(message))}"
        )
    return encode([[message], {}], path="message")


class Execution:
    """One run of a workflow on its thread."""

    def __init__(
        self, terms: WorkflowTerms, context: type[ContextBase], run: Run, call: Call, runnable: Runnable
    ) -> None:
        self._terms = terms
        self._runnable = runnable
        self._graph = terms.graph
        self._driver = Driver(run)
        self._instances = ExecutorInstances(terms.graph, self._driver)
        self._context = context
        self._call = call
        self._function = self._runnable.name
        self._where = f"thread {run.thread_id!r}"
        self._is_new = False
        """True if the workflow starts from its input, not from a checkpoint."""
        self._renaming: Renaming | None = None
        """How the ids in the resumed checkpoint differ from those of the graph."""

    async def events(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Run the workflow to its end, or suspend the run when it waits for responses. Yields its events."""
        driver, call = self._driver, self._call
        try:
            arguments = self._arguments()
            loaded = self._load(arguments)
            if call.responses:
                await driver.answer(call.responses)
            loaded = await self._begin(loaded, arguments)
        except HoldfastError:
            driver.leave_untouched()
            raise
        yield WorkflowEvent("started", {"thread_id": driver.thread_id})
        if loaded is None:
            call.outputs = driver.run.result
            for output in call.outputs:
                yield WorkflowEvent("output", output)
        else:
            driver.refuse_divergence()
            try:
                async with nested(self._supersteps(loaded)) as events:
                    async for event in events:
                        yield event
            finally:
                self._instances.release()
        yield WorkflowEvent("status", "complete")

    # Loading

    def _load(self, arguments: bytes) -> Snapshot | None:
        """Return the stored snapshot, or the first one for a new thread; None if it is finished. Writes nothing."""
        driver, terms, state = self._driver, self._terms, self._driver.run.state
        if state and not is_workflow(driver.record):
            raise KeyReused(f"{self._where} does not hold a workflow; use another thread_id")
        found = Snapshot.of(state, self._where) if state else None
        if found is not None:
            found.check_name(terms.name, self._where, is_named=terms.is_named or driver.run.finished)
        started = driver.record.started
        if started is not None and (started.function == STARTED or (found is not None and is_workflow(driver.record))):
            self._function = started.function  # its state has been compared with the name
        driver.refuse_other(self._function, arguments, "message")
        if driver.run.finished:
            return None
        message = Message("", self._graph.entry(self._graph.start), decode(arguments)[0][0])
        first = Snapshot(workflow=terms.name, signature=self._graph.signature, messages=[message])
        self._is_new = found is None
        return first if found is None else self._fitted(found, first)

    def _arguments(self) -> bytes:
        """Return the encoded input of the workflow; without a message, the input that the thread recorded."""
        message, started = self._call.message, self._driver.record.started
        if message is not MISSING:
            return packed(self._graph, message)
        if started is None:
            raise ConfigurationError(f"{self._where} has no workflow to resume; pass a message to start one")
        return started.arguments

    def _fitted(self, found: Snapshot, first: Snapshot) -> Snapshot:
        """Return the snapshot to resume: the stored one, or a new one if it is incompatible and `fresh` was chosen."""
        known = self._driver.noted(GRAPH, found.signature)
        stored = known and decode(known.content)
        try:
            self._renaming = found.renaming(self._graph, self._terms.renamed, stored, self._where)
        except IncompatibleCheckpoint as error:
            if self._terms.on_incompatible != "fresh":
                raise
            if self._call.responses:
                raise IncompatibleCheckpoint(
                    f"{self._where} would start over and withdraw its requests; run it without responses, or with the"
                    f" graph that asked: {error}"
                ) from error
            self._is_new = True
            return replace(first, generation=found.generation + 1)
        return found

    async def _begin(self, loaded: Snapshot | None, arguments: bytes) -> Snapshot | None:
        """Record what the thread runs, and write changes to its checkpoint: new ids, or a fresh start."""
        driver, terms, to = self._driver, self._terms, self._renaming
        await driver.start(self._function, arguments, "message", terms.all_labels, self._runnable.place)
        if loaded is not None and loaded.generation and self._is_new:
            await driver.withdraw(None, "the workflow started over")
        if loaded is None or to is None:
            return loaded
        renamed = loaded.renamed(to, terms.name, self._graph.signature)
        notes = self._renamed_notes(loaded, to)
        await self._write(renamed, None, {"renamed": len(renamed.former)}, *notes, journal=True)
        return renamed

    def _renamed_notes(self, found: Snapshot, renaming: Renaming) -> Iterator[Line]:
        """Yield the results of a superstep that was not committed, as notes under the new ids."""
        for old in renaming.stored["nodes"]:
            key = work_key(found, old)
            result = noted_result(self._driver, key)
            if result is not None:
                content = {"_result": result.renamed(renaming).plain()}
                yield note(EXECUTOR, content, self._driver.ports.now(), key=key, value=encode(None), lasting=True)

    # Supersteps

    async def _supersteps(self, snapshot: Snapshot) -> AsyncGenerator[WorkflowEvent, None]:
        driver, call = self._driver, self._call
        snapshot = replace(snapshot, executors=await self._instances.take(snapshot.executors))
        if self._is_new:  # the input is stored before any handler runs
            await self._write(snapshot, None, {"superstep": 0})
            yield WorkflowEvent("checkpoint_saved", checkpoint_id=driver.run.checkpoint_id)
        await self._ask_again(snapshot)
        yield WorkflowEvent("status", "working")
        call.outputs = snapshot.outputs
        while (after := await self._answered(snapshot)).messages:
            for event in self._question_events(snapshot, after):
                yield event
            snapshot = after
            step, branches = self._next_superstep(snapshot)
            yield WorkflowEvent("superstep_started", {"superstep": step.number, "executors": [*branches]})
            replayed = {id_: branch.replayed() for id_, branch in branches.items()}
            ended = {id_: done for id_, done in replayed.items() if done is not None}
            for id_ in branches:
                yield WorkflowEvent("executor_replayed" if id_ in ended else "executor_invoked", executor_id=id_)
            rest = [branch.run() for id_, branch in branches.items() if id_ not in ended]
            async with nested(driver.ports.side_by_side(rest)) as endings:
                async for each in endings:
                    ended[each.id] = each
                    if each.result is not None:
                        yield WorkflowEvent("executor_completed", executor_id=each.id)
                    elif isinstance(each.error, Exception):
                        yield WorkflowEvent("executor_failed", each.error, each.id)
            in_order = [ended[id_] for id_ in branches]
            self._raise_failures(in_order, step.number)
            snapshot = await self._commit(step, in_order)
            call.outputs = snapshot.outputs
            for event in self._committed_events(step, snapshot, in_order):
                yield event
        for event in self._question_events(snapshot, after):
            yield event
        if after.requests:
            await driver.wait_for_answers()
        self._warn_of_leftovers(snapshot)
        await driver.run.complete(snapshot.outputs)

    def _next_superstep(self, snapshot: Snapshot) -> tuple[Superstep, dict[str, Branch]]:
        """Return the next superstep, with a branch for each executor that has messages."""
        self._driver.check()
        if snapshot.iteration >= self._terms.max_supersteps:
            raise SuperstepLimit(
                f"workflow {self._terms.name!r} has messages left after {snapshot.iteration} supersteps; build it with"
                " a larger max_supersteps and run the thread again: it resumes here"
            )
        waiting, shared = deliveries(self._graph, snapshot), (self._graph, self._driver, self._instances, self._context)
        step = Superstep(*shared, snapshot, snapshot.executors, len(waiting) > 1)
        return step, {id_: Branch(step, self._graph.nodes[id_], messages) for id_, messages in waiting.items()}

    def _raise_failures(self, ended: list[Ended], number: int) -> None:
        """Raise the first error of the superstep, or the suspension of the run."""
        errors = {each.id: each.error for each in ended if each.error is not None}
        failed = [id_ for id_, error in errors.items() if isinstance(error, Exception)]
        for error in errors.values():
            if isinstance(error, NOT_EXECUTOR_ERRORS) or not failed:
                raise error
        if failed:
            error = errors[failed[0]]
            also = f" (and {', '.join(map(repr, failed[1:]))})" if failed[1:] else ""
            text = (
                f"executor {failed[0]!r}{also} of workflow {self._terms.name!r} failed in superstep {number}"
                f" of {self._where}: {type(error).__name__}: {error}"
            )
            thread_id = self._driver.thread_id
            raise ExecutorFailed(text, executor=failed[0], thread_id=thread_id, superstep=number) from error

    async def _commit(self, step: Superstep, ended: list[Ended]) -> Snapshot:
        """Commit the messages, state, requests and outputs of a superstep, atomically."""
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
        await self._emit_asked(asked)
        return after

    async def _write(
        self,
        snapshot: Snapshot,
        before: Snapshot | None,
        metadata: dict[str, str | int],
        *lines: Line,
        journal: bool = False,
        grown: dict[str, list[Any]] | None = None,
    ) -> None:
        """Write what changed since the previous snapshot; for lists that grew, only the new items.

        The first time, the graph is written too.
        """
        driver, signature = self._driver, self._graph.signature
        if driver.noted(GRAPH, signature) is None:
            graph = note(GRAPH, self._graph.plain(), driver.ports.now(), key=signature, lasting=True)
            lines = (*lines, graph)
        appended = {("state", key): items for key, items in (grown or {}).items()}
        if before is not None and appended and all(driver.takes_append(*path) for path in appended):
            before = replace(before, state=snapshot.state)
        else:
            appended = {}
        given: dict[str, Any] = {"metadata": metadata, "journal": journal, "appended": appended}
        await driver.write(*lines, **given, change=lambda: snapshot.changes_since(before))

    def _committed_events(self, step: Superstep, after: Snapshot, ended: list[Ended]) -> Iterator[WorkflowEvent]:
        id_ = self._driver.run.checkpoint_id
        yield WorkflowEvent("checkpoint_saved", checkpoint_id=id_)
        for each in ended:
            for output in each.result.outputs if each.result else ():
                yield WorkflowEvent("output", copied_plain(output), each.id)
        yield from self._question_events(step.snapshot, after)
        yield WorkflowEvent("superstep_completed", {"superstep": step.number}, checkpoint_id=id_)

    def _question_events(self, before: Snapshot, after: Snapshot) -> Iterator[WorkflowEvent]:
        for key, pending in after.requests.items():
            if key not in before.requests:
                request_id = self._driver.request_id(key)
                yield WorkflowEvent("request_info", copied_plain(pending.data), pending.executor, request_id=request_id)

    def _warn_of_leftovers(self, snapshot: Snapshot) -> None:
        for edge, waiting in snapshot.buffers.items():
            missing = [each for each in self._graph.edges_by_id[edge].sources if each not in waiting]
            kinds = sorted({hint_name(type(each)) for items in waiting.values() for each in items})
            self._graph.warn_once(
                f"{edge}: messages ({', '.join(kinds)}) from {', '.join(map(repr, waiting))} were dropped at the end of"
                f" workflow {self._terms.name!r}, because {', '.join(map(repr, missing))} sent nothing to match them"
            )

    # Requests

    async def _ask_again(self, snapshot: Snapshot) -> None:
        """Ask the requests that a fork inherited again, so that they can be answered for this thread."""
        open_ = {key: each for key, each in snapshot.requests.items() if not self._driver.request_id(key)}
        if open_:
            await self._driver.write(*(self._question(key, each) for key, each in open_.items()), journal=True)

    async def _emit_asked(self, asked: dict[str, Pending]) -> None:
        for key, pending in asked.items():
            request, content = self._driver.request_id(key), {"payload": pending.data}
            await self._driver.emit("asked", content, request=request, name=pending.executor)

    def _question(self, key: str, pending: Pending) -> Line:
        return self._driver.question(key, pending.executor, pending.data, pending.choices, pending.takes)

    async def _answered(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the responses that arrived, committed together; only if no messages are left."""
        if snapshot.messages:
            return snapshot
        requests, messages, again = dict(snapshot.requests), list[Message](), dict[str, Pending]()
        for key, pending in snapshot.requests.items():
            answer = await self._driver.answer_to(key)
            if answer is not None:
                del requests[key]
                response = pending.response(answer)
                if self._has_handler(key, pending, response):
                    messages.append(Message(pending.executor, pending.executor, response, [pending.data]))
                else:
                    again[self._driver.key("again", key)] = pending
        if len(requests) == len(snapshot.requests):
            return snapshot
        after = replace(snapshot, messages=messages, requests=requests | again)
        metadata: dict[str, str | int] = {"superstep": snapshot.iteration, "responses": len(messages)}
        lines = [self._question(key, pending) for key, pending in again.items()]
        await self._write(after, snapshot, metadata, *lines, journal=True)
        await self._emit_asked(again)
        return after

    def _has_handler(self, key: str, pending: Pending, response: Any) -> bool:
        """True if a handler accepts the response; else warn that the question is asked again."""
        node = self._graph.nodes[pending.executor]
        if node.handlers.find(pending.data, response) is not None:
            return True
        self._graph.warn_once(
            f"request {self._driver.request_id(key)} was answered with a value of type {hint_name(type(response))},"
            f" but executor {node.id!r} only handles {', '.join(node.answers)}; it is asked again under another"
            " request id"
        )
        return False
