"""A swap within a transaction on the user's own psycopg connection, blocking or awaitable."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.ports import Ports
from holdfast.records.errors import ConfigurationError, OutcomeUnknown
from holdfast.records.rows import Swap
from holdfast.stores.postgres.statements import AnyConnection, is_lost, raw_cursor, translated
from holdfast.stores.postgres.swapping import call_for


class PostgresTransaction:
    """See `Transaction`. This class begins, commits and rolls back; the user only executes statements."""

    def __init__(self, ports: Ports, connection: object, sql: dict[str, str], store: bytes, *, demanded: bool) -> None:
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            raise ConfigurationError(f"`connection` must be a psycopg connection, got {type(connection).__name__}")
        self._ports = ports
        self._connection: AnyConnection = connection
        self._sql = sql
        self._store = store
        self._demanded = demanded
        self._block = connection.transaction()
        self._is_open = False

    async def begin(self) -> None:
        """See `Transaction.begin`."""
        if self._connection.info.transaction_status != TransactionStatus.IDLE:
            raise ConfigurationError(
                "the connection given to this step is in a transaction, or broken; commit first: the step begins and"
                " commits its own transaction"
            )
        await self._begin_here()

    async def join(self) -> None:
        """See `Transaction.join`: a savepoint in the user's transaction."""
        if self._connection.info.transaction_status != TransactionStatus.INTRANS:
            raise ConfigurationError(
                "no transaction is open on this connection, or it is broken; begin one first, with"
                " connection.transaction()"
            )
        await self._begin_here()

    async def _begin_here(self) -> None:
        try:
            await self._enter()
            leads_here = await self._leads_here()
        except psycopg.Error as error:
            await self.roll_back(error)
            raise translated(error) from error
        if not leads_here:
            refusal = ConfigurationError("this connection is to another database than the store")
            await self.roll_back(refusal)
            raise refusal

    async def _enter(self) -> None:
        block: Any = self._block
        await self._call(getattr(block, "__aenter__", None) or block.__enter__)
        self._is_open = True

    async def _leads_here(self) -> bool:
        try:
            return bool(await self._execute(self._sql["is_store"], self._store))
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return False

    async def swap(self, swap: Swap) -> bool:
        """See `Transaction.swap`."""
        name, parameters = call_for([swap], demanded=self._demanded)
        try:
            outcome = (await self._execute(self._sql[name], *parameters))[0][0]
        except psycopg.Error as error:
            raise translated(error) from error
        return bool(outcome if name == "swap_row" else outcome[0])

    async def commit(self) -> None:
        """See `Transaction.commit`."""
        try:
            await self._leave(None)
        except psycopg.Error as error:
            if is_lost(self._connection, error):
                raise OutcomeUnknown(f"the connection was lost while the step committed: {error}") from error
            raise

    async def roll_back(self, error: BaseException) -> None:
        """See `Transaction.roll_back`: if the connection is lost, the server rolls back."""
        with suppress(psycopg.Error):
            await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        block: Any = self._block
        leave = getattr(block, "__aexit__", None) or block.__exit__
        await self._call(leave, type(error) if error else None, error, None)

    async def _execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        cursor = raw_cursor(self._connection, parameters)
        await self._ports.invoke(cursor.execute, (sql, parameters), {"prepare": False, "binary": True}, None)
        found: list[tuple[Any, ...]] = await self._call(cursor.fetchall)
        return found

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._ports.invoke(function, arguments, {}, None)
