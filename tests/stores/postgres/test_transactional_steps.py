"""Steps that share a transaction with their record: the effect and the record are one, whatever happens."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import sync
from holdfast.records.head import decode_head, encode_head
from holdfast.records.identity import namespace_prefix, thread_key
from holdfast.records.rows import Swap
from holdfast.stores.decisions import claimed
from patience import GIVE_UP_SECONDS
from rounds import TIMES
from servers.postgres import new_schema, shared_server
from servers.proxy import Proxy
from stores.postgres import transactional
from stores.postgres.scenes import backend_in

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def schema() -> str:
    """A schema with a table of the user's beside it."""
    name = new_schema()
    shared_server().execute("CREATE TABLE IF NOT EXISTS payments (thread text, step integer, by integer)")
    return name


@pytest.fixture
def store(schema: str) -> Iterator[sync.Store]:
    with sync.PostgresStore(shared_server().conninfo(), schema) as opened:
        yield opened


@pytest.fixture
def connection() -> Iterator[Connection]:
    with psycopg.connect(shared_server().conninfo()) as opened:
        yield opened


def paid(thread_id: str) -> list[int]:
    found = shared_server().execute(f"SELECT step FROM payments WHERE thread = '{thread_id}' ORDER BY step")
    return [int(str(step)) for (step,) in found]


def payer(thread_id: str, number: int) -> Callable[..., int]:
    return lambda connection: transactional.pay(connection, thread_id, number)


def test_effect_and_record_are_committed_together(store: sync.Store, schema: str, connection: Connection) -> None:
    for _ in range(2):
        with store.run(schema) as run:
            assert run.step("pay", payer(schema, 1), connection=connection) == 1
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert paid(schema) == [1]


def test_a_connection_in_autocommit_mode_is_as_good(store: sync.Store, schema: str) -> None:
    with psycopg.connect(shared_server().conninfo(), autocommit=True) as connection, store.run(schema) as run:
        assert run.step("pay", payer(schema, 1), connection=connection) == 1
        assert connection.autocommit
    assert paid(schema) == [1]


def test_a_function_that_fails_leaves_nothing_behind(store: sync.Store, schema: str, connection: Connection) -> None:
    def fail(connection: Connection) -> None:
        transactional.pay(connection, schema, 1)
        raise ValueError("changed my mind")

    with store.run(schema) as run:
        with pytest.raises(sync.StepFailed, match="changed my mind"):
            run.step("pay", fail, connection=connection)
        assert run.step("pay again", payer(schema, 2), connection=connection) == 2
    assert paid(schema) == [2]


def test_each_attempt_has_a_transaction_of_its_own(store: sync.Store, schema: str, connection: Connection) -> None:
    attempts: list[int] = []

    def flaky(connection: Connection) -> int:
        attempts.append(len(attempts))
        transactional.pay(connection, schema, len(attempts))
        if len(attempts) < 3:
            raise ValueError("not yet")
        return len(attempts)

    with store.run(schema) as run:
        assert run.step("pay", flaky, connection=connection, retries=5, backoff=0) == 3
    assert paid(schema) == [3]


def test_a_commit_that_the_database_refuses_leaves_neither(
    store: sync.Store, schema: str, connection: Connection
) -> None:
    connection.execute(f"CREATE TABLE {schema}_u (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)".encode())
    connection.commit()

    def twice(connection: Connection) -> None:
        connection.execute(f"INSERT INTO {schema}_u VALUES (1), (1)".encode())

    with store.run(schema) as run:
        with pytest.raises(psycopg.errors.UniqueViolation):
            run.step("twice", twice, connection=connection)
        assert run.step("after", lambda: "went on") == "went on"
        assert run.step("pay", payer(schema, 1), connection=connection) == 1
    with store.run(schema) as run:
        assert run.step("twice", lambda: "executed again") == "executed again"
    assert shared_server().execute(f"SELECT count(*) FROM {schema}_u") == [(0,)]


def take_over(schema: str, thread_id: str) -> None:
    """Claim a thread as another process would after the lease ran out, by a clock that is ahead."""
    backend, thread = backend_in(schema), thread_key(namespace_prefix(""), thread_id)
    backend.open()
    encoded = backend.heads([thread])[0]
    assert encoded is not None
    old = decode_head(thread, encoded)
    new = claimed(old, thread_id, "another", 60_000_000, old.expires_at + 1)
    assert backend.swap([Swap(thread, encoded, encode_head(thread, new), new)]) == [True]
    backend.close()


def test_a_run_whose_claim_was_taken_over_leaves_no_effect(
    store: sync.Store, schema: str, connection: Connection
) -> None:
    def late(connection: Connection) -> int:
        transactional.pay(connection, schema, 1)
        take_over(schema, schema)
        return 1

    with pytest.raises(sync.Fenced), store.run(schema) as run:
        run.step("pay", late, connection=connection)
    assert paid(schema) == []


