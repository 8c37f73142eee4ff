"""Connections to one server, and the one thing done with them: send some commands, read as many replies.

redis-py's clients repeat a command whose reply was lost. Nothing here does: whoever called is told how far it got.
"""

import select
from collections import deque
from collections.abc import Callable, Sequence
from threading import Semaphore
from typing import Any

from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,  # noqa: A004
    InvalidResponse,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004
)

from holdfast.ports import reset_after_fork

PATIENCE_SECONDS = 20.0
TURNED_AWAY = "max number of clients"

Command = Sequence[bytes | int]
Connection = Any
"""A connection of redis-py, which gives no types for what is done here."""


class NotSent(Exception):
    """The server was not reached, or turned the connection away: certainly nothing was done."""


class Lost(Exception):
    """The commands were sent, and no reply came: they may or may not have been done."""


def packed(commands: Sequence[Command]) -> bytes:
    """Commands in the protocol of Redis."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for word in command:
            data = word if isinstance(word, bytes) else b"%d" % word
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Connections:
    """Connections to one server: made when they are needed, kept while they work, never shared by two threads."""

    def __init__(self, make: Callable[[], Connection], limit: int) -> None:
        self._make = make
        self._limit = limit
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """None: a forked child must not talk on its parent's."""
        self._idle: deque[Connection] = deque()
        self._free = Semaphore(self._limit)

    def send(self, commands: Sequence[Command]) -> Connection:
        """Send commands; returns the connection to `receive` their replies from."""
        if not self._free.acquire(timeout=PATIENCE_SECONDS):
            raise NotSent(f"all {self._limit} connections to the server are in use")
        return self._sent(commands)

    def send_if_free(self, commands: Sequence[Command]) -> Connection | None:
        """The same, or None if it would have to wait for a connection."""
        return self._sent(commands) if self._free.acquire(blocking=False) else None

    def _sent(self, commands: Sequence[Command]) -> Connection:
        try:
            connection = self._connected()
        except BaseException:
            self._free.release()
            raise
        try:
            connection.send_packed_command([packed(commands)], check_health=False)
        except BaseException as error:
            self.discard(connection)
            if isinstance(error, RedisError):
                raise Lost(str(error)) from error
            raise
        return connection

    def receive(self, connection: Connection, count: int) -> list[Any]:
        """As many replies; errors among them as they are. `Lost` if not all of them came."""
        replies: list[Any] = []
        try:
            for _ in range(count):
                try:
                    replies.append(connection.read_response(disable_decoding=True, disconnect_on_error=False))
                except (ResponseError, BusyLoadingError) as refusal:
                    replies.append(refusal)
        except BaseException as error:
            self.discard(connection)
            if isinstance(error, (ConnectionError, TimeoutError, InvalidResponse)):
                raise (NotSent if TURNED_AWAY in str(error) else Lost)(str(error)) from error
            raise
        self._idle.append(connection)
        self._free.release()
        return replies

    def close(self) -> None:
        """Close those that are not in use."""
        while self._idle:
            self._idle.pop().disconnect()

    def _connected(self) -> Connection:
        """The connection used last, if the server has not closed it meanwhile; else a new one."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._make()
        if not _is_stale(connection):
            return connection
        # The others will not do any better: a server that comes back has forgotten them all.
        connection.disconnect()
        self.close()
        return self._make()

    def discard(self, connection: Connection) -> None:
        """Give up a connection whose replies nobody waits for."""
        connection.disconnect()
        self._free.release()


def connected(connection: Connection) -> Connection:
    """The connection, connected, or `NotSent`."""
    try:
        connection.connect()
    except (ConnectionError, TimeoutError, InvalidResponse, OSError) as error:
        connection.disconnect()
        raise NotSent(str(error)) from error
    return connection


def _is_stale(connection: Connection) -> bool:
    """True if there is something to read on an idle connection: its end, or the rest of what nobody waited for."""
    sock = connection._sock  # noqa: SLF001  redis-py's own test of it costs as much as a whole command
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
