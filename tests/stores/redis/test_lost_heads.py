"""A head that Redis lost, emptied or removed while the rows are there: damage, never a thread that begins again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import sync
from holdfast.stores.redis.keys import shard_of
from servers.redis import new_prefix, shared_server
from stores.redis.scenes import backend_in, store_in

KEY = b"\0t"
LOSSES: dict[str, Callable[[Any, bytes], object]] = {
    "emptied": lambda client, name: client.hset(name, "h", b""),
    "removed": lambda client, name: client.hdel(name, "h"),
}

pytestmark = pytest.mark.servers


@pytest.fixture(params=LOSSES)
def store(request: pytest.FixtureRequest) -> Iterator[sync.Store]:
    prefix = new_prefix()
    with store_in("server", prefix) as store:
        store.save("good", {"n": 1})
        for number in range(3):
            store.save("t", {"n": number})
    with shared_server().client() as client:
        LOSSES[request.param](client, backend_in("server", prefix).keys.thread(shard_of(KEY), KEY))
    with store_in("server", prefix) as store:
        yield store


def run(store: sync.Store) -> None:
    with store.run("t"):
        pass


WRITES: dict[str, Callable[[sync.Store], object]] = {
    "save": lambda store: store.save("t", {"n": 9}),
    "append": lambda store: store.append("t", "list", 1),
    "run": run,
    "latest": lambda store: store.latest("t"),
    "thread": lambda store: store.thread("t"),
    "history": lambda store: store.history("t"),
    "revive": lambda store: store.revive("t"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_begins_a_thread_again_whose_head_was_lost(
    store: sync.Store, write: Callable[[sync.Store], object]
) -> None:
    with pytest.raises(sync.Corrupt):
        write(store)
    assert not store.verify().ok


def test_a_thread_whose_head_was_lost_can_be_deleted_and_begun_again(store: sync.Store) -> None:
    store.delete("t")
    with pytest.raises(sync.Deleted):
        store.save("t", 1)
    assert [info.thread_id for info in store.threads()] == ["good"]
    store.revive("t")
    assert store.save("t", {"n": 9}).seq == 1
    assert store.counts() == {"idle": 2}
    assert store.verify().ok


def test_an_emptied_head_is_listed_as_damaged() -> None:
    prefix = new_prefix()
    with store_in("server", prefix) as store:
        store.save("good", 1)
        store.save("t", 1)
        with shared_server().client() as client:
            client.hset(backend_in("server", prefix).keys.thread(shard_of(KEY), KEY), "h", b"")
        assert {info.thread_id: info.damaged is None for info in store.threads()} == {"good": True, "t": False}