def test_a_pin_that_comes_between_is_no_hindrance(store: sync.Store, schema: str, connection: Connection) -> None:
    with store.run(schema) as run:
        run.checkpoint({"a": 1})

        def pins(connection: Connection) -> int:
            assert run.checkpoint_id is not None
            store.pin(run.checkpoint_id)
            return transactional.pay(connection, schema, 1)

        assert run.step("pay", pins, connection=connection) == 1
        run.checkpoint({"a": 2})
    assert paid(schema) == [1]
    assert store.verify().ok


def test_what_is_not_possible_is_refused(store: sync.Store, schema: str, connection: Connection) -> None:
    with store.run(schema) as run:
        with pytest.raises(sync.ConfigurationError, match="needs no effect=True"):
            run.step("a", payer(schema, 1), connection=connection, effect=True)
        with pytest.raises(sync.ConfigurationError, match="a psycopg connection, got str"):
            run.step("b", payer(schema, 1), connection="dsn")
        connection.execute("SELECT 1")
        with pytest.raises(sync.ConfigurationError, match="in a transaction"):
            run.step("c", payer(schema, 1), connection=connection)
        connection.rollback()
        shared_server().execute(f"CREATE DATABASE {schema}")
        with (
            psycopg.connect(shared_server().conninfo(dbname=schema)) as elsewhere,
            pytest.raises(sync.ConfigurationError, match="another database"),
        ):
            run.step("d", payer(schema, 1), connection=elsewhere)
    refused = pytest.raises(sync.ConfigurationError, match="PostgreSQL store; this one is memory")
    with sync.MemoryStore() as other, other.run("t") as run, refused:
        run.step("e", payer(schema, 1), connection=connection)
    assert paid(schema) == []


def test_branches_of_a_run_share_a_thread_with_transactions(schema: str) -> None:
    async def main() -> None:
        async with holdfast.PostgresStore(shared_server().conninfo(), schema) as store:
            connections = [await psycopg.AsyncConnection.connect(shared_server().conninfo()) for _ in range(3)]
            async with store.run(schema) as run:
                steps = [
                    run.step(f"pay {n}", transactional.pay_async, schema, n, connection=connections[n])
                    for n in range(3)
                ]
                others = [run.step(f"other {n}", str, n) for n in range(10)]
                done = await asyncio.gather(*steps, *others)
            assert done == [0, 1, 2, *map(str, range(10))]
            for connection in connections:
                await connection.close()
            assert (await store.verify()).ok

    asyncio.run(main())
    assert paid(schema) == [0, 1, 2]


def test_a_lost_reply_to_the_commit_is_found_out(schema: str) -> None:
    proxy = Proxy(shared_server().port)
    through = shared_server().conninfo(port=proxy.port)
    with (
        sync.PostgresStore(shared_server().conninfo(), schema) as store,
        psycopg.connect(through) as connection,
        store.run(schema) as run,
    ):
        proxy.swallow_reply(lambda request: b"COMMIT" in request)
        assert run.step("pay", payer(schema, 1), connection=connection) == 1
        assert connection.closed
        assert run.step("next", lambda: 2) == 2
    proxy.close()
    assert paid(schema) == [1]


@pytest.mark.faults
@pytest.mark.parametrize("world", ["blocking", "awaitable"])
def test_kill_9_leaves_effect_and_record_as_one(world: str, schema: str) -> None:
    kill_payers(world, schema, 3 * TIMES)


def test_the_same_test_finds_an_effect_apart_from_its_record(schema: str) -> None:
    with pytest.raises(AssertionError, match="without a record"):
        kill_payers("apart", schema, 40)


def kill_payers(world: str, schema: str, rounds: int) -> None:
    """Kill one payer after the other, and compare what it did with what is recorded."""
    random = Random(3)
    for number in range(rounds):
        thread_id = f"{schema}_{number}"
        acknowledged = killed_payer(world, schema, thread_id, random.randrange(1, 30), random.randrange(30_000))
        with (
            sync.PostgresStore(shared_server().conninfo(), schema) as store,
            store.run(thread_id, wait=GIVE_UP_SECONDS) as run,
        ):
            recorded = run.steps
        effects = paid(thread_id)
        assert effects == list(range(len(effects))), "no effect twice, none left out"
        assert len(recorded) == len(effects), "an effect without a record, or a record without an effect"
        assert acknowledged <= len(effects) <= acknowledged + 1


def killed_payer(world: str, schema: str, thread_id: str, after: int, spin: int) -> int:
    """How many steps were acknowledged until it was killed."""
    server = shared_server()
    command = [sys.executable, transactional.__file__, server.url(schema), server.conninfo(), thread_id, world]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = 0
        for _ in process.stdout:
            lines += 1
            if lines == after:
                for _ in range(spin):
                    pass
                os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        return lines
