"""`Workflow` and its builder, awaitable: runs, streams and resumes a graph on threads of a store."""

from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Literal, Self, Unpack, overload

from holdfast.records.errors import ConfigurationError
from holdfast.runs.driver import Run, Store, store_finder
from holdfast.runtimes.workflow import checkpoints
from holdfast.runtimes.workflow.builder import BuilderBase, WorkflowOptions
from holdfast.runtimes.workflow.checkpoints import WorkflowCheckpoint
from holdfast.runtimes.workflow.context import WorkflowContext
from holdfast.runtimes.workflow.core import Call, RunOptions, WorkflowCore
from holdfast.runtimes.workflow.events import WorkflowEvent, WorkflowResult
from holdfast.runtimes.workflow.executors import Executor
from holdfast.runtimes.workflow.graph import Graph
from holdfast.runtimes.workflow.loading import MISSING


class WorkflowBase:
    """What the workflows of both worlds show of themselves."""

    def __init__(self, core: WorkflowCore) -> None:
        self._core = core

    @property
    def name(self) -> str:
        """The name that its threads are labelled with; without one that was given, it is made of the signature."""
        return self._core.terms.name

    @property
    def graph(self) -> Graph:
        """Its nodes and edges."""
        return self._core.terms.graph

    @property
    def signature(self) -> str:
        """The signature of its graph: checkpoints belong to it."""
        return self._core.terms.graph.signature

    def draw(self, form: Literal["mermaid", "svg"] = "mermaid") -> str:
        """Draw the graph: a Mermaid flowchart, or an SVG picture. Names of conditions stand on their edges."""
        from holdfast.runtimes.workflow.drawing import draw

        return draw(self.graph, form)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self.graph.nodes)} executors)"


class WorkflowStream:
    """The events of a run, as they happen. Leaving it releases the thread; it can be resumed."""

    def __init__(self, events: AsyncGenerator["WorkflowEvent | WorkflowResult", None]) -> None:
        self._events = events
        self._result: WorkflowResult | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._itself().__await__()

    async def _itself(self) -> Self:
        return self

    async def __aiter__(self) -> AsyncGenerator[WorkflowEvent, None]:
        """The events to come; a loop over them that is left leaves the stream, also if that is still referred to."""
        try:
            while True:
                try:
                    event = await anext(self)
                except StopAsyncIteration:
                    return
                yield event
        finally:
            await self.close()

    async def __anext__(self) -> WorkflowEvent:
        event = await anext(self._events)
        if isinstance(event, WorkflowResult):
            self._result = event
            await self._events.aclose()
            raise StopAsyncIteration
        return event

    async def result(self) -> WorkflowResult:
        """Work to the end, and return the result."""
        async for _ in self:
            pass
        if self._result is None:
            raise ConfigurationError("this stream was left before its end; run its thread again")
        return self._result

    async def close(self) -> None:
        """Leave the stream: the thread is released, and can be resumed."""
        await self._events.aclose()


class Workflow(WorkflowBase):
    """A graph of executors that runs on threads of a store: made by `WorkflowBuilder.build`."""

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

        Without a thread id a new thread is made. A thread that was started is resumed, and a finished one returns its
        stored outputs. With a `checkpoint_id` the thread continues there: itself if that is its newest superstep, else
        a fork, whose id is in the result. `responses` answer requests by id, each once. A run that fails is resumed up
        to `retry` times; then `ExecutorFailed` is raised, and the thread can be resumed later.
        """
        call = Call(message, options)
        return WorkflowStream(self._core.events(call)) if stream else self._core.result(call)

    async def resume(self, run: Run) -> list[Any]:
        """Resume a claimed thread: `await store.recover(workflow.resume, labels={"workflow": workflow.name})`."""
        return await self._core.resume(run)

    async def latest(self) -> WorkflowCheckpoint | None:
        """The newest checkpoint of this workflow among all its threads; None if there is none."""
        return await checkpoints.latest_workflow_checkpoint(self._core.store(), self.name)

    async def checkpoints(self, thread_id: str | None = None) -> list[WorkflowCheckpoint]:
        """The checkpoints of a thread, or of all threads of this workflow; the newest first."""
        return await checkpoints.workflow_checkpoints(self._core.store(), self.name, thread_id)


class WorkflowBuilder(BuilderBase):
    """Connects executors, and builds a workflow that checkpoints after each superstep."""

    def __init__(
        self, start_executor: Executor, store: Store | None = None, **options: Unpack[WorkflowOptions]
    ) -> None:
        self._collect(start_executor, options)
        self._store = store_finder(store)

    def build(self) -> Workflow:
        """Check the graph, and make the workflow. `ConfigurationError` names what cannot work."""
        return Workflow(WorkflowCore(self._terms(), self._store, WorkflowContext))
