"""No name that another role has put into the search_path is ever called with the rights of a store."""

import psycopg
import pytest
from msgspec.structs import replace
from psycopg_pool import ConnectionPool

from holdfast import Retention, sync
from holdfast.records.identity import namespace_prefix
from holdfast.records.words import Durability
from holdfast.stores.agenda import NO_LIMITS, Pace, QueueLimits
from holdfast.stores.postgres import PostgresBackend
from holdfast.testing.conformance import check
from holdfast.testing.conformance.agendas import ROUTE, queued
from holdfast.testing.conformance.samples import Line, key, rows
from patience import GIVE_UP_SECONDS
from servers.postgres import new_schema, shared_server
from stores.postgres.hostile import BETTER_MATCHES, SHADOWS, TRAP, HostileDatabase
from stores.postgres.scenes import NOT_WAITING

FUNCTIONS = {"replace_heads", "add", "remove", "swap", "swap_row"}
AGENDA_FUNCTIONS = {"moment", "move", "spend", "next_due", "first_free", "pick", "take"}


@pytest.fixture(scope="module")
def tempting() -> HostileDatabase:
    """A database as it is made, with better matches than pg_catalog's in a schema where everybody may create."""
    return HostileDatabase(TRAP + BETTER_MATCHES, '"$user", public')


@pytest.fixture(scope="module")
def shadowed() -> HostileDatabase:
    """A database where everything is found in a hostile schema first."""
    return HostileDatabase(SHADOWS, "public, pg_catalog")


def use_agenda(store: sync.Store) -> None:
    """Use every statement of the agenda."""
    agenda, pace = store._store._backend, Pace(b"bucket", 1_000, 1_000)
    assert isinstance(agenda, PostgresBackend)
    space = new_schema()
    prefix, keys = namespace_prefix(space), [key(f"t{number}", space) for number in range(3)]
    lines = [Line(agenda, thread) for thread in keys]
    for line in lines:
        line.put(queued(lane=line.key[-1:]), rows(1))
    for limits in (NO_LIMITS, QueueLimits(3, 3, pace, frozenset([ROUTE]))):
        assert len(agenda.take(prefix, "q", [ROUTE], 1, limits=limits).entries) == 1
    agenda.look_again(keys[0], 0)
    assert agenda.call(keys[0], "answer", b"yes")
    waits = replace(lines[2].swap(queued(seq=2, status="input_required"), rows(2)), heard=frozenset(["older"]))
    assert agenda.swap([waits]) == [True]
    assert len(agenda.entries(prefix)) == 3
    assert agenda.depth(prefix, "q").running >= 1
    lines[0].put(queued(status="complete"), rows(2))
    assert len(agenda.entries(prefix)) == 2
    agenda.spend(b"bucket", 1, 0)
    agenda.sweep(prefix)
    agenda.announce(prefix)
    listener = agenda.listener(prefix)
    assert listener.wait(GIVE_UP_SECONDS)
    listener.close()


def tell_story(store: sync.Store) -> None:
    """Use every statement of the store."""
    for number in range(8):
        store.save("t", {"n": number, "text": "x" * 70_000}, labels={"a": "b"})
    store.append("t", "list", 1)
    store.save("gone", 1)
    store.delete("gone")
    with store.run("asked") as run:
        run.step("one", lambda: 1)
    assert [info.thread_id for info in store.threads(labels={"a": "b"}, status="idle")] == ["t"]
    assert store.stats().threads == 2
    assert len(list(store.history("t"))) == 9
    store.prune(Retention(keep_last=1))
    assert store.verify().ok
    store.guarantee()
    use_agenda(store)


def test_a_function_that_another_role_put_into_the_search_path_is_not_called(tempting: HostileDatabase) -> None:
    with sync.PostgresStore(tempting.conninfo()) as store:
        tell_story(store)
    assert tempting.caught() == []


def test_the_trap_works(tempting: HostileDatabase) -> None:
    """The tests here can fail: a statement that does not qualify its names is caught, with the rights of its role."""
    with psycopg.connect(tempting.conninfo()) as connection:
        connection.execute("SELECT cardinality('{}'::bytea[])")
    assert tempting.caught() == [(tempting.app, "cardinality")]
    with psycopg.connect(tempting.conninfo("postgres")) as connection:
        connection.execute("DELETE FROM public.caught")


@pytest.mark.slow  # a schema of its own for each promise
def test_every_promise_is_kept_where_all_names_are_shadowed(shadowed: HostileDatabase) -> None:
    schemas: dict[PostgresBackend, str] = {}

    def made(schema: str) -> PostgresBackend:
        backend = PostgresBackend(shadowed.conninfo(), Durability.DURABLE, schema=schema)
        schemas[backend] = schema
        return backend

    with psycopg.connect(shadowed.conninfo()) as connection, pytest.raises(psycopg.Error, match="caught: ="):
        connection.execute("SELECT 1 = 1")
    assert check(lambda: made(new_schema()), lambda backend: made(schemas[backend])) > 100


def test_a_pool_and_a_step_in_a_transaction_of_the_users_are_safe_where_all_names_are_shadowed(
    shadowed: HostileDatabase,
) -> None:
    with (
        ConnectionPool(shadowed.conninfo(), min_size=1, max_size=4) as pool,
        sync.PostgresStore(pool, new_schema()) as store,
        psycopg.connect(shadowed.conninfo()) as connection,
    ):
        tell_story(store)
        with store.run("paid") as run:
            assert run.step("pay", lambda: "paid", connection=connection) == "paid"


def test_every_function_of_the_schema_sets_its_search_path() -> None:
    schema = new_schema()
    with sync.PostgresStore(shared_server().conninfo(), schema) as store:
        store.save("t", 1)
    found = shared_server().execute(
        f"SELECT proname, proconfig FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace"
    )
    assert {row[0] for row in found} == FUNCTIONS | AGENDA_FUNCTIONS
    assert all("search_path=pg_catalog, pg_temp" in str(row[1]) for row in found)
    assert all(row[1] == ["search_path=pg_catalog, pg_temp"] for row in found if row[0] != "take")


def test_a_commit_still_waits_for_the_disk_though_functions_set_the_search_path() -> None:
    """What a function sets for its transaction lasts beyond the function, until the commit."""
    schema = new_schema()
    with sync.PostgresStore(shared_server().conninfo(), schema) as store:
        store.save("t", 1)
    heads = "ARRAY[]::bytea[]"
    call = f"SELECT {schema}.replace_heads(true, {heads}, {heads}, {heads}, {heads}, '{{}}', {heads}, '{{}}')"
    with psycopg.connect(shared_server().conninfo(options=NOT_WAITING)) as connection:
        connection.execute(call.encode())
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
