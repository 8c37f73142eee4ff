"""Tickets for pending writes, and signals that wake a waiting thread."""

from collections.abc import Callable
from contextvars import copy_context
from threading import Event, Thread
from typing import Any, Protocol

import msgspec

from holdfast.records.errors import StepTimeout


class Ticket(msgspec.Struct, eq=False, kw_only=True):
    """A pending write: the thread that commits it settles it once, as True (done), False (refused) or an error.

    It needs no lock: the outcome is set before callbacks are checked, and a callback is added before the outcome is
    checked. So one side sees the other, and the thread that removes a callback calls it.
    """

    settled: bool = False
    outcome: bool | BaseException = False
    swap: object = None
    """What was submitted last for this ticket: an older submission that still waits is ignored."""
    _callbacks: list[Callable[[], None]] = []
    """The callbacks that are not called yet."""
    _known: list[Callable[[], None]] = []
    """All callbacks: an interrupt may come after one was removed and before it did anything."""

    def settle(self, outcome: bool | BaseException) -> None:
        """Fix the outcome and call the callbacks."""
        self.outcome = outcome
        self.settled = True
        if self._callbacks:
            self.call_back()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once settled, on the thread that settles it; at once if it is settled."""
        self._known.append(callback)
        self._callbacks.append(callback)
        if self.settled:
            self.call_back()

    def call_back(self) -> None:
        """Call the callbacks that were not called yet."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread took it
                return
            callback()

    def call_all(self) -> None:
        """Call all callbacks once more, after an interrupt. A callback that ran before does nothing."""
        self._callbacks.clear()
        for callback in tuple(self._known):
            callback()

    def result(self) -> bool:
        """Return the outcome of a settled ticket, or raise it if it is an error."""
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Driver(Protocol):
    """Settles tickets: the committer."""

    def drive(self, ticket: Ticket) -> None:
        """Settle the ticket now, on this thread."""
        ...

    def nudge(self) -> None:
        """Have waiting tickets settled soon, without blocking this thread for long."""
        ...


class Signal:
    """Wakes a waiting thread: `wait` returns True once `set` was called, False when time is up."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        """Wake the waiter."""
        self._event.set()

    def clear(self) -> None:
        """Reset, to wake it again later."""
        self._event.clear()

    def wait(self, seconds: float) -> bool:
        """Wait for `set`."""
        return self._event.wait(seconds)


class Helper(Ticket):
    """A call on a separate thread that can be abandoned: it blocks neither its caller nor the end of the program."""

    function: Callable[[], Any]
    _value: Any = None

    def __post_init__(self) -> None:
        context = copy_context()
        Thread(target=lambda: context.run(self._call), name="holdfast-step", daemon=True).start()

    def _call(self) -> None:
        try:
            self._value = self.function()
        except BaseException as error:  # noqa: BLE001  raised again by the waiter
            self.settle(error)
        else:
            self.settle(True)

    def join(self) -> Any:
        """Block until the call has ended; return its result, or raise its error."""
        ended = Event()
        self.when_settled(ended.set)
        ended.wait()
        return self.returned()

    def returned(self) -> Any:
        """Return the result of the settled call, or raise its error."""
        self.result()
        return self._value


def late(seconds: float) -> StepTimeout:
    """Return the error for a call that took too long."""
    return StepTimeout(f"no result within {seconds:.3g} s", type="StepTimeout")
