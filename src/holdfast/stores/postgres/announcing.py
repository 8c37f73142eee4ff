"""Announcements by NOTIFY, after a commit and in no transaction; listeners have connections of their own.

Nothing depends on them: behind a pooler that shares sessions between clients, a listener hears nothing.
"""

import os
import select
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from threading import Lock, Timer
from time import monotonic

import psycopg

from holdfast.ports import reset_after_fork
from holdfast.records.errors import StoreError
from holdfast.stores.postgres.connections import Connection, is_direct
from holdfast.stores.postgres.statements import Statements

INTERVAL_SECONDS = 0.01
"""The shortest time between two announcements on a channel: what is announced meanwhile is sent at its end."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


def channel_of(store: bytes, prefix: bytes) -> str:
    """Return the channel of a namespace: a name that needs no quotes."""
    return f"holdfast_{sha256(store + prefix).hexdigest()[:32]}"


class Announcer:
    """Send announcements, not more often than each `INTERVAL_SECONDS`."""

    def __init__(self, statements: Statements, notify: str) -> None:
        self._statements = statements
        self._notify = notify
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Forget the timers in a forked child: they are the parent's."""
        self._lock = Lock()
        self._sent_at: dict[str, float] = {}
        self._timers: dict[str, Timer] = {}

    def announce(self, channel: str) -> None:
        """Send at once, or when the interval since the last one is over."""
        with self._lock:
            if channel in self._timers:
                return
            wait = self._sent_at.get(channel, 0.0) + INTERVAL_SECONDS - monotonic()
            if wait > 0:
                self._timers[channel] = Timer(wait, self._send, [channel])
                self._timers[channel].start()
                return
        self._send(channel)

    def _send(self, channel: str) -> None:
        with self._lock:
            self._timers.pop(channel, None)
            self._sent_at[channel] = monotonic()
        with suppress(StoreError):
            self._statements.read(self._notify, channel)

    def close(self) -> None:
        """Send what waits. Nothing is sent later."""
        with self._lock:
            timers = dict(self._timers)
        for channel, timer in timers.items():
            timer.cancel()
            self._send(channel)
        self._statements.close()


class PostgresListener:
    """See `Listener`. It connects again if it was cut, after longer and longer pauses."""

    def __init__(self, connect: Callable[[], Connection | None], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._connection: Connection | None = None
        self._pause = 0.0
        self._connect_at = 0.0
        self._woken, self._wake = os.pipe()
        self._is_closed = False
        self._waiting = Lock()

    @property
    def is_connected(self) -> bool:
        """See `Listener.is_connected`."""
        return self._connection is not None

    def wait(self, timeout: float) -> bool:
        """See `Listener.wait`. True after each connect: announcements before it may have been missed."""
        ends_at = monotonic() + timeout
        with self._waiting:
            while not self._is_closed:
                if self._connection is None and monotonic() >= self._connect_at and self._connected():
                    return True
                if self._heard(min(ends_at, self._connect_at) if self._connection is None else ends_at):
                    return True
                if monotonic() >= ends_at:
                    break
        return False

    def _connected(self) -> bool:
        """Connect and listen; False if that failed, or would be in vain."""
        self._pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE)
        self._connect_at = monotonic() + self._pause
        try:
            connection = self._connect()
            if connection is None or not is_direct(connection):
                self._connect_at = float("inf")
                if connection is not None:
                    connection.close()
                return False
            connection.execute(f"LISTEN {self._channel}".encode())
        except psycopg.Error:
            return False
        self._connection = connection
        return True

    def _heard(self, until: float) -> bool:
        """Block until a notification arrives, the connection is cut, the listener is closed, or a time has come."""
        poll, connection = select.poll(), self._connection
        poll.register(self._woken, select.POLLIN)
        if connection is not None:
            poll.register(connection.fileno(), select.POLLIN)
        if not poll.poll(max(0.0, until - monotonic()) * 1000) or connection is None or self._is_closed:
            return False
        try:
            connection.pgconn.consume_input()
            is_heard = connection.pgconn.notifies() is not None
            while connection.pgconn.notifies():
                """One answer for all that have arrived."""
        except psycopg.Error:
            connection.close()
            self._connection = None
            return False
        self._pause = 0.0
        return is_heard

    def close(self) -> None:
        """See `Listener.close`: a call that waits returns."""
        if self._is_closed:
            return
        self._is_closed = True
        os.write(self._wake, b"x")
        with self._waiting:
            if self._connection is not None:
                self._connection.close()
            os.close(self._wake)
            os.close(self._woken)
