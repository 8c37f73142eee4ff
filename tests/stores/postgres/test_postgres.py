"""What is PostgreSQL's own: its levels, schemas and migrations, pools, poolers, and the connections in between."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import holdfast
from holdfast import sync
from holdfast.records.errors import ConfigurationError, IncompatibleCheckpoint, StoreUnavailable
from holdfast.records.words import Durability
from holdfast.stores.postgres import PostgresBackend, connections
from holdfast.stores.postgres.durability import Settings
from holdfast.stores.postgres.schema import FIRST
from holdfast.testing.conformance import BackendConformance, Kit, check_store, run
from holdfast.testing.conformance.agendas import PREFIX, Agendas
from holdfast.testing.conformance.leases import Leases
from holdfast.testing.conformance.posts import Posts
from holdfast.testing.conformance.swaps import Swaps
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer, new_schema, shared_server
from stores.damage_scenes import THREADS, answers, fill
from stores.postgres.scenes import NOT_WAITING

# Durability


def test_a_server_as_it_is_packaged_is_durable() -> None:
    with sync.PostgresStore(shared_server().conninfo(), new_schema()) as store:
        guarantee = store.guarantee()
    assert guarantee.level == Durability.DURABLE
    assert guarantee.details["synchronous_commit"] == guarantee.details["fsync"] == "on"


def test_a_session_that_does_not_wait_for_the_disk_is_refused() -> None:
    conninfo, schema = shared_server().conninfo(options=NOT_WAITING), new_schema()
    refused = pytest.raises(ConfigurationError, match=r"set synchronous_commit = on.*durability='process'")
    with refused, sync.PostgresStore(conninfo, schema) as store:
        store.save("t", 1)
    with sync.PostgresStore(conninfo, schema, durability="process") as store:
        assert store.guarantee().level == Durability.PROCESS
        assert store.save("t", 1).seq == 1


def test_a_server_without_fsync_is_refused() -> None:
    server = PostgresServer("fsync=off", "full_page_writes=off")
    try:
        backend = PostgresBackend(server.conninfo())
        with pytest.raises(ConfigurationError, match=r"set fsync = on, full_page_writes = on"):
            backend.open()
        backend.close()
    finally:
        server.remove()


def test_tables_that_are_not_logged_are_refused() -> None:
    schema = new_schema()
    with sync.PostgresStore(shared_server().conninfo(), schema) as store:
        store.save("t", 1)
    shared_server().execute(f"ALTER TABLE {schema}.rows SET UNLOGGED")
    with (
        pytest.raises(ConfigurationError, match="SET LOGGED"),
        sync.PostgresStore(shared_server().conninfo(), schema) as store,
    ):
        store.save("t", 2)


def test_a_session_that_was_lowered_later_waits_for_the_disk_all_the_same() -> None:
    """The function raises the setting for its own transaction; nothing is left of it on the session."""
    schema = new_schema()
    with ConnectionPool(shared_server().conninfo(), min_size=1, max_size=1) as pool:
        with sync.PostgresStore(pool, schema) as store:
            store.save("t", {"n": 1})
            with pool.connection() as connection:
                connection.execute("SET synchronous_commit = off")
            shared_server().execute(
                f"CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                f" INSERT INTO {schema}.notes VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
                f"CREATE TABLE {schema}.notes (level text);"
                f"CREATE TRIGGER note AFTER UPDATE ON {schema}.threads EXECUTE FUNCTION {schema}.note()"
            )
            store.save("t", {"n": 2})
        with pool.connection() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
    assert shared_server().execute(f"SELECT level FROM {schema}.notes") == [("on",)]


@pytest.mark.parametrize(
    ("commit", "standbys"), list(product(["off", "local", "remote_write", "on"], ["", "ANY 1 (a, b)"]))
)
def test_levels_follow_from_the_settings(commit: str, standbys: str) -> None:
    settings = Settings("16", commit, "on", "on", standbys, logged=True)
    if commit == "off":
        assert settings.level == Durability.PROCESS
    else:
        assert settings.level == (Durability.REPLICATED if standbys and commit == "on" else Durability.DURABLE)


def test_a_lone_server_is_not_replicated() -> None:
    with (
        pytest.raises(ConfigurationError, match="synchronous_standby_names"),
        sync.PostgresStore(shared_server().conninfo(), new_schema(), durability="replicated") as store,
    ):
        store.save("t", 1)


# Schemas


@pytest.mark.parametrize("schema", ['we"ird', "Über Größe", "select", "a%sb{schema}", "semi;colon--", "x" * 63])
def test_any_printable_name_is_a_schema(schema: str) -> None:
    with sync.PostgresStore(shared_server().conninfo(), schema) as store:
        store.save("t", {"n": 1}, labels={"a": "b"})
        assert [info.thread_id for info in store.threads(labels={"a": "b"})] == ["t"]
        assert store.verify().ok
    names = [row[0] for row in shared_server().execute("SELECT nspname FROM pg_namespace")]
    assert schema in names
    shared_server().execute(f'DROP SCHEMA "{schema.replace(chr(34), chr(34) * 2)}" CASCADE')


@pytest.mark.parametrize("schema", ["x" * 64, "a$b", "a\0b", "a\nb"])
def test_names_that_cannot_be_kept_are_refused(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="`schema` must be"):
        sync.PostgresStore(shared_server().conninfo(), schema)


def test_the_schema_in_the_url_is_the_one_that_is_used() -> None:
    first, second = new_schema(), new_schema()
    with sync.open(shared_server().url(first)) as one, sync.open(shared_server().url(second)) as other:
        one.save("t", 1)
        assert other.latest("t") is None
        with sync.PostgresStore(shared_server().conninfo(), first) as same:
            assert same.latest("t") is not None


@pytest.mark.parametrize(("version", "said"), [(99, "newer Holdfast"), (FIRST - 1, "no released Holdfast")])
def test_a_schema_of_another_version_is_refused(version: int, said: str) -> None:
    schema = new_schema()
    with sync.open(shared_server().url(schema)) as store:
        store.save("t", 1)
    shared_server().execute(f"UPDATE {schema}.store SET version = {version}")
    with pytest.raises(IncompatibleCheckpoint, match=said), sync.open(shared_server().url(schema)) as store:
        store.latest("t")


def test_many_may_open_a_new_schema_at_once() -> None:
    schema = new_schema()
    backends = [PostgresBackend(shared_server().conninfo(), schema=schema) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(backend.open) for backend in backends]:
            done.result()
    for backend in backends:
        assert backend.heads([b"\0t"]) == [None]
        backend.close()
    assert shared_server().execute(f"SELECT count(*), min(version) FROM {schema}.store") == [(1, FIRST)]


def test_a_role_that_may_only_use_the_tables_is_enough() -> None:
    schema, server = new_schema(), shared_server()
    with sync.open(server.url(schema)) as store:
        store.save("t", {"n": 1})
    server.execute(f"CREATE ROLE {schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {schema};")
    conninfo = server.conninfo(user=schema)
    with pytest.raises(StoreUnavailable, match="grant it"), sync.PostgresStore(conninfo, schema) as store:
        store.latest("t")
    server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}")
    with sync.PostgresStore(conninfo, schema) as store:
        assert store.save("t", {"n": 2}).seq == 2
        store.delete("t")


# Pools and poolers


@pytest.fixture
def pool() -> Iterator["ConnectionPool[psycopg.Connection[dict[str, object]]]"]:
    """A pool as a user may have one: with rows as dicts, and transactions that begin by themselves."""
    with ConnectionPool(shared_server().conninfo(), min_size=1, max_size=4, kwargs={"row_factory": dict_row}) as opened:
        yield opened  # type: ignore[misc]


def test_a_pool_of_the_users_is_used_and_left_as_it_was(
    pool: "ConnectionPool[psycopg.Connection[dict[str, object]]]",
) -> None:
    schema = new_schema()
    with sync.PostgresStore(pool, schema) as store:
        for number in range(20):
            store.save("t", {"n": number})
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(lambda _: store.latest("t") is not None, range(30)))
    with pool.connection() as connection:
        assert not connection.autocommit
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    with pool.connection() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    with sync.PostgresStore(pool, schema) as store:
        assert store.save("t", {"n": "after"}).seq == 21


def test_a_closed_pool_is_named() -> None:
    pool: ConnectionPool[psycopg.Connection[tuple[object, ...]]] = ConnectionPool(
        shared_server().conninfo(), open=False
    )
    with pytest.raises(StoreUnavailable, match="open it before"), sync.PostgresStore(pool, new_schema()) as store:
        store.latest("t")


def test_of_an_async_pool_or_a_connection_the_settings_are_taken() -> None:
    async def main() -> None:
        schema = new_schema()
        async with AsyncConnectionPool(shared_server().conninfo(), min_size=1, open=False) as pool:
            async with holdfast.PostgresStore(pool, schema) as store:
                await store.save("t", 1)
            async with pool.connection() as connection, holdfast.PostgresStore(connection, schema) as store:
                assert await store.latest("t") is not None

    asyncio.run(main())
    schema = new_schema()
    with psycopg.connect(shared_server().conninfo()) as connection, sync.PostgresStore(connection, schema) as store:
        assert store.save("t", 1).seq == 1
    with pytest.raises(ConfigurationError, match="not int"):
        sync.PostgresStore(7)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def bouncer() -> Iterator[PgBouncer]:
    with PgBouncer(shared_server()) as opened:
        yield opened


def _hears_nothing(backend: PostgresBackend) -> None:
    """Behind a pooler nothing is heard, and nothing breaks."""
    listener = backend.listener(PREFIX)
    backend.announce(PREFIX)
    assert not listener.wait(0.2)
    listener.close()


@pytest.mark.parametrize(
    "kit",
    [Swaps, Posts, Leases, Agendas, pytest.param(BackendConformance, marks=pytest.mark.slow)],
    ids=lambda kit: kit.__name__,
)
def test_through_pgbouncer_in_transaction_mode_every_promise_is_kept(bouncer: PgBouncer, kit: type[Kit]) -> None:
    conninfo = shared_server().conninfo(port=bouncer.port)
    schemas: dict[PostgresBackend, str] = {}

    def made(schema: str) -> PostgresBackend:
        backend = PostgresBackend(conninfo, schema=schema)
        schemas[backend] = schema
        return backend

    methods: dict[str, Any] = {
        "backend": lambda _: made(new_schema()),
        "reopen": lambda _, backend: made(schemas[backend]),
        "test_an_announcement_is_heard": lambda kit: _hears_nothing(kit.opened()),
    }
    assert run(type("Bounced", (kit,), methods)) > 3


def test_through_pgbouncer_prepared_statements_are_what_fails(
    bouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: with statements that are prepared on one server and used on another."""
    monkeypatch.setattr(connections, "is_direct", lambda _: True)
    conninfo = shared_server().conninfo(port=bouncer.port)
    with pytest.raises((AssertionError, StoreUnavailable), match="prepared statement"):
        check_store(lambda: PostgresBackend(conninfo, schema=new_schema(), prepare_threshold=0))


