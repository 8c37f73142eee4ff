"""Tasks: work that a cancellation does not interrupt, and the other tasks of a loop. Imports asyncio: load it late."""

from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Future,
    Task,
    all_tasks,
    current_task,
    ensure_future,
    get_running_loop,
    wait,
)
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class _ShieldedTask(Task[Any]):
    """A task that ignores `cancel`, even from a loop that shuts down: only the listener it waits for is cancelled."""

    listener: "Future[Any] | None" = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the user's listener that this task waits for, if any; return False: the task itself continues."""
        if self.listener is not None:
            self.listener.cancel(msg)
        return False


async def shielded(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine to its end even if the caller is cancelled; then raise the cancellation."""
    try:
        task = _ShieldedTask(coroutine, loop=get_running_loop())
    except RuntimeError:  # a coroutine is closed after its loop has ended: it cannot be cancelled
        return await coroutine
    cancellation: CancelledError | None = None
    while not task.done():
        try:
            await wait((task,))
        except CancelledError as error:
            cancellation = error
            task.cancel()
    if cancellation is not None:
        raise cancellation from task.exception()
    result: T = task.result()
    return result


async def heard(listener: Awaitable[Any]) -> None:
    """Await a listener. In shielded work it gets a separate task, which can be cancelled."""
    task = current_task()
    if not isinstance(task, _ShieldedTask):
        await listener
        return
    task.listener = ensure_future(listener)
    try:
        await wait((task.listener,))
        if not task.listener.cancelled():
            task.listener.result()
    finally:
        task.listener = None


def is_cancelled_by(error: BaseException | None) -> bool:
    """True if this error is a cancellation of the current task, and not of a task it waited for."""
    task = current_task()
    return isinstance(error, CancelledError) and task is not None and task.cancelling() > 0


def other_tasks(loop: AbstractEventLoop, belongs: Callable[[Context], bool]) -> list[Task[Any]]:
    """Return the other tasks of a loop whose context may belong to the caller's run; from a thread, any such task.

    Python 3.11 does not expose the context of a task: there, every task may.
    """
    try:
        current = current_task()
    except RuntimeError:  # a thread: what the loop runs at this moment is not the caller
        current = None
    return [task for task in all_tasks(loop) if task is not current and _may_belong(task, belongs)]


def _may_belong(task: Task[Any], belongs: Callable[[Context], bool]) -> bool:
    context_of = getattr(task, "get_context", None)
    return not isinstance(task, _ShieldedTask) and (context_of is None or belongs(context_of()))
