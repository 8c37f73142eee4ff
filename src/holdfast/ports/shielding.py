"""Work that a cancellation does not cut short: it is raised once the work has ended. Imports asyncio: load it late."""

from asyncio import CancelledError, Future, Task, current_task, ensure_future, get_running_loop, wait
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _ShieldedTask(Task[Any]):
    """A task that ignores `cancel`, also from a loop that is shutting down: only the listener it waits for is cut."""

    listener: "Future[Any] | None" = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the user's listener that this task waits for, if there is one; False, as the task itself runs on."""
        if self.listener is not None:
            self.listener.cancel(msg)
        return False


async def shielded(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine to its end, however often the caller is cancelled meanwhile; then raise the cancellation."""
    try:
        task = _ShieldedTask(coroutine, loop=get_running_loop())
    except RuntimeError:  # a coroutine is closed after its loop has ended: nobody is left to cancel it
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
    """Await what a listener does. Within shielded work it gets a task of its own, which a cancellation reaches."""
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
    """True if this error is how a cancellation of the current task arrived, and not one of a task it waited for."""
    task = current_task()
    return isinstance(error, CancelledError) and task is not None and task.cancelling() > 0
