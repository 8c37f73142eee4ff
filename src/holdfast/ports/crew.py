"""Tasks side by side, and a loop that any thread can wake. Imports asyncio: load it late."""

from asyncio import Event, Task, ensure_future, get_running_loop, run, timeout, wait
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class Crew:
    """The tasks of one event loop that belong together, and the loop that starts them."""

    def __init__(self) -> None:
        self._loop = get_running_loop()
        self._woken = Event()
        self._tasks: set[Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in a task of its own, in an empty context. Its end wakes the loop."""
        task = self._loop.create_task(coroutine, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: Task[Any]) -> None:
        self._tasks.discard(task)
        self._woken.set()
        if not task.cancelled():
            task.exception()

    def wake(self) -> None:
        """Wake the loop, from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._woken.set)

    async def rest(self, seconds: float | None) -> None:
        """Wait until the loop is woken, or for so many seconds."""
        with suppress(TimeoutError):
            async with timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in tuple(self._tasks):
            task.cancel()

    async def join(self, seconds: float) -> bool:
        """Wait for the end of all tasks, for up to so many seconds. True if none is left."""
        if self._tasks:
            await wait(tuple(self._tasks), timeout=seconds)
        return not self._tasks


def run_in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own."""
    return run(coroutine)


def beside(coroutine: Coroutine[Any, Any, T]) -> "Task[T]":
    """Run a coroutine in a task, beside the caller."""
    return ensure_future(coroutine)
