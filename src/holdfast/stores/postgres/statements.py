"""Run statements: one round trip each, repeated only if nothing was written. Translate the errors of psycopg."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncRawCursor, RawCursor
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper

from holdfast.records.errors import Corrupt, OutcomeUnknown, StoreClosed, StoreError, StoreUnavailable
from holdfast.stores.attempts import attempts
from holdfast.stores.postgres.connections import Connection, Connections

T = TypeVar("T")
Found = list[tuple[Any, ...]]
AnyConnection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
DAMAGED = {"XX001", "XX002"}
ENDED = {"57P01", "57P02", "57P03", "57P05", "25P03"}
"""The server ended the session: the outcome of a commit in progress is unknown."""
PASSING = {"40001", "40P01", "55P03", "25006", "57P03"}
"""Certainly nothing was written, and a retry may succeed: a conflict, or a failover."""
READ_ONLY = "25006"
MISSING = {"3F000", "42P01", "42883", "42703"}

ADVICE = {
    "25006": "the server takes no writes: it is a standby, or a failover is under way",
    "42501": "the role may not do this: grant it the rights that docs/postgres.md lists",
    "53100": "the server's disk is full",
    "53200": "the server is out of memory",
    "53300": "the server has no free connection: raise max_connections, or lower connections=",
    "57014": "the statement was cancelled, by statement_timeout or by an administrator",
}


def is_lost(connection: AnyConnection, error: psycopg.Error) -> bool:
    """True if the session is over: an outstanding reply will not come."""
    return connection.closed or error.sqlstate in ENDED


def translated(error: psycopg.Error, *, in_doubt: bool = False) -> StoreError:
    """Return the error to raise for one of psycopg; `in_doubt` if a write was sent and its reply lost."""
    state = error.sqlstate or ""
    text = " ".join(str(error).split()) or type(error).__name__
    if in_doubt:
        return OutcomeUnknown(f"the connection to PostgreSQL was lost during a write: {text}")
    if state in DAMAGED:
        return Corrupt(f"PostgreSQL found its files damaged: {text}", record="database")
    if state in MISSING:
        return StoreUnavailable(f"PostgreSQL: this store's schema is missing or incomplete: {text}")
    advice = ADVICE.get(state)
    return StoreUnavailable(f"PostgreSQL: {advice} ({text})" if advice else f"PostgreSQL: {text}")


def raw_cursor(connection: AnyConnection, parameters: Sequence[Any] = ()) -> Any:
    """Return a cursor that takes `$1` parameters, and sends lists in binary: as text, each byte would take two."""
    cursor: RawCursor[Any] | AsyncRawCursor[Any]
    if isinstance(connection, psycopg.Connection):
        cursor = RawCursor(connection, row_factory=tuple_row)
    else:
        cursor = AsyncRawCursor(connection, row_factory=tuple_row)
    if any(type(parameter) is list and parameter for parameter in parameters):
        cursor.adapters.register_dumper(list, ListBinaryDumper)
    return cursor


class Statements:
    """Run statements on connections of a pool. Retry an outage for up to `patience` seconds.

    The very first connection is not retried: the address or the password is most likely wrong.
    """

    def __init__(self, connections: Connections, patience: float) -> None:
        self._connections = connections
        self._patience = patience
        self._prepare = None if connections.prepares else False
        self._has_connected = False
        self._is_closed = False

    def close(self) -> None:
        """Later statements raise `StoreClosed`."""
        self._is_closed = True
        self._connections.close()

    def read(self, sql: str, *parameters: Any) -> Found:
        """Return the rows of a query. If the connection breaks, repeat the query on another."""
        return self.run(lambda connection: self.execute(connection, sql, parameters))

    def write(self, sql: str, *parameters: Any) -> Found:
        """Return the rows of a statement that writes; `OutcomeUnknown` if the connection broke during it."""
        return self.run(lambda connection: self.execute(connection, sql, parameters), writing=True)

    def run(self, work: Callable[[Connection], T], *, writing: bool = False) -> T:
        """Return what `work` returns for a connection. Repeat it unless it may have written something."""
        for is_last in attempts(self._patience):
            connection = self._taken(is_last=is_last)
            if connection is None:
                continue
            try:
                return work(connection)
            except psycopg.Error as error:
                lost = is_lost(connection, error)
                if lost or error.sqlstate == READ_ONLY:
                    connection.close()
                may_repeat = not writing if lost else error.sqlstate in PASSING
                if is_last or not may_repeat:
                    raise translated(error, in_doubt=lost and writing) from error
            except BaseException:
                # A KeyboardInterrupt, for example: a reply may still be outstanding.
                connection.close()
                raise
            finally:
                self._connections.give(connection)
        raise AssertionError  # the last attempt returned or raised

    def _taken(self, *, is_last: bool) -> Connection | None:
        """Return a connection, or None if none is available now and another attempt is left."""
        if self._is_closed:
            raise StoreClosed("this PostgreSQL store was closed")
        try:
            connection = self._connections.take()
        except psycopg.Error as error:
            if is_last or not self._has_connected:
                raise translated(error) from error
            return None
        self._has_connected = True
        return connection

    def execute(self, connection: Connection, sql: str, parameters: Sequence[Any]) -> Found:
        """Return the rows of one statement on a connection that `run` gave."""
        cursor = raw_cursor(connection, parameters)
        cursor.execute(sql, parameters, prepare=self._prepare, binary=True)
        found: Found = cursor.fetchall()
        return found
