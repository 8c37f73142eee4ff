"""Tickets for what is on its way, and signals for who waits."""

from collections.abc import Callable
from contextvars import copy_context
from threading import Event, Lock, Thread
from typing import Any, Protocol

import msgspec

from holdfast.records.errors import StepTimeout

_settling = Lock()
"""One lock for all tickets: it is held for a moment, and a lock for each would cost more than it saves."""


def begin_anew() -> None:
    """In a forked child: it must not wait for a lock that nobody will release."""
    global _settling  # noqa: PLW0603  one lock for all
    _settling = Lock()


class Ticket(msgspec.Struct, eq=False, kw_only=True):
    """A write on its way: settled once, by whoever commits it, as True (done), False (refused) or an error."""

    settled: bool = False
    _outcome: bool | BaseException = False
    _callbacks: tuple[Callable[[], None], ...] = ()

    def settle(self, outcome: bool | BaseException) -> None:
        """Fix the outcome and call whoever waits."""
        with _settling:
            self._outcome = outcome
            self.settled = True
        for callback in self._callbacks:
            callback()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once settled, at once if it is already; from whichever thread settles it."""
        with _settling:
            if not self.settled:
                self._callbacks += (callback,)
                return
        callback()

    def result(self) -> bool:
        """The outcome of a settled ticket, raised if it is an error."""
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


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
    return StepTimeout(f"no result within {seconds:g} s", type="StepTimeout")