def test_a_pooler_is_told_from_a_server(bouncer: PgBouncer) -> None:
    with (
        psycopg.connect(shared_server().conninfo()) as direct,
        psycopg.connect(shared_server().conninfo(port=bouncer.port)) as pooled,
    ):
        assert connections.is_direct(direct)
        assert not connections.is_direct(pooled)


@pytest.mark.parametrize("threshold", [0, 2, None])
def test_prepared_statements_are_fine_without_a_pooler(threshold: int | None) -> None:
    with sync.PostgresStore(shared_server().conninfo(), new_schema(), prepare_threshold=threshold) as store:
        for number in range(10):
            store.save("t", {"n": number})
            assert store.latest("t") is not None


# Other stores


def test_copies_to_and_from_other_stores_are_exact(tmp_path: Path) -> None:
    with (
        sync.open(tmp_path / "a.db", durability="process") as first,
        sync.open(shared_server().url(new_schema())) as second,
        sync.open(f"file:{tmp_path / 'b'}", durability="process") as third,
    ):
        fill(first)
        right = answers(first)
        assert first.copy_to(second).threads == second.copy_to(third).threads == len(THREADS)
        assert second.copy_to(first).skipped == len(THREADS)
        for store in (second, third):
            found = answers(store)
            for name in right:
                if not name.startswith("threads") and name != "stats":
                    assert found[name] == right[name], name


