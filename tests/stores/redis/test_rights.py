"""The ACL in docs/redis.md is enough for everything a store does, and no command of it can be left out."""

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Retention, sync
from holdfast.records.errors import ConfigurationError
from holdfast.records.words import Durability
from holdfast.stores.agenda import Pace, QueueLimits
from holdfast.stores.redis import RedisBackend
from holdfast.testing.conformance import check
from holdfast.testing.conformance.agendas import PREFIX, ROUTE, queued
from holdfast.testing.conformance.samples import Line, head, key, row, rows
from servers.redis import RedisCluster, RedisServer, new_prefix

DOCUMENT = (Path(__file__).parents[3] / "docs" / "redis.md").read_text()
((NEEDED),) = re.findall(r"^ACL SETUSER app reset on >password ~holdfast:\* (.*)$", DOCUMENT, re.MULTILINE)
BASE = NEEDED.split()
WAKING = ["+publish", "+subscribe", "+ping"]
MORE = dict(re.findall(r"^- `(\+[^`]+)`: (.*)$", DOCUMENT, re.MULTILINE))
WRITING = [
    "del", "exec", "exists", "hdel", "hget", "hset", "hsetnx", "multi", "persist", "pexpire", "pttl", "sadd", "setnx",
    "zadd", "zcard", "zlexcount", "zrangebylex", "zrangebyscore", "zrem",
]  # fmt: skip
"""Without one of these a write could be half done."""


