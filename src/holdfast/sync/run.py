"""The blocking run: the same methods as the awaitable one, each one line."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar, Unpack

from holdfast.ports import run_blocking
from holdfast.records.checkpoint import Step
from holdfast.records.request import Answer
from holdfast.records.words import Cause, Phase, Status
from holdfast.runs.block import RunBlock as AwaitableRunBlock
from holdfast.runs.options import StepCallPolicy
from holdfast.runs.run import Receipt as AwaitableReceipt
from holdfast.runs.run import Run as AwaitableRun
from holdfast.runs.run import for_plain_code
from holdfast.runs.steps import StepHandle

T = TypeVar("T")


class Receipt:
    """A record that is stored."""

    def __init__(self, receipt: AwaitableReceipt) -> None:
        self._receipt = receipt

    @property
    def done(self) -> bool:
        """See `holdfast.Receipt.done`: always True."""
        return self._receipt.done

    def wait(self) -> None:
        """See `holdfast.Receipt.wait`: there is nothing to wait for."""
        run_blocking(self._receipt.wait())


class Run:
    """See `holdfast.Run`: the same methods, blocking."""

    def __init__(self, run: AwaitableRun) -> None:
        self._run = for_plain_code(run)

    def __repr__(self) -> str:
        return repr(self._run)

    @property
    def thread_id(self) -> str:
        """See `holdfast.Run.thread_id`."""
        return self._run.thread_id

    @property
    def version(self) -> int:
        """See `holdfast.Run.version`."""
        return self._run.version

    @property
    def resumed(self) -> bool:
        """See `holdfast.Run.resumed`."""
        return self._run.resumed

    @property
    def finished(self) -> bool:
        """See `holdfast.Run.finished`."""
        return self._run.finished

    @property
    def status(self) -> Status:
        """See `holdfast.Run.status`."""
        return self._run.status

    @property
    def seq(self) -> int:
        """See `holdfast.Run.seq`."""
        return self._run.seq

    @property
    def checkpoint_id(self) -> str | None:
        """See `holdfast.Run.checkpoint_id`."""
        return self._run.checkpoint_id

    @property
    def state(self) -> Any:
        """See `holdfast.Run.state`."""
        return self._run.state

    @property
    def steps(self) -> list[Step]:
        """See `holdfast.Run.steps`."""
        return self._run.steps

    @property
    def result(self) -> Any:
        """See `holdfast.Run.result`."""
        return self._run.result

    def step(self, key: str, function: Callable[..., T], *args: Any, **policy: Unpack[StepCallPolicy]) -> T:
        """See `holdfast.Run.step`."""
        return run_blocking(self._run.step(key, function, *args, **policy))

    def begin_step(self, key: str, *args: Any, effect: bool = True) -> StepHandle:
        """See `holdfast.Run.begin_step`."""
        return run_blocking(self._run.begin_step(key, *args, effect=effect))

    def in_doubt(self, key: str) -> StepHandle:
        """See `holdfast.Run.in_doubt`."""
        return self._run.in_doubt(key)

    def complete_step(self, handle: StepHandle, value: Any) -> None:
        """See `holdfast.Run.complete_step`."""
        run_blocking(self._run.complete_step(handle, value))

    def record(self, step: Step, key: str | None = None) -> Receipt:
        """See `holdfast.Run.record`; durable on return."""
        receipt = self._run.record(step, key)
        run_blocking(receipt.wait())
        return Receipt(receipt)

    def checkpoint(
        self,
        state: Any,
        *,
        phase: Phase | str | None = None,
        cause: Cause | str = Cause.EVENT,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> None:
        """See `holdfast.Run.checkpoint`."""
        run_blocking(self._run.checkpoint(state, phase=phase, cause=cause, metadata=metadata, key=key))

    def append(self, path: str | Sequence[str], item: Any, key: str | None = None) -> None:
        """See `holdfast.Run.append`."""
        run_blocking(self._run.append(path, item, key))

    def ask(
        self,
        name: str,
        payload: Any = None,
        *,
        choices: Sequence[str] = (),
        deadline: datetime | timedelta | float | None = None,
        default: Any = None,
    ) -> Answer:
        """See `holdfast.Run.ask`."""
        return run_blocking(self._run.ask(name, payload, choices=choices, deadline=deadline, default=default))

    def confirm(
        self,
        name: str,
        payload: Any = None,
        *,
        deadline: datetime | timedelta | float | None = None,
        default: bool | None = None,
    ) -> bool:
        """See `holdfast.Run.confirm`."""
        return run_blocking(self._run.confirm(name, payload, deadline=deadline, default=default))

    def sleep(self, duration: timedelta | float) -> None:
        """See `holdfast.Run.sleep`."""
        run_blocking(self._run.sleep(duration))

    def complete(self, result: Any = None) -> None:
        """See `holdfast.Run.complete`."""
        run_blocking(self._run.complete(result))

    def fail(self, error: BaseException | str) -> None:
        """See `holdfast.Run.fail`."""
        run_blocking(self._run.fail(error))


class RunBlock:
    """`with store.run(...) as run`."""

    def __init__(self, block: AwaitableRunBlock) -> None:
        self._block = block

    def __enter__(self) -> Run:
        entered = run_blocking(self._block.enter())
        try:
            return Run(entered)
        except BaseException as interrupt:
            run_blocking(self._block.leave(interrupt))
            raise

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        run_blocking(self._block.leave(error))