# Connections


def test_connections_are_bounded() -> None:
    backend = PostgresBackend(shared_server().conninfo(application_name="bounded"), schema=new_schema(), connections=2)
    backend.open()
    with ThreadPoolExecutor(8) as pool:
        assert all(found == [None] for found in pool.map(lambda _: backend.heads([b"\0t"]), range(50)))
    count = shared_server().execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bounded'")
    assert int(str(count[0][0])) <= 2
    backend.close()


def test_a_call_that_finds_all_connections_in_use_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.1)
    schema = new_schema()
    backend = PostgresBackend(shared_server().conninfo(), schema=schema, connections=1, patience=0)
    backend.open()
    with psycopg.connect(shared_server().conninfo()) as blocker, ThreadPoolExecutor(2) as pool:
        blocker.execute(f"LOCK TABLE {schema}.threads".encode())
        calls = [pool.submit(backend.heads, [b"\0t"]) for _ in range(2)]
        refused = next(as_completed(calls))
        assert isinstance(refused.exception(), StoreUnavailable)
        assert "all 1 connections are in use" in str(refused.exception())
        blocker.commit()
        calls.remove(refused)
        assert calls[0].result() == [None]
    backend.close()


def test_a_store_needs_a_connection_at_least() -> None:
    with pytest.raises(ConfigurationError, match="connections"):
        sync.PostgresStore(shared_server().conninfo(), connections=0)


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from holdfast import sync\n"
        "try:\n    sync.open('postgresql://localhost/db')\n"
        "except sync.ConfigurationError as error:\n    print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "extra 'postgres': pip install '.[postgres]' in its checkout" in ran.stdout
