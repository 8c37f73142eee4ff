"""The rights in docs/postgres.md are enough for everything a store does, and none of them can be left out."""

import re
from pathlib import Path

import psycopg
import pytest

from holdfast import Retention, sync
from holdfast.records.errors import StoreUnavailable
from holdfast.stores.postgres import PostgresBackend
from holdfast.stores.postgres.schema import FIRST
from holdfast.stores.sql import migrations
from holdfast.testing.conformance import check
from servers.postgres import new_schema, shared_server
from stores.postgres.test_search_path import use_agenda

DOCUMENT = (Path(__file__).parents[3] / "docs" / "postgres.md").read_text()
ROLES, GRANTS = re.findall(r"^```sql\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
EACH_GRANT = GRANTS.splitlines()
EACH_RIGHT = [(line, right) for line in EACH_GRANT for right in re.findall(r"USAGE|SELECT|INSERT|UPDATE|DELETE", line)]


class TwoRoles:
    """A new database, with the roles of the document under new names."""

    def __init__(self) -> None:
        self.name = new_schema()
        self.owner, self.app = f"owner_{self.name}", f"app_{self.name}"
        shared_server().execute(f"CREATE DATABASE {self.name}")
        self.run(ROLES, "postgres")

    def conninfo(self, user: str) -> str:
        return shared_server().conninfo(dbname=self.name, user=user)

    def run(self, script: str, user: str, schema: str = "holdfast") -> None:
        """Run statements of the document, in a schema."""
        named = script.replace("holdfast_owner", self.owner).replace("holdfast_app", self.app)
        named = named.replace("SCHEMA holdfast", f"SCHEMA {schema}").replace("holdfast.", f"{schema}.")
        with psycopg.connect(self.conninfo(user), autocommit=True) as connection:
            connection.execute(named.encode())

    def migrate(self, schema: str = "holdfast") -> None:
        """Open the store as its owner, as an operator does after an upgrade."""
        backend = PostgresBackend(self.conninfo(self.owner), schema=schema)
        backend.open()
        backend.close()

    def prepare(self, schema: str) -> str:
        """Everything the document says, for one more schema; returns its name."""
        self.run(ROLES.splitlines()[-1], "postgres", schema)
        self.migrate(schema)
        self.run(GRANTS, self.owner, schema)
        return schema


@pytest.fixture(scope="module")
def roles() -> TwoRoles:
    return TwoRoles()


def tell_story(store: sync.Store) -> None:
    """Use every right: write, replace and remove rows, blobs and messages."""
    saved, asked = f"saved {new_schema()}", f"asked {new_schema()}"
    for number in range(4):
        store.save(saved, {"n": number, "text": f"{number}" * 70_000}, labels={"a": "b"})
    with pytest.raises(sync.Suspended), store.run(asked) as run:
        run.ask("permission")
    request = next(each for each in store.requests() if each.thread_id == asked)
    store.answer(request.id, value="yes")
    with store.run(asked) as run:
        assert run.ask("permission").value == "yes"
    store.prune(Retention(keep_last=1))
    store.delete(saved)
    assert store.verify().ok
    use_agenda(store)


@pytest.mark.slow  # a schema of its own for each promise
def test_the_rights_of_the_document_are_enough_for_every_promise(roles: TwoRoles) -> None:
    schemas: dict[PostgresBackend, str] = {}

    def made(schema: str) -> PostgresBackend:
        backend = PostgresBackend(roles.conninfo(roles.app), schema=schema)
        schemas[backend] = schema
        return backend

    assert check(lambda: made(roles.prepare(new_schema())), lambda backend: made(schemas[backend])) > 100


def test_an_application_with_these_rights_can_do_everything(roles: TwoRoles) -> None:
    with sync.PostgresStore(roles.conninfo(roles.app), roles.prepare(new_schema())) as store:
        tell_story(store)


@pytest.fixture(scope="module")
def prepared(roles: TwoRoles) -> str:
    """A schema from which each test takes one right away, and gives it back."""
    return roles.prepare(new_schema())


@pytest.mark.parametrize(("grant", "right"), EACH_RIGHT)
def test_no_right_of_the_document_can_be_left_out(roles: TwoRoles, prepared: str, grant: str, right: str) -> None:
    revoked = re.sub(r"GRANT .* ON", f"REVOKE {right} ON", grant).replace(" TO ", " FROM ")
    roles.run(revoked, roles.owner, prepared)
    try:
        with (
            pytest.raises(StoreUnavailable, match="permission denied"),
            sync.PostgresStore(roles.conninfo(roles.app), prepared) as store,
        ):
            tell_story(store)
    finally:
        roles.run(GRANTS, roles.owner, prepared)


def test_the_application_may_not_change_the_schema(roles: TwoRoles) -> None:
    schema = roles.prepare(new_schema())
    for statement in (
        f"CREATE TABLE {schema}.mine ()",
        f"CREATE OR REPLACE FUNCTION {schema}.add() RETURNS void LANGUAGE sql AS ''",
        f"UPDATE {schema}.store SET version = 0",
        f"DELETE FROM {schema}.threads",
        f"DROP SCHEMA {schema} CASCADE",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.run(statement, roles.app)


def test_a_schema_that_waits_for_its_owner_is_named(roles: TwoRoles, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, later = new_schema(), "CREATE VIEW {schema}.later AS SELECT 1 AS one"
    roles.run(ROLES.splitlines()[-1], "postgres", schema)
    roles.migrate(schema)
    roles.run(GRANTS, roles.owner, schema)
    monkeypatch.setattr("holdfast.stores.postgres.schema.migrations", lambda _: [*migrations("postgres"), later])
    said = f"schema '{schema}' has version {FIRST}.*needs version {FIRST + 1}.*once as the role that owns"
    with (
        pytest.raises(StoreUnavailable, match=said),
        sync.PostgresStore(roles.conninfo(roles.app), schema) as store,
    ):
        store.latest("t")
    roles.migrate(schema)
    with sync.PostgresStore(roles.conninfo(roles.app), schema) as store:
        assert store.save("t", 1).seq == 1
