"""A server whose commits wait for a standby: when it dies, the standby has everything, and the store goes on."""

from collections.abc import Iterator

import pytest

from holdfast import sync
from holdfast.records.words import Durability
from patience import GIVE_UP_SECONDS
from servers.postgres import PostgresServer
from stores.postgres.test_server_faults import Writer


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A server and its standby."""
    primary = PostgresServer("shared_buffers=16MB")
    standby = PostgresServer("shared_buffers=16MB", primary=primary)
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("SELECT pg_reload_conf()")
    yield primary, standby
    primary.remove()
    standby.remove()


def test_a_failover_loses_nothing_and_the_store_finds_the_new_server(
    pair: tuple[PostgresServer, PostgresServer],
) -> None:
    primary, standby = pair
    conninfo = (
        f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} user=postgres dbname=postgres"
        " target_session_attrs=read-write"
    )
    with sync.PostgresStore(conninfo, durability="replicated", patience=GIVE_UP_SECONDS) as store:
        assert store.guarantee().level == Durability.REPLICATED
        writers = [Writer(store, f"thread {number}") for number in range(3)]
        for writer in writers:
            assert writer.has_written.wait(GIVE_UP_SECONDS)
        primary.kill()
        standby.execute("SELECT pg_promote()")
        for writer in writers:
            writer.has_written.clear()
            assert writer.has_written.wait(GIVE_UP_SECONDS), "it goes on by itself"
            writer.stop()
            writer.check()
        assert store.verify().ok
