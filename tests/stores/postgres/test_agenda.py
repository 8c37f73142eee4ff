"""The agenda on PostgreSQL: it agrees with the model, its looks stay cheap, and takers at once share what is due."""

from random import Random
from typing import Any

import psycopg
import pytest

from holdfast.stores.memory import MemoryBackend
from holdfast.stores.postgres import PostgresBackend
from servers.postgres import new_schema, shared_server
from stores.postgres.scenes import backend_in
from stores.test_agenda import story


class StoreClock:
    """A time that a test sets: for its backends, and for the functions in their schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._connection = psycopg.connect(shared_server().conninfo(), autocommit=True)
        self._now = 1_000_000
        self._run(
            f"CREATE TABLE {schema}.clock AS SELECT {self._now}::bigint AS now;"
            f"CREATE OR REPLACE FUNCTION {schema}.moment() RETURNS bigint LANGUAGE plpgsql AS"
            f" 'BEGIN RETURN (SELECT now FROM {schema}.clock); END'"
        )

    def _run(self, sql: str) -> None:
        self._connection.execute(sql.encode())

    def __call__(self) -> int:
        return self._now

    @property
    def now(self) -> int:
        """The time that all agree on."""
        return self._now

    @now.setter
    def now(self, value: int) -> None:
        self._now = value
        self._run(f"UPDATE {self._schema}.clock SET now = {value}")

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def schema() -> str:
    return new_schema()


@pytest.fixture
def backend(schema: str) -> Any:
    opened = backend_in(schema)
    opened.open()
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(6))
def test_postgres_tells_the_same_story_as_memory(backend: PostgresBackend, schema: str, seed: int) -> None:
    clock, backends = StoreClock(schema), [MemoryBackend(), backend]
    for each in backends:
        each.now = clock  # type: ignore[method-assign]
    story(backends, clock, Random(seed))
    clock.close()
