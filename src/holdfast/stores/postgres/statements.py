"""Running statements: one round trip each, tried again while nothing was sent or the outcome does not matter."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncRawCursor, RawCursor
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper

from holdfast.records.errors import StoreClosed
from holdfast.stores.attempts import attempts
from holdfast.stores.postgres.connections import Connection, Connections
from holdfast.stores.postgres.errors import READ_ONLY, is_lost, is_passing, translated

T = TypeVar("T")
Found = list[tuple[Any, ...]]


def send_lists_in_binary(cursor: RawCursor[Any] | AsyncRawCursor[Any], parameters: Sequence[Any]) -> None:
    """Have this cursor send lists as binary arrays: in text, the default, each byte of a `bytes` would take two."""
    if any(type(parameter) is list and parameter for parameter in parameters):
        cursor.adapters.register_dumper(list, ListBinaryDumper)


class Statements:
    """Statements on connections of a pool. An outage is retried for up to `patience` seconds.

    The very first connection is not waited for: what is wrong then is most likely the address or the password.
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
        """The rows of a query. A connection that breaks meanwhile is replaced, and the query asked again."""
        return self.run(lambda connection: self._executed(connection, sql, parameters))

    def write(self, sql: str, *parameters: Any) -> Found:
        """The rows of a statement that writes; `OutcomeUnknown` if the connection broke while it was under way."""
        return self.run(lambda connection: self._executed(connection, sql, parameters), writing=True)

    def run(self, work: Callable[[Connection], T], *, writing: bool = False) -> T:
        """What `work` returns for a connection. It is called again unless it may have written something."""
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
                may_repeat = not writing if lost else is_passing(error)
                if is_last or not may_repeat:
                    raise translated(error, in_doubt=lost and writing) from error
            except BaseException:
                # A KeyboardInterrupt, say: an answer may still be on its way.
                connection.close()
                raise
            finally:
                self._connections.give(connection)
        raise AssertionError  # the last attempt returned or raised

    def _taken(self, *, is_last: bool) -> Connection | None:
        """A connection, or None if there is none now and another attempt is left."""
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

    def _executed(self, connection: Connection, sql: str, parameters: Sequence[Any]) -> Found:
        cursor = RawCursor(connection, row_factory=tuple_row)
        send_lists_in_binary(cursor, parameters)
        cursor.execute(sql, parameters, prepare=self._prepare, binary=True)
        return cursor.fetchall()
