"""Opening: what a server's settings are worth, who is let in, and every way to say where it is."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest
import redis
import redis.asyncio

import holdfast
from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores import locations
from holdfast.stores.redis import RedisBackend
from holdfast.stores.redis.exchange import Request
from holdfast.stores.redis.listing import Pages
from holdfast.stores.redis.settings import from_client, from_url, options_in
from holdfast.testing.conformance.samples import key
from servers.redis import RedisServer, new_prefix, shared_cluster, shared_server

# Durability


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server whose settings these tests change."""
    made = RedisServer()
    yield made
    made.remove()


@pytest.fixture
def set_to(server: RedisServer) -> Any:
    """Change settings of the server; the others are as safe as can be."""
    safe = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}

    def change(**settings: str) -> None:
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        with server.client() as client:
            for name, value in ({**safe, "maxmemory-policy": "noeviction"} | given).items():
                client.config_set(name, value)

    return change


def opened(server: RedisServer, durability: str | None = None, **options: Any) -> sync.Guarantee:
    with sync.RedisStore(server.url("levels"), durability=durability, patience=0.1, **options) as store:
        return store.guarantee()


def test_always_is_durable(server: RedisServer, set_to: Any) -> None:
    set_to()
    guarantee = opened(server)
    assert guarantee.level == Durability.DURABLE
    assert guarantee.details["appendfsync"] == "always"


def test_everysec_is_process(server: RedisServer, set_to: Any) -> None:
    set_to(appendfsync="everysec")
    assert opened(server, "process").level == Durability.PROCESS
    with pytest.raises(sync.ConfigurationError, match=r"CONFIG SET appendfsync always.*durability='process'"):
        opened(server)


def test_the_packaged_default_is_refused_with_the_two_settings_to_change(server: RedisServer, set_to: Any) -> None:
    set_to(appendonly="no", appendfsync="everysec")
    with pytest.raises(sync.ConfigurationError, match=r"CONFIG SET appendonly yes.*CONFIG SET appendfsync always"):
        opened(server)
    with pytest.raises(sync.ConfigurationError, match="CONFIG SET appendonly yes"):
        opened(server, "process")
    assert opened(server, "none").level == Durability.NONE


def test_a_rewrite_that_suspends_syncing_is_not_durable(server: RedisServer, set_to: Any) -> None:
    set_to(no_appendfsync_on_rewrite="yes")
    with pytest.raises(sync.ConfigurationError, match="no-appendfsync-on-rewrite no"):
        opened(server)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_refused(server: RedisServer, set_to: Any, policy: str) -> None:
    set_to(maxmemory_policy=policy)
    with pytest.raises(sync.ConfigurationError, match="evicts keys"):
        opened(server)
    with pytest.raises(sync.ConfigurationError, match="evicts keys"):
        opened(server, "none")


def test_replicated_needs_replicas(server: RedisServer, set_to: Any) -> None:
    set_to()
    with pytest.raises(sync.ConfigurationError, match="replicas=1"):
        opened(server, "replicated")
    with pytest.raises(sync.ConfigurationError, match="levels are"):
        opened(server, assume="very")


def test_settings_that_cannot_be_read_are_refused_unless_asserted(server: RedisServer, set_to: Any) -> None:
    set_to()
    with server.client() as client:
        client.acl_setuser(
            "app", enabled=True, passwords=["+p:w@1"], keys=["acl:*"], categories=["+@all"], commands=["-config"]
        )
    url = f"redis://app:p%3Aw%401@127.0.0.1:{server.port}/0?prefix=acl"
    with pytest.raises(sync.ConfigurationError, match="assume='durable'"):
        sync.RedisStore(url).latest("t")
    with sync.open(f"{url}&assume=durable") as store:
        assert store.save("t", 1).seq == 1
        assert store.guarantee().level == Durability.DURABLE
    with sync.RedisStore(url, assume="durable") as store:
        assert store.save("t", 2).seq == 2
    with pytest.raises(sync.ConfigurationError, match="ACL"):
        sync.RedisStore(url, prefix="other", assume="durable").latest("t")


