"""Announcements that threads may be due, through a server: what the stores that have one share.

An announcement is a hint, and may be lost: the agenda alone says what is due.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Timer
from time import monotonic
from typing import Any

from holdfast.ports import reset_after_fork
from holdfast.records.errors import StoreError

QUIET_SECONDS = 0.01
"""The shortest time between two announcements on a channel: what is announced meanwhile is sent at its end."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""How many seconds pass between attempts to connect."""
LISTEN_SECONDS = 0.5
"""For how long a listener listens before it looks whether it was closed."""


class Announcer:
    """Sends announcements, on each channel not more often than every `QUIET_SECONDS`. Never raises."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Forget the timers in a forked child: they are the parent's."""
        self._lock = Lock()
        self._sent_at: dict[bytes, float] = {}
        self._timers: dict[bytes, Timer] = {}

    def announce(self, channel: bytes) -> None:
        """Send at once, or when the interval since the last one is over."""
        with self._lock:
            if channel in self._timers:
                return
            wait = self._sent_at.get(channel, 0.0) + QUIET_SECONDS - monotonic()
            if wait > 0:
                self._timers[channel] = timer = Timer(wait, self._announce_now, [channel])
                timer.daemon = True
                timer.start()
                return
        self._announce_now(channel)

    def _announce_now(self, channel: bytes) -> None:
        with self._lock:
            self._timers.pop(channel, None)
            self._sent_at[channel] = monotonic()
        with suppress(StoreError):  # the store was closed, or cannot be reached: workers look again by themselves
            self._send(channel)

    def close(self) -> None:
        """Send what waits."""
        with self._lock:
            timers = dict(self._timers)
        for channel, timer in timers.items():
            timer.cancel()
            self._announce_now(channel)


class ServerListener(ABC):
    """See `Listener`. It has a connection of its own, and makes another one if that is cut, after longer pauses."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._pause = 0.0
        self._connect_at = 0.0
        self._closed = Event()
        self._waiting = Lock()

    @abstractmethod
    def connected(self) -> Any:
        """Return a connection that listens; None if it cannot be made now. `_connect_at` may say that it never can."""

    @abstractmethod
    def hears(self, connection: Any, timeout: float) -> bool | None:
        """Block until something is announced, and return True; False after `timeout`; None if the connection is cut."""

    @property
    def is_connected(self) -> bool:
        """See `Listener.is_connected`."""
        return self._connection is not None

    def wait(self, timeout: float) -> bool:
        """See `Listener.wait`. True after each connect: announcements before it may have been missed."""
        with self._waiting:
            is_heard = self._wait(monotonic() + timeout)
        if self._closed.is_set():
            self.close()  # while this thread waited, `close` could not disconnect
        return is_heard

    def _wait(self, ends_at: float) -> bool:
        while not self._closed.is_set():
            left = max(0.0, ends_at - monotonic())
            if self._connects(left) if self._connection is None else self._listens(min(left, LISTEN_SECONDS)):
                return True
            if not left:
                break
        return False

    def _connects(self, longest: float) -> bool:
        """Connect if it is time for an attempt; else wait for that."""
        pause = self._connect_at - monotonic()
        if pause > 0:
            self._closed.wait(min(longest, pause))
            return False
        self._pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE)
        self._connect_at = monotonic() + self._pause
        self._connection = self.connected()
        return self._connection is not None

    def _listens(self, timeout: float) -> bool:
        is_heard = self.hears(self._connection, timeout)
        if is_heard is None:
            self._drop()
        elif is_heard:
            self._pause = 0.0
        return bool(is_heard)

    def close(self) -> None:
        """See `Listener.close`. If a thread waits, that one disconnects, in a moment."""
        self._closed.set()
        if self._waiting.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._waiting.release()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self.disconnect(connection)

    @abstractmethod
    def disconnect(self, connection: Any) -> None:
        """Close a connection."""
