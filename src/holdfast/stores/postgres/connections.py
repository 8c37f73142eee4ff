"""Connections from a pool of psycopg_pool: our own for a URL, or one that the user passes.

A connection is in autocommit mode while it is in use. Nothing is ever set on its session, so it may lead through a
pooler. One that the server has closed is detected before anything is sent on it.
"""

import select
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from holdfast.ports import reset_after_fork
from holdfast.records.errors import ConfigurationError, StoreUnavailable
from holdfast.records.urls import redacted
from holdfast.stores.transport import transport

Connection: TypeAlias = psycopg.Connection[Any]
Pool: TypeAlias = ConnectionPool[Any] | AsyncConnectionPool[Any]
Source: TypeAlias = str | Pool | Connection | psycopg.AsyncConnection[Any]
CONNECTIONS = 8
WAIT_SECONDS = 30.0
RECONNECT_SECONDS = 0.5
"""How long a caller waits for the pool before it connects itself, to get the error."""
CLOSE_SECONDS = 1.0
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "holdfast",
}
"""A server that vanished is detected within a minute, not within hours."""


def is_sound(connection: Connection) -> bool:
    """False if the server has closed the connection: a closed socket is always readable, an idle one never."""
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
    """True if the session is with PostgreSQL itself, not a pooler, which reports other process numbers.

    Statements may be prepared only then: behind a pooler the next statement may run in another session.
    """
    found = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    return found is not None and found[0] == connection.info.backend_pid


def transport_of(connection: Connection) -> str:
    """Describe how statements travel to the server, by the settings in effect, including those of the environment."""
    given = connection.info.get_parameters()
    hosts = given.get("hostaddr") or given.get("host") or ""
    mode = given.get("sslmode", "prefer")
    return transport(hosts.split(","), "" if mode == "verify-full" else f"sslmode={mode}")


class Connections:
    """Connections of a pool. Every connection is returned, sound or not, in the mode it had."""

    prepares = False
    """True if statements may be prepared on them."""

    def __init__(self, pool: ConnectionPool[Connection]) -> None:
        self._pool = pool
        self._modes: dict[Connection, bool] = {}

    def take(self) -> Connection:
        """Return a connection in autocommit mode that the server has not closed; `psycopg.Error` if none is free."""
        while True:
            connection = self._from_pool()
            if is_sound(connection):
                break
            connection.close()
            self._pool.putconn(connection)
        if not connection.autocommit:
            self._modes[connection] = False
            connection.autocommit = True
        return connection

    def _from_pool(self) -> Connection:
        try:
            return self._pool.getconn()
        except PoolClosed as error:
            raise StoreUnavailable("the pool given to this store is closed; open it before the store") from error

    def give(self, connection: Connection) -> None:
        """Return it to the pool, which replaces one that is closed."""
        mode = self._modes.pop(connection, True)
        if not (mode or connection.closed):
            connection.autocommit = mode
        self._pool.putconn(connection)

    def alone(self) -> Connection | None:
        """Return a new connection outside of the pool; None if its settings come from a function."""
        settings = _settings_in(self._pool)
        return settings and psycopg.connect(settings[0], **settings[1], autocommit=True)

    def close(self) -> None:
        """Leave the pool open: the user closes it."""


class UrlConnections(Connections):
    """Connections of our own pool for a URL, at most `limit`.

    The pool connects in the background and reports only timeouts. So a caller makes the first connection itself, and
    one whenever the pool has none for too long: its error says what is wrong.
    """

    prepares = True

    def __init__(self, conninfo: str, options: dict[str, Any], limit: int, prepare_threshold: int | None) -> None:
        self.conninfo = conninfo
        self._limit = limit
        self._prepare_threshold = prepare_threshold
        self._options = {**options, "autocommit": True, "prepare_threshold": None}
        self._connect = partial(psycopg.connect, conninfo, **self._options)
        self._inherited: list[ConnectionPool[Connection]] = []
        super().__init__(self._made())
        reset_after_fork(self)

    def _made(self) -> ConnectionPool[Connection]:
        return ConnectionPool(
            self.conninfo,
            kwargs=self._options,
            min_size=0,
            max_size=self._limit,
            configure=self._configure,
            reconnect_timeout=RECONNECT_SECONDS,
            num_workers=1,
            name="holdfast",
            open=False,
        )

    def _configure(self, connection: Connection) -> None:
        if self._prepare_threshold is not None and is_direct(connection):
            connection.prepare_threshold = self._prepare_threshold

    def after_fork(self) -> None:
        """Use another pool in a child: the connections and the threads of this one are the parent's."""
        self._inherited.append(self._pool)
        self._pool = self._made()

    def _from_pool(self) -> Connection:
        if self._pool.closed:
            self._connect().close()
            self._pool.open()
        ends_at = monotonic() + WAIT_SECONDS
        while monotonic() < ends_at:
            try:
                return self._pool.getconn(RECONNECT_SECONDS)
            except PoolTimeout:
                self._connect().close()  # raises, unless all connections are just in use
        raise psycopg.OperationalError(f"all {self._limit} connections are in use; raise connections=")

    def close(self) -> None:
        """Close the pool; connections in use are closed when they are returned."""
        self._pool.close(CLOSE_SECONDS)


def connections_of(source: Source, limit: int, prepare_threshold: int | None) -> Connections:
    """Return the connections for a URL, a pool or a connection.

    A blocking pool is used itself. Of an async pool or a single connection, only the settings are copied.
    """
    if isinstance(source, ConnectionPool):
        return Connections(source)
    conninfo, options = _settings_of(source)
    try:
        given = conninfo_to_dict(conninfo)
        for host in str(given.get("host") or "").split(","):
            if not host.startswith(("/", "@")):  # the directory of a socket
                host.encode("idna")  # as the resolver will: ValueError if the name cannot be encoded
        missing = {name: value for name, value in DEFAULTS.items() if name not in given and name not in options}
        complete = make_conninfo(conninfo, **missing)
    except (psycopg.ProgrammingError, ValueError) as error:
        why = str(error).partition('"')[0].rstrip(" :")  # the quoted rest may be part of the password
        raise ConfigurationError(f"{redacted(conninfo)!r} is not a URL of PostgreSQL: {why}") from None
    return UrlConnections(complete, options, limit, prepare_threshold)


def _settings_in(pool: Pool) -> tuple[str, dict[str, Any]] | None:
    """Return what the connections of a pool are made with; None if a function makes that up."""
    conninfo, options = pool.conninfo, pool.kwargs
    if isinstance(conninfo, str) and (options is None or isinstance(options, dict)):
        dropped = {"autocommit", "row_factory", "cursor_factory", "context", "prepare_threshold"}
        return conninfo, {name: value for name, value in (options or {}).items() if name not in dropped}
    return None


def _settings_of(source: object) -> tuple[str, dict[str, Any]]:
    if isinstance(source, str):
        return source, {}
    if isinstance(source, psycopg.Connection | psycopg.AsyncConnection):
        return make_conninfo(source.info.dsn, password=source.info.password or None), {}
    if isinstance(source, AsyncConnectionPool):
        if (settings := _settings_in(source)) is not None:
            return settings
        raise ConfigurationError("the settings of this pool come from a function; pass a URL to PostgresStore instead")
    raise ConfigurationError(
        f"PostgresStore takes a URL, a pool of psycopg_pool or a psycopg connection, not {type(source).__name__}"
    )