def let_in(server: RedisServer, prefix: str, commands: list[str]) -> str:
    """Give the user of the document these commands, for one prefix; returns the URL."""
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "app", "reset", "on", ">password", f"~{prefix}:*", f"&{prefix}:*", *commands
        )
    return f"redis://app:password@127.0.0.1:{server.port}/0?prefix={prefix}"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server whose users these tests change."""
    made = RedisServer(appendfsync="everysec")
    yield made
    made.remove()


def without(command: str) -> list[str]:
    """All that the document lists for one server, but one command."""
    return [each for each in [*BASE, "+config|get", "+scan", "+script|load", *WAKING] if each != command]


def tell_story(url: str, server: RedisServer) -> None:
    """Use every command: each way to read and write, expiry, a batch, and a script that the server has forgotten."""
    with closing(RedisBackend(f"{url}:bytes", Durability.PROCESS)) as backend:  # a prefix within the other
        backend.open()
        with server.client() as client:
            client.script_flush()
        use_backend(backend)
        use_agenda(backend)
    retention = Retention(ttl=3600, keep_last=1)
    with sync.RedisStore(url, durability="process", retention=retention, expire=True) as store:
        use(store)


def use_backend(backend: RedisBackend) -> None:
    """What a store does seldom."""
    lines = [Line(backend, key(thread_id)) for thread_id in ("one", "other")]
    assert backend.swap([line.swap(head(1), (row(1),)) for line in lines]) == [True, True]
    lone = Line(backend, key("lone"))
    lone.put(head(1000), (row(1000, 1000),))
    assert [each.seq for each in backend.index(lone.key, None, None)] == [1000]
    assert len(backend.threads(b"", (), (), None, 10).heads) == 3


def use_agenda(backend: RedisBackend) -> None:
    """What workers do."""
    line = Line(backend, key("queued"))
    line.put(queued(), rows(1))
    backend.look_again(line.key, 0)
    assert backend.depth(PREFIX, "q").ready == 1
    assert backend.spend(b"bucket", 1, 0) == 0
    limits = QueueLimits(1, 1, Pace(b"bucket", 1, 1), frozenset([ROUTE]))
    assert len(backend.take(PREFIX, "q", [ROUTE], 1, limits=limits).entries) == 1
    assert list(backend.entries(PREFIX)) == [line.key]


def use(store: sync.Store) -> None:
    """What an application does."""
    with suppress(sync.Suspended), store.run("asked") as run:
        run.ask("permission")
    (request,) = store.requests()
    store.answer(request.id, value="yes")
    with store.run("asked") as run:
        assert run.ask("permission").value == "yes"
    for number in range(4):
        store.save("t", {"n": number, "text": f"{number}" * 70_000}, labels={"a": "b"})
    store.prune(Retention(keep_last=1))
    assert [info.thread_id for info in store.threads(labels={"a": "b"})] == ["t"]
    store.delete("t")
    assert store.stats().threads >= 1
    assert store.verify().ok


def test_the_commands_of_the_document_are_enough_for_every_promise(server: RedisServer) -> None:
    prefixes: dict[RedisBackend, str] = {}

    def made(prefix: str) -> RedisBackend:
        backend = RedisBackend(let_in(server, prefix, without("")), Durability.PROCESS)
        prefixes[backend] = prefix
        backend.open()
        return backend

    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">password", "~*", "&*", *without(""))
    assert check(lambda: made(new_prefix()), lambda backend: made(prefixes[backend])) > 100


def test_a_user_with_these_commands_can_do_everything(server: RedisServer) -> None:
    url = let_in(server, new_prefix(), without(""))
    tell_story(url, server)
    foreign = sync.RedisStore(url, prefix="foreign", durability="process")
    with closing(foreign) as store, pytest.raises(ConfigurationError, match="ACL"):
        store.latest("t")


@pytest.mark.parametrize("command", BASE)
def test_no_command_of_the_document_can_be_left_out(server: RedisServer, command: str) -> None:
    url = let_in(server, new_prefix(), without(command))
    with pytest.raises(sync.HoldfastError, match="see its ACL"):
        tell_story(url, server)


@pytest.mark.parametrize("command", WRITING)
def test_a_command_without_which_a_write_is_half_done_is_missed_at_open(server: RedisServer, command: str) -> None:
    url = let_in(server, new_prefix(), without(f"+{command}"))
    with closing(sync.open(url, durability="process")) as store, pytest.raises(ConfigurationError, match=command):
        store.latest("t")


def test_what_is_tried_at_open_leaves_nothing_behind(server: RedisServer) -> None:
    prefix = new_prefix()
    with sync.open(let_in(server, prefix, without("")), durability="process") as store:
        assert store.latest("t") is None
    with server.client() as client:
        assert [*client.scan_iter(f"{prefix}:*")] == [f"{prefix}:{{0}}:f".encode()]


def test_a_command_that_a_script_may_not_use_is_no_damage(server: RedisServer) -> None:
    prefix = new_prefix()
    with sync.open(let_in(server, prefix, without("")), durability="process") as store:
        store.save("t", 1)
        let_in(server, prefix, without("+del"))
        with pytest.raises(ConfigurationError, match="ACL"):
            store.delete("t")
        assert store.append("u", "list", 1).seq == 1


def test_each_further_command_is_for_what_the_document_says(server: RedisServer) -> None:
    assert list(MORE) == [
        "+config|get", "+scan", "+script|load", "+publish +subscribe +ping &holdfast:*", "+select", "+wait",
        "+role", "+cluster|slots", "+command", "+asking",
    ]  # fmt: skip
    prefix = new_prefix()
    with sync.RedisStore(let_in(server, prefix, BASE), assume="durable") as store:
        assert store.save("t", 1).seq == 1
        with pytest.raises(ConfigurationError, match="scan"):
            store.verify()
    with pytest.raises(ConfigurationError, match="assume="), sync.open(let_in(server, prefix, BASE)) as store:
        store.latest("t")
    elsewhere = let_in(server, prefix, [*BASE, "+select"]).replace("/0?", "/1?")
    with sync.RedisStore(elsewhere, assume="durable") as store:
        assert store.save("t", 1).seq == 1


def test_in_a_cluster_the_slots_may_be_asked_for_too(server: RedisServer) -> None:
    cluster: Any = RedisCluster(appendfsync="everysec")
    prefix = new_prefix()
    for node in cluster.nodes:
        let_in(node, prefix, [*without(""), "+cluster|slots", "+command", "+asking"])
    with sync.open(cluster.url(prefix).replace("://", "://app:password@"), durability="process") as store:
        use(store)
    url = cluster.url(prefix).replace("://", "://app:password@")
    for missing, given in {"cluster": "+command", "command": "+cluster|slots"}.items():
        for node in cluster.nodes:
            let_in(node, prefix, [*without(""), given])
        with pytest.raises(ConfigurationError, match=f"'{missing}.*see its ACL"), sync.open(url) as store:
            store.latest("t")
    for node in cluster.nodes:
        node.remove()


def is_woken(url: str) -> bool:
    """True if a listener of this user hears an announcement of this user."""
    with closing(RedisBackend(url, Durability.PROCESS)) as backend, closing(backend.listener(PREFIX)) as listener:
        backend.open()
        listener.wait(0.1)  # a new connection counts as a wake-up
        backend.announce(PREFIX)
        return listener.wait(0.3)


def test_without_the_rights_to_wake_others_workers_look_by_themselves(server: RedisServer) -> None:
    assert is_woken(let_in(server, new_prefix(), without("")))
    for missing in WAKING[:2]:
        assert not is_woken(let_in(server, new_prefix(), [each for each in without("") if each != missing]))
