"""`Workflow` and its builder: run, stream, resume and fork a graph on threads of a store."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Literal, Self, Unpack, overload

from holdfast.codec import decode
from holdfast.ports import nested
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import (
    Conflict,
    ExecutorFailed,
    KeyReused,
    NotFound,
    OutcomeUnknown,
    StoreUnavailable,
    Suspended,
)
from holdfast.records.identity import CheckpointId
from holdfast.records.tracebacks import hide_our_frames
from holdfast.records.words import Status
from holdfast.runs.driver import (
    Handle,
    Run,
    Runnable,
    Store,
    SubmitOptions,
    Submitter,
    claim,
    fresh_id,
    read,
    run_context,
    set_run_context,
    store_finder,
)
from holdfast.runtimes.workflow import checkpoints
from holdfast.runtimes.workflow.builder import BuilderBase, WorkflowOptions, WorkflowTerms
from holdfast.runtimes.workflow.checkpoints import WorkflowCheckpoint, supersteps
from holdfast.runtimes.workflow.context import ContextBase, WorkflowContext
from holdfast.runtimes.workflow.events import MISSING, Call, RunOptions, WorkflowEvent, WorkflowResult
from holdfast.runtimes.workflow.execution import GRAPH, STARTED, Execution, is_workflow, packed
from holdfast.runtimes.workflow.executors import Executor
from holdfast.runtimes.workflow.graph import Graph
from holdfast.runtimes.workflow.snapshot import Snapshot

RETRIED = (ExecutorFailed, StoreUnavailable, OutcomeUnknown)


class WorkflowBase:
    """The part of a workflow that both worlds share."""

    _blocking = False

    def __init__(self, terms: WorkflowTerms, store: Callable[[], Store], context: type[ContextBase]) -> None:
        self._terms = terms
        self._store = store
        self._context = context
        self._runnable = Runnable(
            f"{STARTED} {terms.name}",
            store,
            terms.service,
            terms.all_labels,
            self._resumed,
            lambda message: [packed(terms.graph, message)],
            blocking=self._blocking,
        )

    @property
    def name(self) -> str:
        """The label of its threads; derived from the signature if no name was given."""
        return self._terms.name

    @property
    def graph(self) -> Graph:
        """The nodes and edges."""
        return self._terms.graph

    @property
    def signature(self) -> str:
        """The signature of its graph, which its checkpoints record."""
        return self.graph.signature

    def draw(self, form: Literal["mermaid", "svg"] = "mermaid") -> str:
        """Draw the graph as a Mermaid flowchart or an SVG picture."""
        from holdfast.runtimes.workflow.drawing import draw

        return draw(self.graph, form)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self.graph.nodes)} executors)"

    async def _events(self, call: Call) -> AsyncGenerator[WorkflowEvent, None]:
        """Yield the events of a run. At the end the call has its result."""
        store = self._store()
        thread_id = await self._thread_of(store, call)
        for left in range(call.retry, -1, -1):
            try:
                async with nested(self._claimed(store, thread_id, call)) as events:
                    async for event in events:
                        yield call.seen(event)
            except Suspended as waiting:
                status = Status.INPUT_REQUIRED if waiting.requests else Status.WORKING  # a run without requests sleeps
                yield call.seen(WorkflowEvent("status", status.value))
                call.end(thread_id, status, waiting.requests)
                return
            except Exception as error:
                hide_our_frames(error)
                yield call.seen(WorkflowEvent("failed", error))
                if not left or not isinstance(error, RETRIED):
                    raise
            else:
                call.end(thread_id, Status.COMPLETE)
                return

    async def _claimed(self, store: Store, thread_id: str, call: Call) -> AsyncGenerator[WorkflowEvent, None]:
        """Claim the thread and yield the events of a run. The consumer of an event is outside the run."""
        block, outer = claim(store, thread_id, self._terms.run), run_context()
        run = await block.enter()
        set_run_context(outer)
        try:
            async with nested(Execution(self._terms, self._context, run, call, self._runnable).events()) as events:
                async for event in events:
                    yield event
        except BaseException as error:
            await block.leave(error)
            raise
        await block.leave(None)

    async def _result(self, call: Call) -> WorkflowResult:
        async with nested(self._events(call)) as events:
            async for _ in events:
                pass
        return call.result()

    async def _resumed(self, run: Run) -> list[Any]:
        """Resume a thread that a recovery claimed, and return its outputs."""
        call = Call(MISSING, {"thread_id": run.thread_id})
        async with nested(Execution(self._terms, self._context, run, call, self._runnable).events()) as events:
            return [event.data async for event in events if event.type == "output"]

    async def _thread_of(self, store: Store, call: Call) -> str:
        """Return the thread of a run. For a checkpoint, its own thread if it is the newest superstep, else a fork.

        If the thread id already names a fork of that checkpoint, that fork is resumed.
        """
        if call.checkpoint_id is None:
            if call.responses and call.thread_id is not None:
                await store.thread(call.thread_id)  # raises if it does not exist: a new thread has no requests
            return fresh_id(store, self.name) if call.thread_id is None else call.thread_id
        wanted = CheckpointId.parse(call.checkpoint_id)
        found = await store.load(call.checkpoint_id)
        async for info in supersteps(store, wanted.thread_id):
            newest = CheckpointId.parse(info.id)
            if newest.life == wanted.life and newest.seq <= wanted.seq and call.thread_id in {None, wanted.thread_id}:
                return wanted.thread_id
            break
        if call.thread_id is not None and await _is_fork(store, call.thread_id, call.checkpoint_id):
            return call.thread_id
        await self._check_fork(store, call, found)
        return await store.fork(call.checkpoint_id, to=call.thread_id)

    async def _check_fork(self, store: Store, call: Call, checkpoint: Checkpoint) -> None:
        """Raise, before the fork is created, if it could not be resumed or got responses."""
        terms, where = self._terms, f"checkpoint {checkpoint.id!r}"
        for request_id in call.responses:
            raise NotFound(
                f"request {request_id} does not exist yet: run the fork of {where} first; it asks its own requests"
            )
        record = await read(store, checkpoint.thread_id)
        if not is_workflow(record):
            raise KeyReused(f"{where} does not belong to a workflow")
        found = Snapshot.of(checkpoint.state, where)
        found.check_name(terms.name, where, is_named=terms.is_named)
        graphs = {each.key: decode(each.content) for each in record.notes(GRAPH)}
        if terms.on_incompatible != "fresh":
            found.renaming(self.graph, terms.renamed, graphs.get(found.signature), where)


async def _is_fork(store: Store, thread_id: str, checkpoint_id: str) -> bool:
    try:
        origin = (await store.get(thread_id, 1)).parent_id
    except NotFound:
        return False
    if origin != checkpoint_id:
        raise Conflict(f"thread {thread_id!r} exists and is not a fork of {checkpoint_id!r}; use another thread_id")
    return True


class WorkflowStream:
    """The events of a run, as they happen. Leaving it early releases the thread, which can be resumed."""

    def __init__(self, events: AsyncGenerator[WorkflowEvent, None], call: Call) -> None:
        self._events = events
        self._call = call

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self

    async def __aiter__(self) -> AsyncGenerator[WorkflowEvent, None]:
        """Iterate over the events. Leaving the loop closes the stream, even if it is still referenced."""
        async with nested(self._events) as events:
            async for event in events:
                yield event

    async def __anext__(self) -> WorkflowEvent:
        return await anext(self._events)

    async def result(self) -> WorkflowResult:
        """Run to the end and return the result."""
        async for _ in self:
            pass
        return self._call.result()

    async def close(self) -> None:
        """Close the stream: the thread is released and can be resumed."""
        await self._events.aclose()


class Workflow(WorkflowBase):
    """A graph of executors that runs on threads of a store. Created by `WorkflowBuilder.build`."""

    @overload
    def run(
        self, message: Any = MISSING, *, stream: Literal[False] = False, **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, WorkflowResult]: ...
    @overload
    def run(
        self, message: Any = MISSING, *, stream: Literal[True], **options: Unpack[RunOptions]
    ) -> WorkflowStream: ...
    def run(self, message: Any = MISSING, *, stream: bool = False, **options: Unpack[RunOptions]) -> Any:
        """Run the workflow on a thread: start it with a message, or resume it from its last checkpoint.

        Without a thread id a new thread is created. An unfinished thread is resumed, and a finished one returns its
        stored outputs. With a `checkpoint_id` the run resumes from there: on the same thread if it is the newest
        superstep, else on a fork, whose id is in the result. `responses` answer requests by id, each once. A failed
        run is resumed up to `retry` times; then `ExecutorFailed` is raised, and the thread can be resumed later.
        """
        call = Call(message, options)
        return WorkflowStream(self._events(call), call) if stream else self._result(call)

    async def submit(self, message: Any, *, thread_id: str | None = None) -> Handle:
        """Create a thread that starts with this message, and return a handle on it; durable when this returns.

        Any process that has the workflow runs it: by `store.recover()`, or by `run` with the same message and id. Its
        result is the list of outputs. The same id and message again are the same thread; `KeyReused` if it runs
        something else.
        """
        return await self.options().submit(message, thread_id=thread_id)

    def options(self, **options: Unpack[SubmitOptions]) -> Submitter:
        """Return an object whose `submit` uses these options: those of a durable function."""
        return Submitter(self._runnable, options)

    async def resume(self, run: Run) -> list[Any]:
        """Resume a claimed thread: `await store.recover(workflow.resume, labels={"workflow": workflow.name})`."""
        return await self._resumed(run)

    async def latest(self) -> WorkflowCheckpoint | None:
        """Return the newest checkpoint of this workflow over all its threads; None if there is none."""
        return await checkpoints.latest_workflow_checkpoint(self._store(), self.name)

    async def checkpoints(self, thread_id: str | None = None) -> list[WorkflowCheckpoint]:
        """List the checkpoints of a thread, or of all threads of this workflow, the newest first."""
        return await checkpoints.workflow_checkpoints(self._store(), self.name, thread_id)


class WorkflowBuilder(BuilderBase):
    """Connects executors and builds a workflow that writes a checkpoint after each superstep."""

    def __init__(
        self, start_executor: Executor, store: Store | None = None, **options: Unpack[WorkflowOptions]
    ) -> None:
        self._collect(start_executor, options)
        self._store = store_finder(store)

    def build(self) -> Workflow:
        """Check the graph and return the workflow. `ConfigurationError` for a graph that cannot work."""
        return Workflow(self._terms(), self._store, WorkflowContext)
