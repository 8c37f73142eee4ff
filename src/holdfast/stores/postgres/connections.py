"""Where connections come from: opened here and kept for the next, or taken from a pool that the user brought.

A connection is in autocommit mode while it is out, and idle; nothing is ever set on its session, so that it may lead
through a pooler. One that the server has hung up is found out before anything is sent on it.
"""

import select
from threading import BoundedSemaphore
from typing import Any, Protocol, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed

from holdfast.ports import reset_after_fork
from holdfast.records.errors import ConfigurationError, StoreUnavailable
from holdfast.records.urls import redacted
from holdfast.stores.transport import transport

Connection: TypeAlias = psycopg.Connection[Any]
Pool: TypeAlias = ConnectionPool[Any] | AsyncConnectionPool[Any]
Source: TypeAlias = str | Pool | Connection | psycopg.AsyncConnection[Any]
CONNECTIONS = 8
WAIT_SECONDS = 30.0
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "holdfast",
}
"""So that a server that vanished without a word is missed within a minute, not within hours."""


class Connections(Protocol):
    """A stock of connections. What was taken is given back, sound or not."""

    def take(self) -> Connection:
        """A connection in autocommit mode that the server has not hung up; `psycopg.Error` if there is none."""
        ...

    def give(self, connection: Connection) -> None:
        """Take it back; one that is closed is forgotten."""
        ...

    def close(self) -> None:
        """Close what was opened here."""
        ...


def is_sound(connection: Connection) -> bool:
    """False if the server has hung up: a closed socket can be read from at any time, an idle one never."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if not poll.poll(0):
        return True
    try:
        connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not poll.poll(0)


def is_direct(connection: Connection) -> bool:
    """True if the session is with PostgreSQL itself: a pooler gives its clients process numbers of its own.

    Only there may statements be prepared: behind a pooler the next one may meet another session.
    """
    found = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    return found is not None and found[0] == connection.info.backend_pid


def transport_of(connection: Connection) -> str:
    """How statements travel to the server, by the settings in effect: the environment may have given some of them."""
    given = connection.info.get_parameters()
    hosts = given.get("hostaddr") or given.get("host") or ""
    mode = given.get("sslmode", "prefer")
    return transport(hosts.split(","), "" if mode == "verify-full" else f"sslmode={mode}")


class OwnConnections:
    """At most `limit` connections, opened when they are needed and kept."""

    def __init__(self, conninfo: str, options: dict[str, Any], limit: int, prepare_threshold: int | None) -> None:
        self.conninfo = conninfo
        self._options = options
        self._prepare_threshold = prepare_threshold
        self._limit = limit
        self._is_closed = False
        self._inherited: list[Connection] = []
        self._idle: list[Connection] = []
        self._free = BoundedSemaphore(limit)
        reset_after_fork(self)

    def after_fork(self) -> None:
        """The connections are the parent's: they are neither used nor closed here."""
        self._inherited += self._idle
        self._idle = []
        self._free = BoundedSemaphore(self._limit)

    def take(self) -> Connection:
        """See `Connections.take`: the one that was used last, or a new one."""
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise psycopg.OperationalError(f"all {self._limit} connections are in use; raise connections=")
        try:
            while self._idle:
                connection = self._idle.pop()
                if is_sound(connection):
                    return connection
                connection.close()
            return self._connected()
        except BaseException:
            self._free.release()
            raise

    def _connected(self) -> Connection:
        connection = psycopg.connect(self.conninfo, autocommit=True, prepare_threshold=None, **self._options)
        if self._prepare_threshold is not None and is_direct(connection):
            connection.prepare_threshold = self._prepare_threshold
        return connection

    def give(self, connection: Connection) -> None:
        """See `Connections.give`."""
        if not connection.closed:
            self._idle.append(connection)
        self._free.release()
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """See `Connections.close`; those that are out are closed when they come back."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()


class PooledConnections:
    """Connections of a pool that the user brought, and closes; they go back as they came."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self._modes: dict[Connection, bool] = {}

    def take(self) -> Connection:
        """See `Connections.take`."""
        while True:
            try:
                connection: Connection = self._pool.getconn()
            except PoolClosed as error:
                raise StoreUnavailable("the pool given to this store is closed; open it before the store") from error
            if is_sound(connection):
                break
            connection.close()
            self._pool.putconn(connection)
        self._modes[connection] = connection.autocommit
        connection.autocommit = True
        return connection

    def give(self, connection: Connection) -> None:
        """See `Connections.give`."""
        mode = self._modes.pop(connection)
        if not connection.closed:
            connection.autocommit = mode
        self._pool.putconn(connection)

    def close(self) -> None:
        """The pool is the user's."""


def connections_of(source: Source, limit: int, prepare_threshold: int | None) -> Connections:
    """The connections that a URL, a pool or a connection stands for.

    A blocking pool is used itself. Of an async pool, or of a single connection, the settings are copied.
    """
    if isinstance(source, ConnectionPool):
        return PooledConnections(source)
    conninfo, options = _settings_of(source)
    try:
        given = conninfo_to_dict(conninfo)
        for host in str(given.get("host") or "").split(","):
            if not host.startswith(("/", "@")):  # the directory of a socket
                host.encode("idna")  # what the resolver will do: a name that it cannot encode is a ValueError
        missing = {name: value for name, value in DEFAULTS.items() if name not in given and name not in options}
        complete = make_conninfo(conninfo, **missing)
    except (psycopg.ProgrammingError, ValueError) as error:  # ValueError: not to be encoded
        why = str(error).partition('"')[0].rstrip(" :")  # what follows in quotes may be a part of the password
        raise ConfigurationError(f"PostgreSQL cannot be found with {redacted(conninfo)!r}: {why}") from None
    return OwnConnections(complete, options, limit, prepare_threshold)


def _settings_of(source: object) -> tuple[str, dict[str, Any]]:
    if isinstance(source, str):
        return source, {}
    if isinstance(source, psycopg.Connection | psycopg.AsyncConnection):
        return make_conninfo(source.info.dsn, password=source.info.password or None), {}
    if isinstance(source, AsyncConnectionPool):
        conninfo, options = source.conninfo, source.kwargs
        if isinstance(conninfo, str) and (options is None or isinstance(options, dict)):
            dropped = {"autocommit", "row_factory", "cursor_factory", "context", "prepare_threshold"}
            return conninfo, {name: value for name, value in (options or {}).items() if name not in dropped}
        raise ConfigurationError("the settings of this pool are made by a function; give PostgresStore a URL instead")
    raise ConfigurationError(
        f"PostgresStore takes a URL, a pool of psycopg_pool or a psycopg connection, not {type(source).__name__}"
    )
