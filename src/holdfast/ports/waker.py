"""Wakes tasks of an event loop from other threads."""

from collections import deque
from contextlib import suppress
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from holdfast.ports.tickets import Driver, Ticket

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class Waker:
    """Wakes the tasks of one event loop: once for a whole batch of settled tickets, not once for each."""

    def __init__(self, loop: "AbstractEventLoop") -> None:
        self.loop = loop
        self._thread = get_ident()
        self._ready: deque[Future[None]] = deque()
        self._nudging: set[Driver] = set()
        self._lock = Lock()

    def nudge_soon(self, driver: Driver) -> None:
        """Nudge the driver once at the end of this iteration of the loop."""
        if driver not in self._nudging:
            self._nudging.add(driver)
            self.loop.call_soon(self._nudge, driver)

    def _nudge(self, driver: Driver) -> None:
        self._nudging.discard(driver)
        driver.nudge()

    def settled(self, ticket: Ticket) -> "Future[None]":
        """Return a future that is resolved once the ticket is settled."""
        done: Future[None] = self.loop.create_future()
        ticket.when_settled(lambda: self._wake(done))
        return done

    def _wake(self, done: "Future[None]") -> None:
        """Resolve a future from any thread. If the loop is closed, no task waits."""
        if get_ident() == self._thread:
            _resolve(done)
            return
        with self._lock:
            self._ready.append(done)
            is_first = len(self._ready) == 1
        if is_first:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        with self._lock:
            ready, self._ready = self._ready, deque()
        for done in ready:
            _resolve(done)


def _resolve(done: "Future[None]") -> None:
    if not done.done():
        done.set_result(None)
