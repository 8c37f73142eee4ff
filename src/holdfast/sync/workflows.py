"""Blocking workflows: the methods of the awaitable ones, each one line. Executors of a superstep run on threads."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from typing import Any, Generic, Literal, Unpack, overload

from holdfast.ports import iterate_blocking, run_blocking
from holdfast.runs.handles import BlockingHandle as Handle
from holdfast.runs.options import StepPolicy
from holdfast.runs.runnables import BlockingSubmitter as Submitter
from holdfast.runs.submitting import SubmitOptions
from holdfast.runtimes.workflow import checkpoints as awaitable
from holdfast.runtimes.workflow.builder import BuilderBase, WorkflowOptions
from holdfast.runtimes.workflow.checkpoints import WorkflowCheckpoint
from holdfast.runtimes.workflow.context import ContextBase, OutputT, SentT
from holdfast.runtimes.workflow.events import MISSING, Call, RunOptions, WorkflowEvent, WorkflowResult
from holdfast.runtimes.workflow.executors import Executor
from holdfast.runtimes.workflow.workflow import WorkflowBase
from holdfast.sync.functions import inner_store
from holdfast.sync.run import Run
from holdfast.sync.store import Store


class WorkflowContext(ContextBase, Generic[SentT, OutputT]):
    """See `holdfast.WorkflowContext`: the same methods, blocking."""

    def send_message(self, message: SentT, target_id: str | None = None) -> None:
        """See `holdfast.WorkflowContext.send_message`."""
        self._send(message, target_id)

    def yield_output(self, output: OutputT) -> None:
        """See `holdfast.WorkflowContext.yield_output`."""
        self._yield(output)

    def request_info(self, data: Any, response_type: Any = None) -> None:
        """See `holdfast.WorkflowContext.request_info`."""
        self._request(data, response_type)

    def step(self, name: str, function: Callable[..., Any], *args: Any, **policy: Unpack[StepPolicy]) -> Any:
        """See `holdfast.WorkflowContext.step`."""
        return run_blocking(self._step(name, function, *args, **policy))


class WorkflowStream:
    """See `holdfast.WorkflowStream`."""

    def __init__(self, events: AsyncGenerator[WorkflowEvent, None], call: Call) -> None:
        self._events = iterate_blocking(events)
        self._call = call

    def __iter__(self) -> Generator[WorkflowEvent, None, None]:
        """Iterate over the events. Leaving the loop closes the stream."""
        with closing(self):
            yield from self._events

    def __next__(self) -> WorkflowEvent:
        return next(self._events)

    def result(self) -> WorkflowResult:
        """See `holdfast.WorkflowStream.result`."""
        for _ in self:
            pass
        return self._call.result()

    def close(self) -> None:
        """See `holdfast.WorkflowStream.close`."""
        self._events.close()


class Workflow(WorkflowBase):
    """See `holdfast.Workflow`: the same methods, blocking."""

    _blocking = True

    @overload
    def run(
        self, message: Any = MISSING, *, stream: Literal[False] = False, **options: Unpack[RunOptions]
    ) -> WorkflowResult: ...
    @overload
    def run(
        self, message: Any = MISSING, *, stream: Literal[True], **options: Unpack[RunOptions]
    ) -> WorkflowStream: ...
    def run(self, message: Any = MISSING, *, stream: bool = False, **options: Unpack[RunOptions]) -> Any:
        """See `holdfast.Workflow.run`."""
        call = Call(message, options)
        return WorkflowStream(self._events(call), call) if stream else run_blocking(self._result(call))

    def submit(self, message: Any, *, thread_id: str | None = None) -> Handle:
        """See `holdfast.Workflow.submit`."""
        return self.options().submit(message, thread_id=thread_id)

    def options(self, **options: Unpack[SubmitOptions]) -> Submitter:
        """See `holdfast.Workflow.options`."""
        return Submitter(self._runnable, options)

    def resume(self, run: Run) -> list[Any]:
        """See `holdfast.Workflow.resume`."""
        return run_blocking(self._resumed(run._run))  # noqa: SLF001  one room

    def latest(self) -> WorkflowCheckpoint | None:
        """See `holdfast.Workflow.latest`."""
        return run_blocking(awaitable.latest_workflow_checkpoint(self._store(), self.name))

    def checkpoints(self, thread_id: str | None = None) -> list[WorkflowCheckpoint]:
        """See `holdfast.Workflow.checkpoints`."""
        return run_blocking(awaitable.workflow_checkpoints(self._store(), self.name, thread_id))


class WorkflowBuilder(BuilderBase):
    """See `holdfast.WorkflowBuilder`."""

    def __init__(
        self, start_executor: Executor, store: Store | None = None, **options: Unpack[WorkflowOptions]
    ) -> None:
        self._collect(start_executor, options)
        self._store = inner_store(store)

    def build(self) -> Workflow:
        """See `holdfast.WorkflowBuilder.build`."""
        return Workflow(self._terms(), self._store, WorkflowContext)


def workflow_checkpoints(store: Store, workflow_name: str, thread_id: str | None = None) -> list[WorkflowCheckpoint]:
    """See `holdfast.workflow_checkpoints`."""
    return run_blocking(awaitable.workflow_checkpoints(store._store, workflow_name, thread_id))  # noqa: SLF001  one room


def latest_workflow_checkpoint(store: Store, workflow_name: str) -> WorkflowCheckpoint | None:
    """See `holdfast.latest_workflow_checkpoint`."""
    return run_blocking(awaitable.latest_workflow_checkpoint(store._store, workflow_name))  # noqa: SLF001  one room