def test_an_assertion_does_not_outweigh_what_is_read(server: RedisServer, set_to: Any) -> None:
    set_to(appendonly="no")
    with pytest.raises(sync.ConfigurationError, match="CONFIG SET"):
        opened(server, assume="durable")


def test_a_wrong_password_is_said_to_be_one(server: RedisServer) -> None:
    with pytest.raises(sync.ConfigurationError, match="does not let this user in"):
        sync.open(f"redis://nobody:wrong@127.0.0.1:{server.port}").latest("t")


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/main", "redis+cluster://127.0.0.1:1"]
)
def test_a_wrong_address_is_told_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def waited(_seconds: float) -> None:
        pytest.fail("nothing was ever there: what is it waiting for?")

    monkeypatch.setattr("holdfast.stores.attempts.sleep", waited)
    with pytest.raises(holdfast.StoreUnavailable, match=r"refused|reach"), sync.open(url) as store:
        store.save("t", 1)


def test_what_is_no_redis_is_told() -> None:
    """Such as a web server on that port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.close()

        Thread(target=answer, daemon=True).start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}?protocol=2"
        with pytest.raises(holdfast.StoreUnavailable, match="Redis"), sync.RedisStore(url, patience=0.1) as store:
            store.latest("t")


def test_a_store_of_a_newer_format_is_refused() -> None:
    prefix = new_prefix()
    with shared_server().client() as client:
        client.set(f"{prefix}:{{0}}:f", 2)
    with pytest.raises(sync.IncompatibleCheckpoint, match="upgrade"):
        sync.open(shared_server().url(prefix), durability="process").latest("t")


# Replicas


def until(condition: Callable[[], object]) -> None:
    """Wait for what a server does in its own time."""
    while not condition():
        sleep(0.01)


def is_followed(primary: RedisServer) -> bool:
    with primary.client() as client:
        return bool(client.info("replication").get("slave0", {}).get("state") == "online")


def test_a_replicated_save_waits_for_the_replica() -> None:
    primary = RedisServer(repl_diskless_sync_delay="0")
    replica = RedisServer(replicaof=f"127.0.0.1 {primary.port}")
    until(lambda: is_followed(primary))
    with sync.RedisStore(primary.url("copies"), durability="replicated", replicas=1) as store:
        assert store.guarantee().level == Durability.REPLICATED
        store.save("t", {"a": 1})
        with replica.client() as client:
            assert sum(1 for _ in client.scan_iter("copies:*:t*")) == 1
        replica.kill()
        with pytest.raises(sync.OutcomeUnknown):
            store.save("t", {"a": 2})
        with pytest.raises(sync.StoreUnavailable, match="not caught up"):
            store.latest("t")
        replica.start()
        until(lambda: is_followed(primary))
        latest = store.latest("t")
        assert latest is not None
        assert latest.state == {"a": 2}
    with pytest.raises(sync.StoreUnavailable, match="replica"):
        sync.RedisStore(replica.url("copies"), patience=0.1).save("t", 3)
    replica.remove()
    primary.remove()


def has_replica(sentinel: Any) -> bool:
    """False as long as the sentinel does not know whom to promote."""
    return any("slave" in each["flags"] for each in sentinel.sentinel_slaves("agents"))


def test_a_sentinel_that_cannot_name_the_primary_is_passed_over(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("idle", "stale", "right")]
    for place in places:
        place.mkdir()
    primary, replica = RedisServer(), RedisServer()
    with replica.client() as client:
        client.replicaof("127.0.0.1", primary.port)
    idle = RedisServer.sentinel(places[0], "other", primary.port)
    stale = RedisServer.sentinel(places[1], "agents", replica.port)
    right = RedisServer.sentinel(places[2], "agents", primary.port)
    sentinels = ",".join(f"127.0.0.1:{each.port}" for each in (idle, stale, right))
    with sync.open(f"redis+sentinel://{sentinels}/agents?prefix=passed") as store:
        assert store.save("t", 1).seq == 1
    with pytest.raises(
        sync.StoreUnavailable, match=f"no sentinel names a primary of 'unknown' .*:{right.port}: it does"
    ):
        sync.RedisStore(f"redis+sentinel://{sentinels}/unknown", patience=0.1).latest("t")
    for server in (idle, stale, right, replica, primary):
        server.remove()


def test_a_wrong_password_for_the_sentinels_is_named(tmp_path: Path) -> None:
    sentinel = RedisServer.sentinel(tmp_path, "agents", 1, "requirepass right")
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/agents"
    for given in ("", "?sentinel_password=wrong"):
        with pytest.raises(sync.ConfigurationError, match="see its ACL"), sync.open(url + given) as store:
            store.latest("t")
    sentinel.remove()


def test_sentinel_names_the_primary_also_after_a_failover(tmp_path: Path) -> None:
    first = RedisServer(repl_diskless_sync_delay="0")
    second = RedisServer(replicaof=f"127.0.0.1 {first.port}")
    until(lambda: is_followed(first))
    sentinel = RedisServer.sentinel(tmp_path, "agents", first.port)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/agents/0?prefix=guarded"
    with sync.open(url) as store:
        store.save("t", {"n": 1})
        with first.client() as client:
            client.wait(1, 10_000)
        with sentinel.client() as client:
            until(lambda: has_replica(client))
            first.kill()
            until(lambda: client.sentinel_get_master_addr_by_name("agents")[1] == second.port)
        assert store.save("t", {"n": 2}).seq == 2
        with second.client() as client:
            assert sum(1 for _ in client.scan_iter("guarded:*:t*")) == 1
        sentinels: Any = redis.sentinel
        guarded = sentinels.Sentinel([("127.0.0.1", sentinel.port)]).master_for("agents")
        with sync.RedisStore(guarded, prefix="guarded") as other:
            assert other.save("t", {"n": 3}).seq == 3
        guarded.close()
    for server in (sentinel, second, first):
        server.remove()


# Places


def test_urls_say_where_and_who() -> None:
    single = from_url("redis://u:p%40w@h:1/2?socket_timeout=3")
    assert single.options == {
        "host": "h", "port": 1, "db": 2, "username": "u", "password": "p@w", "socket_timeout": 3.0
    }  # fmt: skip
    assert from_url("rediss://h").connection is redis.SSLConnection
    guarded = from_url("redis+sentinel://u:p@a:1,b/mine/3?sentinel_password=s")
    assert guarded.nodes == (("a", 1), ("b", 26379))
    assert (guarded.service, guarded.options["db"], guarded.sentinel_options) == ("mine", 3, {"password": "s"})
    spread = from_url("rediss+cluster://a,[::1]:7,c:9")
    assert spread.nodes == (("a", 6379), ("::1", 7), ("c", 9))
    assert spread.connection is redis.SSLConnection
    assert options_in("redis://h/0?prefix=a&db=1&replicas=2") == ("redis://h/0?db=1", {"prefix": "a", "replicas": 2})


@pytest.mark.parametrize(
    "url",
    ["redis+sentinel://h:1", "redis+cluster://", "redis+cluster://:1", "redis+cluster://h:x", "redis://h?db=x",
     "redis://h?replicas=x", "redis://h?prefix={a}", "redis://h?prefix=", "redis:"],
)  # fmt: skip
def test_urls_that_lead_nowhere_are_refused(url: str) -> None:
    with pytest.raises(sync.ConfigurationError):
        sync.open(url)


def test_no_password_is_shown() -> None:
    with pytest.raises(sync.ConfigurationError) as caught:
        sync.open("redis+sentinel://user:secret@h:1")
    assert "secret" not in str(caught.value)


def test_handles_on_one_url_share_their_connections() -> None:
    url = shared_server().url(new_prefix())
    opened = [locations.redis(url, Durability.PROCESS, inline=False) for _ in range(2)]
    assert opened[0] is opened[1]
    other = locations.redis(url, Durability.NONE, inline=False)
    assert other is not opened[0], "it promises something else"
    for shared in (*opened, other):
        shared.release()


@pytest.mark.parametrize("decoding", [True, False])
def test_a_client_lends_its_settings(decoding: bool) -> None:
    prefix = new_prefix()
    with shared_server().client(decode_responses=decoding) as client:
        for seq in (1, 2):
            with sync.RedisStore(client, prefix=prefix, durability="process") as store:
                assert store.save("t", {"bytes": b"\xff"}).seq == seq
        assert client.ping(), "it stays open"


def test_an_awaitable_client_lends_its_settings() -> None:
    prefix = new_prefix()

    async def main() -> None:
        client = redis.asyncio.Redis(port=shared_server().port)
        async with holdfast.RedisStore(client, prefix=prefix, durability="process") as store:
            assert (await store.save("t", 1)).seq == 1
        await client.aclose()
        nodes = [redis.asyncio.cluster.ClusterNode("127.0.0.1", node.port) for node in shared_cluster().nodes]
        spread = redis.asyncio.RedisCluster(startup_nodes=nodes)
        async with holdfast.RedisStore(spread, prefix=prefix, durability="process") as store:
            assert (await store.save("t", 1)).seq == 1
        await spread.aclose()

    asyncio.run(main())


def test_the_client_of_a_cluster_lends_its_settings() -> None:
    with redis.RedisCluster(port=shared_cluster().nodes[0].port, host="127.0.0.1") as client:
        backend = RedisBackend(client, Durability.PROCESS, prefix=new_prefix())
        backend.open()
        assert "Cluster" in backend.guarantee().details["server"]
        backend.close()


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(sync.ConfigurationError, match="client of redis-py"):
        from_client(object())


# Expiry


def post(prefix: str, thread_id: str, life: float | None = 3600) -> None:
    backend = RedisBackend(shared_server().url(prefix), Durability.PROCESS, life=life)
    backend.post(key(thread_id), "k", b"v")
    backend.close()


def test_a_thread_that_is_not_written_to_expires_as_a_whole() -> None:
    prefix = new_prefix()
    retention = sync.Retention(ttl=timedelta(hours=1))
    with (
        shared_server().client() as client,
        sync.RedisStore(shared_server().url(prefix), durability="process", retention=retention, expire=True) as store,
    ):
        for thread_id in ("gone", "kept"):
            store.save(thread_id, {"a": 1}, labels={"a": "b"})
            post(prefix, thread_id)
        thread, posts = (next(client.scan_iter(f"{prefix}:*:{what}*gone")) for what in "tp")
        assert 0 < client.pttl(thread) <= 3_600_000
        assert abs(client.pttl(thread) - client.pttl(posts)) < 1000
        client.pexpire(thread, 0)
        client.pexpire(posts, 0)
        assert store.latest("gone") is None
        assert store.counts() == {"idle": 1}
        assert [info.thread_id for info in store.threads()] == ["kept"]
        assert [info.thread_id for info in store.threads(labels={"a": "b"})] == ["kept"]
        assert store.save("gone", {"a": 2}).seq == 1, "a new life"
        assert {info.thread_id for info in store.threads()} == {"gone", "kept"}
        assert {info.thread_id for info in store.threads(status="idle")} == {"gone", "kept"}
        assert store.verify().ok


def test_a_thread_lives_as_long_as_its_lease() -> None:
    prefix = new_prefix()
    with (
        shared_server().client() as client,
        sync.RedisStore(
            shared_server().url(prefix), durability="process", retention=sync.Retention(ttl=1), expire=True
        ) as store,
        store.run("t", lease=600),
    ):
        thread = next(name for name in client.scan_iter(f"{prefix}:*") if name.endswith(b"}:t\0t"))
        assert client.pttl(thread) > 500_000


def test_a_writer_without_expiry_makes_a_thread_last() -> None:
    prefix = new_prefix()
    url, retention = shared_server().url(prefix), sync.Retention(ttl=600)
    with sync.RedisStore(url, durability="process", retention=retention, expire=True) as store:
        store.save("t", 1)
    with sync.RedisStore(url, durability="process") as store:
        store.save("t", 2)
    with shared_server().client() as client:
        assert client.pttl(next(client.scan_iter(f"{prefix}:*:t*"))) == -1


@pytest.mark.parametrize("keep_pinned", [True, False])
def test_a_thread_with_a_pinned_checkpoint_does_not_expire(keep_pinned: bool) -> None:
    prefix = new_prefix()
    url, retention = shared_server().url(prefix), sync.Retention(ttl=600, keep_pinned=keep_pinned)
    with (
        shared_server().client() as client,
        sync.RedisStore(url, durability="process", retention=retention, expire=True) as store,
    ):
        first = store.save("t", 1)
        post(prefix, "t")
        thread, posts = (next(client.scan_iter(f"{prefix}:*:{what}*")) for what in "tp")
        store.pin(first.id)
        store.save("t", 2)
        assert [client.pttl(name) == -1 for name in (thread, posts)] == [keep_pinned] * 2
        store.pin(first.id, pinned=False)
        assert all(0 < client.pttl(name) <= 600_000 for name in (thread, posts)), "a thread without pins expires again"


def test_a_message_left_without_expiry_goes_with_its_thread() -> None:
    prefix = new_prefix()
    url, retention = shared_server().url(prefix), sync.Retention(ttl=600)
    with (
        shared_server().client() as client,
        sync.RedisStore(url, durability="process", retention=retention, expire=True) as store,
    ):
        store.save("t", 1)
        post(prefix, "t", life=None)
        thread, posts = (next(client.scan_iter(f"{prefix}:*:{what}*")) for what in "tp")
        assert abs(client.pttl(thread) - client.pttl(posts)) < 1000


def test_a_message_stays_with_a_thread_that_was_made_to_last() -> None:
    prefix = new_prefix()
    url, retention = shared_server().url(prefix), sync.Retention(ttl=600)
    with sync.RedisStore(url, durability="process", retention=retention, expire=True) as store:
        store.save("t", 1)
        post(prefix, "t")
    with sync.RedisStore(url, durability="process") as store:
        store.save("t", 2, status="failed")
    with shared_server().client() as client:
        assert [client.pttl(next(client.scan_iter(f"{prefix}:*:{what}*"))) for what in "tp"] == [-1, -1]


def test_a_thread_whose_status_changes_while_it_is_listed_is_not_taken_for_one_that_expired() -> None:
    prefix = new_prefix()
    url, retention = shared_server().url(prefix), sync.Retention(ttl=600)
    with sync.RedisStore(url, durability="process", retention=retention, expire=True) as store:
        backend = RedisBackend(url, Durability.PROCESS)

        def overtaken(requests: Sequence[Request]) -> list[Any]:
            """Read, while the thread fails and recovers all the time: before each question, and between two."""
            words = [request.command[0] for request in requests]
            if words == [b"HGET"]:
                store.save("t", 2, status="idle")
            if words == [b"ZREM"]:
                store.save("t", 3, status="failed")
            if words != [b"ZSCORE", b"EXISTS", b"HGET"]:
                return backend.wire.read(requests)
            store.save("t", 4, status="failed")
            found = backend.wire.read(requests[:2])
            store.save("t", 5, status="idle")
            return [*found, *backend.wire.read(requests[2:])]

        store.save("t", 1, status="failed")
        with suppress(sync.Corrupt):  # it never stands still, so nobody can say
            Pages(overtaken, overtaken, backend.keys).page(key("t")[:1], ["failed"], [], None, 10)
        store.save("t", 6, status="failed")
        assert [info.thread_id for info in store.threads(status="failed")] == ["t"]
        backend.close()


def test_expiry_needs_a_time_to_live() -> None:
    with pytest.raises(sync.ConfigurationError, match="ttl"):
        sync.RedisStore(shared_server().url("x"), expire=True)
