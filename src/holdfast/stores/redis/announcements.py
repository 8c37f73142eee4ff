"""Wake-ups of idle processes: messages on one channel for each namespace. They are hints, and may be lost."""

from collections.abc import Callable, Collection
from threading import Lock, Timer
from time import monotonic, sleep
from typing import Any

from redis.exceptions import ResponseError

from holdfast.ports import reset_after_fork
from holdfast.records.errors import HoldfastError
from holdfast.stores.redis.errors import FAILURES, NotSent
from holdfast.stores.redis.keys import Keys
from holdfast.stores.redis.wire import Request, Wire

QUIET = 0.01
"""For how many seconds a queue is not announced again: what comes meanwhile is announced together, at the end."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""How many seconds pass between attempts to connect."""
PATIENCE = 10.0
"""For how many seconds of silence a connection is trusted."""


def channel_of(keys: Keys, prefix: bytes) -> bytes:
    """Return the channel of a namespace. The ACL of a prefix covers it."""
    return keys.prefix.encode() + b":due:" + prefix


class Announcer:
    """Publishes that queues may have something due, each at most once in `QUIET` seconds."""

    def __init__(self, wire: Wire, keys: Keys) -> None:
        self._wire = wire
        self._keys = keys
        self._free_at: dict[tuple[bytes, str], float] = {}
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock in a forked child, where no announcement is under way."""
        self._lock = Lock()
        self._waiting: set[tuple[bytes, str]] = set()

    def announce(self, prefix: bytes, queues: Collection[str]) -> None:
        """See `Announcing.announce`."""
        now = monotonic()
        with self._lock:
            new = [(prefix, queue) for queue in queues if (prefix, queue) not in self._waiting]
            free = [each for each in new if self._free_at.get(each, 0) <= now]
            early = [each for each in new if each not in free]
            self._free_at.update(dict.fromkeys(free, now + QUIET))
            self._waiting.update(early)
        if early:
            timer = Timer(QUIET, self._announce_later, (early,))
            timer.daemon = True
            timer.start()
        if free:
            self._publish(free)

    def _announce_later(self, queues: list[tuple[bytes, str]]) -> None:
        with self._lock:
            self._waiting.difference_update(queues)
            self._free_at.update(dict.fromkeys(queues, monotonic() + QUIET))
        self._publish(queues)

    def _publish(self, queues: list[tuple[bytes, str]]) -> None:
        channels = [(channel_of(self._keys, prefix), queue.encode()) for prefix, queue in queues]
        try:
            self._wire.once([Request(0, (b"PUBLISH", *each)) for each in channels])
        except HoldfastError:
            return  # the store was closed, or cannot be reached: workers look again by themselves


class RedisListener:
    """Subscribes on a connection of its own. After a cut it connects again, and reports a wake-up."""

    def __init__(self, connect: Callable[[], Any], channel: bytes) -> None:
        self._connect = connect
        self._channel = channel
        self._connection: Any = None
        self._is_closed = False
        self._pause = 0.0
        self._try_at = 0.0
        self._trusted_until = 0.0
        self._subscribe()

    @property
    def is_connected(self) -> bool:
        """See `Listener.is_connected`."""
        return self._connection is not None

    def wait(self, timeout: float) -> bool:
        """See `Listener.wait`."""
        ends_at = monotonic() + timeout
        while not self._is_closed:
            left = ends_at - monotonic()
            if self._connection is None:
                sleep(max(0.0, min(left, self._try_at - monotonic())))
                if monotonic() >= self._try_at and self._subscribe():
                    return True
            elif self._hears(max(0.0, min(left, PATIENCE / 2))):
                return True
            if left <= 0:
                return False
        return False

    def close(self) -> None:
        """See `Listener.close`."""
        self._is_closed = True
        self._drop()

    def _subscribe(self) -> bool:
        """Connect and subscribe; after a failure set the time of the next attempt."""
        try:
            self._connection = self._connect()
            self._connection.connect()
            self._connection.send_command("SUBSCRIBE", self._channel)
            self._connection.read_response()
        except (NotSent, *FAILURES):
            self._drop()
            self._pause = min(LONGEST_PAUSE, 2 * self._pause or FIRST_PAUSE)
            self._try_at = monotonic() + self._pause
            return False
        self._pause, self._trusted_until = 0.0, monotonic() + PATIENCE
        return True

    def _hears(self, timeout: float) -> bool:
        """True if a message came. A silent connection is asked for a sign of life, and dropped if none comes."""
        connection = self._connection
        try:
            if not connection.can_read(timeout):
                self._check_silence()
                return False
            kind = connection.read_response()[0]
        except (*FAILURES, ResponseError, AttributeError, ValueError):
            self._drop()
            return False
        self._trusted_until = monotonic() + PATIENCE
        return bool(kind == b"message")

    def _check_silence(self) -> None:
        silence_left = self._trusted_until - monotonic()
        if silence_left <= 0:
            self._drop()
        elif silence_left <= PATIENCE / 2:
            self._connection.send_command("PING", check_health=False)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
