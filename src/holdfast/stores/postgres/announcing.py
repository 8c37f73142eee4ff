"""Listening by LISTEN, on a connection of its own. Behind a pooler that shares sessions, a listener hears nothing."""

from collections.abc import Callable
from hashlib import sha256

import psycopg

from holdfast.stores.announcing import ServerListener
from holdfast.stores.postgres.connections import Connection, is_direct


def channel_of(store: bytes, prefix: bytes) -> str:
    """Return the channel of a namespace: a name that needs no quotes."""
    return f"holdfast_{sha256(store + prefix).hexdigest()[:32]}"


class PostgresListener(ServerListener):
    """See `ServerListener`."""

    def __init__(self, connect: Callable[[], Connection | None], channel: str) -> None:
        super().__init__()
        self._connect = connect
        self._channel = channel

    def connected(self) -> Connection | None:
        """See `ServerListener.connected`."""
        try:
            connection = self._connect()
            if connection is None or not is_direct(connection):
                self._connect_at = float("inf")  # it would be in vain
                if connection is not None:
                    connection.close()
                return None
            connection.execute(f"LISTEN {self._channel}".encode())
        except psycopg.Error:
            return None
        return connection

    def hears(self, connection: Connection, timeout: float) -> bool | None:
        """See `ServerListener.hears`: one answer for all that has arrived."""
        try:
            is_heard = bool([*connection.notifies(timeout=timeout, stop_after=1)])
            return is_heard or bool([*connection.notifies(timeout=0)])
        except psycopg.Error:
            return None

    def disconnect(self, connection: Connection) -> None:
        """See `ServerListener.disconnect`."""
        connection.close()
