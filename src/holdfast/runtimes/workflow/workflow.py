"""`Workflow` and its builder: runs, streams, and resumes a graph on threads of a store."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing
from typing import Any, Literal, Self, TypedDict, Unpack, overload

from holdfast.records.arguments import check_options, mapping_or_none, text_or_none, whole_number
from holdfast.records.errors import (
    ConfigurationError,
    Conflict,
    ExecutorFailed,
    HoldfastError,
    InvalidAnswer,
    OutcomeUnknown,
    StoreUnavailable,
    Suspended,
)
from holdfast.records.request import Request
from holdfast.records.tracebacks import hide_our_frames
from holdfast.records.words import Status
from holdfast.runs.driver import Run, Store, claim, default_store, fresh_id, stand, standing
from holdfast.runtimes.workflow.builder import BuilderBase, WorkflowOptions, WorkflowTerms
from holdfast.runtimes.workflow.checkpoints import (
    WorkflowCheckpoint,
    continued_thread,
    latest_workflow_checkpoint,
    thread_checkpoints,
    workflow_checkpoints,
)
from holdfast.runtimes.workflow.context import YES_OR_NO, ContextBase, WorkflowContext
from holdfast.runtimes.workflow.events import WorkflowEvent, WorkflowEventType, WorkflowResult
from holdfast.runtimes.workflow.execution import MISSING, Execution, Missing
from holdfast.runtimes.workflow.executors import Executor
from holdfast.runtimes.workflow.graph import Graph
from holdfast.runtimes.workflow.seats import SeatPlan

RETRIED = (ExecutorFailed, StoreUnavailable, OutcomeUnknown)


class RunOptions(TypedDict, total=False):
    """The keywords of `run`. See `Workflow.run`."""

    thread_id: str | None
    checkpoint_id: str | None
    responses: Mapping[str, Any] | None
    retry: int | None


class Call:
    """One run: what was asked for, checked, and what came of it so far."""

    def __init__(self, message: Any, options: RunOptions) -> None:
        check_options(options, tuple(RunOptions.__annotations__))
        self.message = message
        self.thread_id = text_or_none(options.get("thread_id"), "thread_id")
        self.checkpoint_id = options.get("checkpoint_id")
        self.responses = dict(mapping_or_none(options.get("responses"), "responses") or {})
        self.retry = whole_number(options.get("retry") or 0, "retry")
        is_missing = isinstance(message, Missing)
        if self.checkpoint_id is not None and not is_missing:
            raise ConfigurationError("run takes a message, which starts a workflow, or a checkpoint_id to continue at")
        if is_missing and self.thread_id is None and self.checkpoint_id is None:
            raise ConfigurationError("run needs a message to start with, or a thread_id or checkpoint_id to resume")
        if self.responses and self.thread_id is None:
            raise ConfigurationError("responses are for a thread that waits for them; give its thread_id")
        self.events: list[WorkflowEvent] = []
        self.outputs: list[Any] = []

    def seen(self, type_: WorkflowEventType, data: Any) -> WorkflowEvent:
        """Add an event to those of this run."""
        self.events.append(WorkflowEvent(type_, data))
        return self.events[-1]

    def result(self, thread_id: str, status: Status, requests: tuple[Request, ...] = ()) -> WorkflowResult:
        """How the run ended."""
        return WorkflowResult(
            status=status,
            thread_id=thread_id,
            result=self.outputs,
            requests=requests,
            outputs=self.outputs,
            events=self.events,
        )


class WorkflowCore:
    """A built workflow on a store: what both worlds share."""

    def __init__(self, terms: WorkflowTerms, store: Callable[[], Store], context: type[ContextBase]) -> None:
        self.terms = terms
        self.store = store
        self._context = context
        self._seats = SeatPlan(terms.graph)

    async def events(self, call: Call) -> AsyncGenerator["WorkflowEvent | WorkflowResult", None]:
        """The events of a run, and at the end its result."""
        store = self.store()
        thread_id = await self._thread_of(store, call)
        await self._respond(store, thread_id, call.responses)
        for left in range(call.retry, -1, -1):
            try:
                async with aclosing(self._claimed(store, thread_id, call)) as events:
                    async for event in events:
                        call.events.append(event)
                        yield event
            except Suspended as waiting:
                yield call.seen("status", Status.INPUT_REQUIRED.value)
                yield call.result(thread_id, Status.INPUT_REQUIRED, waiting.requests)
                return
            except Exception as error:
                hide_our_frames(error)
                yield call.seen("failed", error)
                if not left or not isinstance(error, RETRIED):
                    raise
            else:
                yield call.result(thread_id, Status.COMPLETE)
                return

    async def _thread_of(self, store: Store, call: Call) -> str:
        if call.checkpoint_id is not None:
            return await continued_thread(store, call.checkpoint_id, call.thread_id)
        return fresh_id(store, self.terms.name) if call.thread_id is None else call.thread_id

    async def _claimed(self, store: Store, thread_id: str, call: Call) -> AsyncGenerator[WorkflowEvent, None]:
        """The events of a run under a claim of its own. The consumer is in no run while it has an event."""
        block, outer = claim(store, thread_id, self.terms.run), standing()
        run = await block.enter()
        stand(outer)
        execution = self._execution(run, call.message)
        try:
            async with aclosing(execution.events()) as events:
                async for event in events:
                    yield event
                    call.outputs = execution.outputs
        except BaseException as error:
            call.outputs = execution.outputs
            await block.leave(error)
            raise
        await block.leave(None)

    def _execution(self, run: Run, message: Any = MISSING) -> Execution:
        return Execution(self.terms, self._seats, self._context, run, message)

    async def result(self, call: Call) -> WorkflowResult:
        """How a run ended."""
        result: WorkflowResult | None = None
        async with aclosing(self.events(call)) as events:
            async for event in events:
                result = event if isinstance(event, WorkflowResult) else result
        assert result is not None  # noqa: S101  the last event, unless an error was raised
        return result

    async def resume(self, run: Run) -> list[Any]:
        """The outputs of a thread that a recovery claimed."""
        async with aclosing(self._execution(run).events()) as events:
            return [event.data async for event in events if event.type == "output"]

    # Responses

    async def _respond(self, store: Store, thread_id: str, responses: Mapping[str, Any]) -> None:
        """Leave the responses for the run: all that can be, before one that cannot is refused."""
        if not responses:
            return
        asked = {each.id: each for each in (await store.outcome(thread_id)).requests}
        for id_, value in responses.items():
            if id_ in asked:
                self._check_response(asked[id_], value)
        refused: list[HoldfastError] = []
        for id_, value in responses.items():
            choices = asked[id_].choices if id_ in asked else ()
            choice = YES_OR_NO[0 if value else 1] if choices == YES_OR_NO else value if choices else None
            try:
                await store.answer(id_, choice, None if choices else value)
            except Conflict as error:
                refused.append(error)
            except InvalidAnswer as error:
                refused.append(error if id_ in asked else Conflict(f"request {id_} was answered already"))
        if refused:
            raise refused[0]

    def _check_response(self, request: Request, value: Any) -> None:
        node = self.terms.graph.nodes.get(request.name)
        if node is not None and node.handlers.find(request.payload, value) is None:
            raise InvalidAnswer(
                f"request {request.id} of executor {request.name!r} takes {', '.join(node.answers)}, and not {value!r}"
            )

    # Checkpoints

    async def latest(self) -> WorkflowCheckpoint | None:
        """The newest checkpoint of the workflow."""
        return await latest_workflow_checkpoint(self.store(), self.terms.name)

    async def checkpoints(self, thread_id: str | None) -> list[WorkflowCheckpoint]:
        """The checkpoints of one thread, or of all."""
        if thread_id is not None:
            return await thread_checkpoints(self.store(), thread_id)
        return await workflow_checkpoints(self.store(), self.terms.name)


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

    def __aiter__(self) -> Self:
        return self

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
        return await self._core.latest()

    async def checkpoints(self, thread_id: str | None = None) -> list[WorkflowCheckpoint]:
        """The checkpoints of a thread, or of all threads of this workflow; the newest first."""
        return await self._core.checkpoints(thread_id)


class WorkflowBuilder(BuilderBase):
    """Connects executors, and builds a workflow that checkpoints after each superstep."""

    def __init__(
        self, start_executor: Executor, store: Store | None = None, **options: Unpack[WorkflowOptions]
    ) -> None:
        if store is not None and not isinstance(store, Store):
            raise ConfigurationError(f"store must be a store of holdfast, as holdfast.open returns it, got {store!r}")
        self._collect(start_executor, options)
        self._store = store

    def build(self) -> Workflow:
        """Check the graph, and make the workflow. `ConfigurationError` names what cannot work."""
        store = self._store
        return Workflow(WorkflowCore(self._terms(), default_store if store is None else lambda: store, WorkflowContext))
