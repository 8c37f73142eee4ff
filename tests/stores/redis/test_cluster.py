"""A cluster whose slots move while it is written to."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from redis.crc import key_slot

from holdfast import sync
from holdfast.stores.redis.keys import shard_of
from holdfast.testing.conformance.samples import key
from patience import GIVE_UP_SECONDS
from servers.redis import RedisCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """A cluster of which these tests move slots."""
    made = RedisCluster(appendfsync="always")
    yield made
    for node in made.nodes:
        node.remove()


class Move:
    """The slot of a thread, on its way from its node to another one."""

    def __init__(self, cluster: RedisCluster, prefix: str, thread_id: str) -> None:
        self.slot = key_slot(f"{prefix}:{{{shard_of(key(thread_id))}}}:".encode())
        clients: list[Any] = [node.client() for node in cluster.nodes]
        owners = [client.execute_command("CLUSTER", "COUNTKEYSINSLOT", self.slot) for client in clients]
        self.source = clients.pop(owners.index(max(owners)))
        self.target, self.other = clients

    def _slot(self, client: Any, *words: object) -> None:
        client.execute_command("CLUSTER", "SETSLOT", self.slot, *words)

    def begin(self) -> None:
        self._slot(self.target, "IMPORTING", self.source.execute_command("CLUSTER", "MYID"))
        self._slot(self.source, "MIGRATING", self.target.execute_command("CLUSTER", "MYID"))

    def carry(self) -> None:
        names = self.source.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 1000)
        port = self.target.connection_pool.connection_kwargs["port"]
        self.source.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *names)

    def end(self) -> None:
        for client in (self.target, self.source, self.other):
            self._slot(client, "NODE", self.target.execute_command("CLUSTER", "MYID"))
        for client in (self.target, self.source, self.other):
            client.close()


def test_a_thread_is_found_and_written_to_while_its_slot_moves(cluster: RedisCluster) -> None:
    with sync.open(cluster.url("moving"), durability="process") as store:
        for thread_id in ("a", "b", "c"):
            store.append(thread_id, "numbers", 0)
        move = Move(cluster, "moving", "a")
        move.begin()
        store.append("a", "numbers", 1)
        move.carry()
        store.append("a", "numbers", 2)
        move.end()
        store.append("a", "numbers", 3)
        latest = store.latest("a")
        assert latest is not None
        assert latest.state == {"numbers": [0, 1, 2, 3]}
        assert sorted(info.thread_id for info in store.threads()) == ["a", "b", "c"]
        assert store.verify().ok


def test_a_handle_that_was_open_before_a_move_finds_its_threads_after_it(cluster: RedisCluster) -> None:
    with sync.open(cluster.url("moved"), durability="process") as store:
        store.save("t", {"n": 1})
        move = Move(cluster, "moved", "t")
        move.begin()
        move.carry()
        move.end()
        latest = store.latest("t")
        assert latest is not None
        assert latest.state == {"n": 1}
        assert store.save("t", {"n": 2}).seq == 2
    with sync.open(cluster.url("moved"), durability="process") as store:
        assert [info.seq for info in store.threads()] == [2]


def connections_to(cluster: RedisCluster) -> int:
    found = 0
    for node in cluster.nodes:
        with node.client() as client:
            found += len(client.client_list())
    return found


def test_a_store_that_is_closed_leaves_no_connection_to_any_node(cluster: RedisCluster) -> None:
    before = connections_to(cluster)
    with sync.open(cluster.url("closed"), durability="process") as store:
        for number in range(12):
            store.save(f"t{number}", {"n": 1})
        assert connections_to(cluster) > before
    ends_at = monotonic() + GIVE_UP_SECONDS
    while connections_to(cluster) > before:
        assert monotonic() < ends_at


def test_a_cluster_bears_the_death_of_a_node(cluster: RedisCluster) -> None:
    """Without replicas nothing can be done on its slots until it is back; then all goes on."""
    with sync.open(cluster.url("dying"), durability="process") as store:
        for number in range(30):
            store.append(f"t{number}", "numbers", 0)
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        cluster.wait()
        for number in range(30):
            store.append(f"t{number}", "numbers", 1)
        assert {info.seq for info in store.threads()} == {2}
        assert store.verify().ok
