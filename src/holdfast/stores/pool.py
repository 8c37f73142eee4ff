"""A pool of objects for one user at a time. It can be paused: then nothing is out, and nothing can be taken."""

from collections.abc import Callable
from threading import Condition, Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Objects that are made when needed, and kept for the next use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._idle: list[T] = []
        self._out = 0
        self._paused = False

    def take(self) -> T:
        """Return an object for the caller alone, until it calls `give`. Waits while the pool is paused."""
        with self._lock:
            while self._paused:
                self._changed.wait()
            self._out += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._make()
        except BaseException:
            self._return()
            raise

    def give(self, item: T) -> None:
        """Put an object back."""
        self._return(item)

    def _return(self, *items: T) -> None:
        with self._lock:
            self._idle += items
            self._out -= 1
            if self._paused:
                self._changed.notify_all()

    def drain(self) -> list[T]:
        """Remove and return all idle objects."""
        with self._lock:
            drained, self._idle = self._idle, []
            return drained

    def pause(self, seconds: float) -> bool:
        """Let nothing be taken until `resume`, and wait for what is out; False if it is not back in time."""
        with self._lock:
            self._paused = True
            return self._changed.wait_for(lambda: not self._out, seconds)

    def resume(self) -> None:
        """End the pause."""
        with self._lock:
            self._paused = False
            self._changed.notify_all()
