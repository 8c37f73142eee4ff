"""A submit in the caller's own transaction: the thread exists if it commits, and never existed if it does not."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

import holdfast
from holdfast import sync
from servers.postgres import new_schema, shared_server

pytestmark = pytest.mark.servers
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def schema() -> str:
    return new_schema()


@pytest.fixture
def store(schema: str) -> Iterator[sync.Store]:
    with sync.PostgresStore(shared_server().conninfo(), schema) as opened:
        yield opened


@pytest.fixture
def connection() -> Iterator[Connection]:
    with psycopg.connect(shared_server().conninfo(), autocommit=True) as opened:
        yield opened


def test_a_thread_exists_once_its_transaction_commits(store: sync.Store, connection: Connection) -> None:
    with connection.transaction():
        handle = store.submit("app:f", "t", (1,), connection=connection)
        with pytest.raises(holdfast.NotFound):
            store.thread("t")
    assert handle.wait is not None
    assert store.thread("t").status == "queued"


def test_a_rolled_back_submit_never_was(store: sync.Store, connection: Connection) -> None:
    with connection.transaction(force_rollback=True):
        store.submit("app:f", "t", (1,), connection=connection)
    with pytest.raises(holdfast.NotFound):
        store.thread("t")
    store.submit("app:f", "t", (2,))
    assert store.thread("t").row_count == 1


def test_the_same_call_is_the_same_thread_and_another_leaves_the_transaction_usable(
    store: sync.Store, connection: Connection
) -> None:
    store.submit("app:f", "t", (1,))
    with connection.transaction():
        store.submit("app:f", "t", (1,), connection=connection)
        with pytest.raises(holdfast.KeyReused):
            store.submit("app:f", "t", (2,), connection=connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert store.thread("t").row_count == 1


def test_a_thread_of_the_same_open_transaction_is_a_conflict(store: sync.Store, connection: Connection) -> None:
    with connection.transaction():
        store.submit("app:f", "t", (1,), connection=connection)
        with pytest.raises(holdfast.Conflict, match="still open, perhaps this one"):
            store.submit("app:f", "t", (1,), connection=connection)
    assert store.thread("t").status == "queued"


def test_a_connection_needs_an_open_transaction_in_the_same_database(store: sync.Store, connection: Connection) -> None:
    with pytest.raises(holdfast.ConfigurationError, match="no transaction is open"):
        store.submit("app:f", "t", (1,), connection=connection)
    with pytest.raises(holdfast.ConfigurationError, match="psycopg connection"):
        store.submit("app:f", "t", (1,), connection=object())


def test_an_awaitable_connection_works_too(schema: str) -> None:
    async def main() -> str:
        conninfo = shared_server().conninfo()
        async with (
            holdfast.PostgresStore(conninfo, schema) as store,
            await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection,
        ):
            async with connection.transaction():
                await store.submit("app:f", "t", (1,), connection=connection)
            status = (await store.thread("t")).status
            assert status is not None
            return status.value

    assert asyncio.run(main()) == "queued"


def test_a_cancelled_submit_leaves_the_connection_usable(schema: str) -> None:
    async def main() -> None:
        conninfo = shared_server().conninfo()
        async with (
            holdfast.PostgresStore(conninfo, schema) as store,
            await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection,
        ):

            async def submit(thread_id: str) -> None:
                async with connection.transaction():
                    await store.submit("app:f", thread_id, (1,), connection=connection)

            await submit("warm")
            for number in range(60):
                task = asyncio.create_task(submit(f"t{number}"))
                await asyncio.sleep(number * 0.0002)
                task.cancel()
                await asyncio.wait([task])
                assert connection.info.transaction_status == TransactionStatus.IDLE, number

    asyncio.run(main())


def test_a_fork_is_not_queued_by_a_transaction_that_may_roll_back(store: sync.Store, connection: Connection) -> None:
    store.submit("app:f", "t", (1,))
    store.save("t", {}, status="idle")
    with connection.transaction(), pytest.raises(holdfast.Conflict, match="without `connection`"):
        store.submit("app:f", "t", (1,), connection=connection)
    assert store.thread("t").status == "idle"
