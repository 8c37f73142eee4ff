"""What a save and a restore cost in round trips, counted between the client and the server."""

import asyncio
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import sync
from servers.postgres import new_schema, shared_server
from servers.proxy import Proxy
from stores.postgres.scenes import NOT_WAITING


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    opened = Proxy(shared_server().port)
    yield opened
    opened.close()


def store_through(proxy: Proxy, schema: str) -> sync.Store:
    return sync.PostgresStore(shared_server().url(schema, proxy.port))


def test_an_append_is_one_round_trip(proxy: Proxy) -> None:
    with store_through(proxy, new_schema()) as store:
        store.save("t", {"steps": []})
        turns = []
        for number in range(20):
            before = proxy.turns
            store.append("t", "steps", {"n": number, "text": "x" * 400})
            turns.append(proxy.turns - before)
        assert sorted(turns) == [1] * 19 + [2], "the statement is prepared once on each connection"
        before = proxy.turns
        store.save("t", {"steps": [], "other": "y" * 9000})
        assert proxy.turns - before == 1, "with a blob too"
    assert proxy.connections == 2, "one to see that the server is there, and one in the pool"


def test_the_first_save_of_a_thread_is_one_round_trip(proxy: Proxy) -> None:
    schema = new_schema()
    with store_through(proxy, schema) as store:
        store.save("warm", {"steps": []})
        before = proxy.turns
        assert store.save("t", {"steps": [0]}).seq == 1
        assert proxy.turns - before == 1
    with store_through(proxy, schema) as store:
        store.latest("warm")
        before = proxy.turns
        assert store.append("t", "steps", 1).seq == 2, "one that is there is found out"
        assert proxy.turns - before == 4, "refused, head, rows, append"
        latest = store.latest("t")
        assert latest is not None
        assert latest.state == {"steps": [0, 1]}


def test_a_restore_of_a_thousand_steps_is_three_round_trips(proxy: Proxy) -> None:
    schema = new_schema()
    with sync.PostgresStore(shared_server().conninfo(options=NOT_WAITING), schema, durability="process") as store:
        store.save("t", {"steps": []})
        for number in range(1000):
            store.append("t", "steps", {"n": number, "text": f"step {number} " * 30})
    with store_through(proxy, schema) as store:
        store.guarantee()
        before = proxy.turns
        latest = store.latest("t")
        assert latest is not None
        assert len(latest.state["steps"]) == 1000
        assert proxy.turns - before <= 3


def test_writers_at_once_share_their_round_trips(proxy: Proxy) -> None:
    async def main() -> tuple[int, int]:
        async with holdfast.PostgresStore(shared_server().url(new_schema(), proxy.port)) as store:
            await asyncio.gather(*(store.save(f"t{n}", {"n": 0}) for n in range(32)))
            before = proxy.turns
            for turn in range(5):
                await asyncio.gather(*(store.save(f"t{n}", {"n": turn}) for n in range(32)))
            return proxy.turns - before, proxy.connections

    turns, _ = asyncio.run(main())
    assert turns <= 5 * 4, "160 saves"


def test_a_proxy_counts_what_it_forwards(proxy: Proxy) -> None:
    """The counts above can be wrong only together with this."""
    with store_through(proxy, new_schema()) as store:
        store.save("t", 1)
        before = proxy.turns
        store.guarantee()
        store.guarantee()
        store.latest("t")
        assert proxy.turns - before >= 4
