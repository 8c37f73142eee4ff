"""A pool of things that are taken and given back, and that can be brought to rest: nothing is out or to be had."""

from collections.abc import Callable
from threading import Condition, Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """Objects that are made as needed, and kept for the next use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._idle: list[T] = []
        self._out = 0
        self._resting = False

    def take(self) -> T:
        """One for the caller alone, until it gives it back."""
        with self._lock:
            while self._resting:
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
        """Back into the pool."""
        self._return(item)

    def _return(self, *items: T) -> None:
        with self._lock:
            self._idle += items
            self._out -= 1
            if self._resting:
                self._changed.notify_all()

    def drain(self) -> list[T]:
        """All that is idle, for good."""
        with self._lock:
            drained, self._idle = self._idle, []
            return drained

    def rest(self, seconds: float) -> bool:
        """Let nobody take anything until `resume`, and wait for what is out; False if it is not back in time."""
        with self._lock:
            self._resting = True
            return self._changed.wait_for(lambda: not self._out, seconds)

    def resume(self) -> None:
        """End the rest."""
        with self._lock:
            self._resting = False
            self._changed.notify_all()
