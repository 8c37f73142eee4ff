"""A built workflow on a store: claims threads, resumes them, retries, leaves responses. What both worlds share."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypedDict

from holdfast.records.arguments import check_options, mapping_or_none, whole_number
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
from holdfast.records.identity import RequestId
from holdfast.records.request import Request
from holdfast.records.tracebacks import hide_our_frames
from holdfast.records.words import Status
from holdfast.runs.driver import Run, Store, claim, fresh_id, stand, standing
from holdfast.runtimes.workflow.builder import WorkflowTerms
from holdfast.runtimes.workflow.checkpoints import continued_thread
from holdfast.runtimes.workflow.context import YES_OR_NO, ContextBase
from holdfast.runtimes.workflow.events import WorkflowEvent, WorkflowEventType, WorkflowResult
from holdfast.runtimes.workflow.execution import Execution
from holdfast.runtimes.workflow.loading import MISSING

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
        self.thread_id = options.get("thread_id")
        self.checkpoint_id = options.get("checkpoint_id")
        self.responses = dict(mapping_or_none(options.get("responses"), "responses") or {})
        self.retry = whole_number(options.get("retry") or 0, "retry")
        is_missing = message is MISSING
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
        done: dict[str, Any] = {"result": self.outputs, "outputs": self.outputs, "events": self.events}
        return WorkflowResult(status=status, thread_id=thread_id, requests=requests, **done)


class WorkflowCore:
    """A built workflow on a store: what both worlds share."""

    def __init__(self, terms: WorkflowTerms, store: Callable[[], Store], context: type[ContextBase]) -> None:
        self.terms = terms
        self.store = store
        self._context = context

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
                status = Status.INPUT_REQUIRED if waiting.requests else Status.WORKING  # it sleeps
                yield call.seen("status", status.value)
                yield call.result(thread_id, status, waiting.requests)
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
        return Execution(self.terms, self._context, run, message)

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
            if RequestId.parse(id_).thread_id != thread_id:
                raise ConfigurationError(f"request {id_} is of another thread than {thread_id!r}; run that one")
            if id_ in asked:
                self._check_response(asked[id_], value)
        refused: list[HoldfastError] = []
        for id_, value in responses.items():
            choices = asked[id_].choices if id_ in asked else ()
            is_bool = choices == YES_OR_NO and type(value) is bool
            choice = YES_OR_NO[0 if value else 1] if is_bool else value if choices else None
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
