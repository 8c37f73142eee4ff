"""Tickets for what is on its way, and signals for who waits."""

from collections.abc import Callable
from contextvars import copy_context
from threading import Event, Thread
from typing import Any, Protocol

import msgspec

from holdfast.records.errors import StepTimeout


class Ticket(msgspec.Struct, eq=False, kw_only=True):
    """A write on its way: settled once, by the thread that commits it, as True (done), False (refused) or an error.

    It needs no lock: the outcome is set before looking for callbacks, and a callback is added before looking whether
    it is settled; so one of the two sees the other, and the thread that takes a callback out calls it.
    """

    settled: bool = False
    outcome: bool | BaseException = False
    swap: object = None
    """What was submitted last for this ticket: an older submission that still waits is ignored."""
    _callbacks: list[Callable[[], None]] = []
    """Those still to be called."""
    _known: list[Callable[[], None]] = []
    """All of them: an interrupt may strike after one was taken out, and before it did anything."""

    def settle(self, outcome: bool | BaseException) -> None:
        """Fix the outcome and call the callbacks."""
        self.outcome = outcome
        self.settled = True
        if self._callbacks:
            self.call_back()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once settled, at once if it is already; from whichever thread settles it."""
        self._known.append(callback)
        self._callbacks.append(callback)
        if self.settled:
            self.call_back()

    def call_back(self) -> None:
        """Call the callbacks that were not called yet."""
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread was faster
                return
            callback()

    def call_all(self) -> None:
        """After an interrupt: call each once more. Callbacks do nothing if they were called before."""
        self._callbacks.clear()
        for callback in tuple(self._known):
            callback()

    def result(self) -> bool:
        """The outcome of a settled ticket, raised if it is an error."""
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Driver(Protocol):
    """Whatever settles tickets: the committer."""

    def drive(self, ticket: Ticket) -> None:
        """Settle the ticket now, on this thread."""
        ...

    def nudge(self) -> None:
        """See that waiting tickets are settled soon, without blocking this thread for long."""
        ...


class Signal:
    """A wake-up for a waiting thread: `wait` returns True once `set` was called, False when time is up."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        """Wake the waiter."""
        self._event.set()

    def clear(self) -> None:
        """Be ready to wake it again."""
        self._event.clear()

    def wait(self, seconds: float) -> bool:
        """Wait for `set`."""
        return self._event.wait(seconds)


class Helper(Ticket):
    """A call on a thread of its own, which can be abandoned: it keeps neither its caller nor the program's end."""

    function: Callable[[], Any]
    _value: Any = None

    def __post_init__(self) -> None:
        context = copy_context()
        Thread(target=lambda: context.run(self._call), name="holdfast-step", daemon=True).start()

    def _call(self) -> None:
        try:
            self._value = self.function()
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            self.settle(error)
        else:
            self.settle(True)

    def returned(self) -> Any:
        """What the settled call returned, or raise what it raised."""
        self.result()
        return self._value


def late(seconds: float) -> StepTimeout:
    """The error of a call that took too long."""
    return StepTimeout(f"no result within {seconds:.3g} s", type="StepTimeout")
