"""Listening by SUBSCRIBE to one channel for each namespace, on a connection of its own."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

from holdfast.stores.announcing import ServerListener
from holdfast.stores.redis.errors import CLOSED, FAILURES, NotSent
from holdfast.stores.redis.keys import Keys

PATIENCE = 10.0
"""For how many seconds of silence a connection is trusted."""


def channel_of(keys: Keys, prefix: bytes) -> bytes:
    """Return the channel of a namespace. The ACL of a prefix covers it."""
    return keys.prefix.encode() + b":due:" + prefix


class RedisListener(ServerListener):
    """See `ServerListener`."""

    def __init__(self, connect: Callable[[], Any], channel: bytes) -> None:
        super().__init__()
        self._connect = connect
        self._channel = channel
        self._trusted_until = 0.0

    def connected(self) -> Any:
        """See `ServerListener.connected`."""
        connection: Any = None
        try:
            connection = self._connect()
            connection.connect()
            connection.send_command("SUBSCRIBE", self._channel)
            connection.read_response()
        except (NotSent, *FAILURES):
            if connection is not None:
                connection.disconnect()
            return None
        self._trusted_until = monotonic() + PATIENCE
        return connection

    def hears(self, connection: Any, timeout: float) -> bool | None:
        """See `ServerListener.hears`. A silent connection is asked for a sign of life, and cut if none comes."""
        try:
            if not connection.can_read(min(timeout, PATIENCE / 2)):
                silence_left = self._trusted_until - monotonic()
                if 0 < silence_left <= PATIENCE / 2:
                    connection.send_command("PING", check_health=False)
                return False if silence_left > 0 else None
            kind = connection.read_response()[0]
        except (*FAILURES, *CLOSED, ResponseError):
            return None
        self._trusted_until = monotonic() + PATIENCE
        return bool(kind == b"message")

    def disconnect(self, connection: Any) -> None:
        """See `ServerListener.disconnect`."""
        connection.disconnect()
