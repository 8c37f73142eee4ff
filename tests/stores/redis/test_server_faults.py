"""Servers that die, and replies that are lost: no acknowledged save goes, and none is made twice."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.retry import Retry

from harness.broken_backends import Deaf
from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores.redis import RedisBackend
from holdfast.stores.redis.scripts import script
from holdfast.stores.redis.wire import Exchange
from holdfast.testing.conformance.samples import Line, head, key, rows
from patience import GIVE_UP_SECONDS
from rounds import rounds
from servers.proxy import Proxy
from servers.redis import RedisServer, new_prefix, shared_cluster, shared_server

ROUNDS = rounds(5, 20)

pytestmark = pytest.mark.faults


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A line to the shared server that can be cut."""
    made = Proxy(shared_server().port)
    yield made
    made.close()


@pytest.fixture
def prefix() -> str:
    return new_prefix()


@pytest.fixture
def store(proxy: Proxy, prefix: str) -> Iterator[sync.Store]:
    with sync.open(shared_server().url(prefix, proxy.port), durability="process") as opened:
        yield opened


def numbers_in(store: sync.Store, thread_id: str) -> list[int]:
    latest = store.latest(thread_id)
    return [] if latest is None else list(latest.state["numbers"])


class Writer(Thread):
    """Appends 0, 1, 2 ... and, if it is not told what became of one, looks before it goes on."""

    def __init__(self, store: sync.Store, thread_id: str) -> None:
        super().__init__(daemon=True)
        self.store, self.thread_id = store, thread_id
        self.acknowledged, self.unknown = 0, 0
        self.ends = Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                self._append()
        except BaseException as error:  # noqa: BLE001  shown by the test
            self.failure = error

    def _append(self) -> None:
        try:
            self.store.append(self.thread_id, "numbers", self.acknowledged)
        except sync.StoreUnavailable:
            return
        except sync.OutcomeUnknown:
            self.unknown += 1
            if not self._is_there():
                return
        self.acknowledged += 1

    def _is_there(self) -> bool:
        while True:
            with suppress(sync.StoreUnavailable):
                return len(numbers_in(self.store, self.thread_id)) > self.acknowledged


def test_a_server_killed_in_the_midst_of_writes_keeps_what_it_acknowledged() -> None:
    server, random = RedisServer(appendfsync="always"), Random(3)
    with sync.open(server.url("faults")) as store:
        for number in range(ROUNDS):
            writers = [Writer(store, f"{number} {name}") for name in range(4)]
            for writer in writers:
                writer.start()
            target = random.randrange(20, 200)
            while sum(writer.acknowledged for writer in writers) < target:
                assert not any(writer.failure for writer in writers), [writer.failure for writer in writers]
            server.kill()
            server.start()
            for writer in writers:
                writer.ends.set()
                writer.join()
                assert writer.failure is None
                assert numbers_in(store, writer.thread_id) == list(range(writer.acknowledged))
        assert store.verify().ok
    with sync.open(server.url("faults")) as store:
        assert store.append("0 0", "numbers", -1).seq > 1
    server.remove()


@pytest.mark.parametrize("step", ["connect", "send", "receive"])
def test_a_connection_that_the_pool_closes_for_another_thread_is_one_that_was_cut(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """redis-py closes idle connections without a lock, and one that is just being taken may be among them."""
    store.append("t", "numbers", 0)
    names = {"connect": "can_read", "send": "send_packed_command", "receive": "read_response"}
    real, closed = getattr(Connection, names[step]), [False]

    def once_closed(connection: Any, *arguments: Any, **options: Any) -> Any:
        if not closed[0]:
            closed[0] = True
            raise ValueError("I/O operation on closed file.")
        return real(connection, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, names[step], once_closed)
        store.append("t", "numbers", 1)
    assert closed[0]
    assert numbers_in(store, "t") == [0, 1]


def test_a_server_without_an_append_only_file_loses_it_all() -> None:
    """The test above could fail: this is what it would find."""
    server = RedisServer(appendonly="no")
    with sync.open(server.url("faults"), durability="none") as store:
        store.append("t", "numbers", 1)
        server.kill()
        server.start()
        assert store.latest("t") is None
    server.remove()


def is_write(request: bytes) -> bool:
    return b"EVAL" in request or b"HSETNX" in request


def test_a_save_whose_reply_is_lost_is_made_once(store: sync.Store, proxy: Proxy) -> None:
    store.save("t", {"numbers": []})
    for number in range(10):
        proxy.swallow_reply(is_write)
        store.append("t", "numbers", number)
    assert numbers_in(store, "t") == list(range(10))


def test_a_first_save_whose_reply_is_lost_is_made_once(store: sync.Store, proxy: Proxy) -> None:
    proxy.swallow_reply(is_write)
    assert store.save("t", {"a": 1}).seq == 1
    assert [info.seq for info in store.history("t")] == [1]


def test_runs_bear_lost_replies(store: sync.Store, proxy: Proxy) -> None:
    calls = []
    for _ in range(2):
        with store.run("t", reopen=True) as run:
            proxy.swallow_reply(is_write)
            run.step("once", lambda: calls.append(1))
            proxy.swallow_reply(is_write)
            run.step("twice", lambda: calls.append(2))
    assert calls == [1, 2]


def test_a_message_whose_reply_is_lost_is_not_sent_twice(proxy: Proxy, prefix: str) -> None:
    backend = RedisBackend(shared_server().url(prefix, proxy.port), Durability.PROCESS)
    backend.open()
    line = Line(backend)
    backend.post(line.key, "first", b"v")
    proxy.swallow_reply(is_write)
    with pytest.raises(sync.OutcomeUnknown):
        backend.post(line.key, "k", b"v")
    assert backend.inbox(line.key) == {"first": b"v", "k": b"v"}
    proxy.swallow_reply(is_write)
    with pytest.raises(sync.OutcomeUnknown):
        backend.swap([line.swap(head(), rows(1))])
    assert line.seqs == [1]
    backend.close()


def test_in_a_cluster_a_write_whose_reply_is_lost_is_not_sent_again() -> None:
    """redis-py's own pipeline of a cluster would send it again, and the second answer would be a refusal."""
    proxies = {node.port: Proxy(node.port) for node in shared_cluster().nodes}
    first = next(iter(proxies.values()))
    client = redis.RedisCluster(
        host="127.0.0.1", port=first.port, address_remap=lambda at: ("127.0.0.1", proxies[at[1]].port)
    )
    backend = RedisBackend(client, Durability.PROCESS, prefix=new_prefix())
    backend.open()
    lines = [Line(backend, key(f"t{number}")) for number in range(12)]
    for line in lines:
        for proxy in proxies.values():
            proxy.swallow_reply(is_write)
        swap = line.swap(head(1), rows(1))
        with pytest.raises(sync.OutcomeUnknown):
            backend.swap([swap])
        assert line.encoded == swap.replacement, "it was made"
        assert backend.swap([swap]) == [False]
        for proxy in proxies.values():
            proxy.swallow_reply(lambda _: False)
    backend.close()
    client.close()
    for proxy in proxies.values():
        proxy.close()


def test_a_connection_on_which_a_reply_is_outstanding_is_not_used_again(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = RedisBackend(shared_server().url(prefix), Durability.PROCESS)
    backend.open()
    line = Line(backend)
    line.put(head(1), rows(1))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, shared_server().client() as client:
        patched.setattr(Exchange, "receive", interrupted)
        client.client_pause(300)  # so that the reply comes when the connection could be in use again
        with pytest.raises(KeyboardInterrupt):
            backend.inbox(line.key)
    assert line.encoded == line.stored
    backend.close()


def test_upkeep_bears_lost_replies(store: sync.Store, proxy: Proxy) -> None:
    checkpoints = [store.save("t", {"a": number}) for number in range(4)]
    for upkeep in (
        lambda: store.pin(checkpoints[1].id),
        lambda: store.prune(sync.Retention(keep_last=1)),
        lambda: store.delete("t"),
        lambda: store.revive("t"),
    ):
        proxy.swallow_reply(lambda request: script("swap").digest in request)
        upkeep()
    assert store.save("t", {"a": 9}).seq == 1


def test_a_read_whose_reply_is_lost_is_read_again(store: sync.Store, proxy: Proxy) -> None:
    store.save("t", {"a": 1})
    for question in (lambda: store.latest("t"), store.threads, lambda: store.history("t")):
        proxy.swallow_reply()
        assert question() is not None


def test_a_line_cut_at_any_byte_of_a_request_loses_and_doubles_nothing(
    store: sync.Store, proxy: Proxy, prefix: str
) -> None:
    """What arrived wholly was done, and is found to be; what did not was not. Either way it can go on."""
    store.save("t", {"numbers": []})
    random, made = Random(5), 0
    for cut in sorted(random.sample(range(1, 1600), rounds(30, 60))):
        proxy.drop_after(cut)
        with suppress(sync.OutcomeUnknown):
            store.append("t", "numbers", made)
        proxy.drop_after(10**9)
        present = numbers_in(store, "t")
        assert present in (list(range(made)), list(range(made + 1)))
        made = len(present)
    assert made > 5
    assert store.verify().ok


def test_idle_connections_that_were_cut_are_replaced_without_a_word(store: sync.Store, proxy: Proxy) -> None:
    store.save("t", {"numbers": []})
    for number in range(5):
        proxy.drop_all()
        store.append("t", "numbers", number)
    assert numbers_in(store, "t") == list(range(5))


def test_a_server_that_cannot_be_reached_is_unavailable(proxy: Proxy, prefix: str) -> None:
    with sync.RedisStore(shared_server().url(prefix, proxy.port), durability="process", patience=0.1) as store:
        store.save("t", 1)
        proxy.close()
        with pytest.raises(sync.StoreUnavailable, match="cannot be reached"):
            store.save("t", 2)
        with pytest.raises(sync.StoreUnavailable):
            store.latest("t")


def fill_up(store: sync.Store) -> int:
    """Save until the store refuses; how often it did not."""
    for saved in range(200):
        try:
            store.save("t", {"text": str(saved) * 100_000, "n": Random(saved).randbytes(50_000)})
        except sync.StoreUnavailable:
            return saved
    raise AssertionError("the server never was full")


def test_a_server_without_memory_refuses_and_forgets_nothing() -> None:
    server = RedisServer(maxmemory="4mb", appendfsync="everysec")
    with sync.open(server.url("full"), durability="process") as store:
        store.save("small", {"kept": True})
        saved = fill_up(store)
        assert saved > 3
        with pytest.raises(sync.StoreUnavailable, match="out of memory"):
            store.save("new", {"text": Random(1).randbytes(50_000)})
        assert store.get("t", saved).state["n"] == Random(saved - 1).randbytes(50_000)
        assert store.verify().ok
        assert store.prune(sync.Retention(keep_last=1)).bytes > 0, "what is full can be emptied"
        assert store.save("t", {"text": "fits again"}).seq > saved
        store.delete("t")
        assert store.save("small", {"kept": "still"}).seq == 2
        assert store.verify().ok
    server.remove()


def survive_a_full_disk(server: RedisServer, store: sync.Store) -> None:
    server.limit_files(1 << 20)
    saved = fill_up(store)
    assert saved > 3
    with pytest.raises(sync.StoreUnavailable, match="cannot write to its disk"):
        store.save("new", 1)
    kept = store.get("t", saved).state
    assert kept["n"] == Random(saved - 1).randbytes(50_000)
    server.limit_files(None)
    wait_for_the_disk(server)
    assert store.save("t", {"text": "fits again"}).seq == saved + 1
    assert store.verify().ok


def test_a_server_out_of_disk_refuses_and_forgets_nothing() -> None:
    server = RedisServer(appendfsync="everysec")
    with sync.open(server.url("full"), durability="process") as store:
        survive_a_full_disk(server, store)
    server.remove()


def test_a_store_that_does_not_hear_its_server_is_found_out_when_the_disk_is_full() -> None:
    server = RedisServer(appendfsync="everysec")
    with (
        sync.Store(Deaf(RedisBackend(server.url("full"), Durability.PROCESS))) as store,
        pytest.raises(AssertionError, match="never was full"),
    ):
        survive_a_full_disk(server, store)
    server.remove()


def wait_for_the_disk(server: RedisServer) -> None:
    """Redis tries again each second what it could not write."""
    ends_at = monotonic() + GIVE_UP_SECONDS
    with server.client() as client:
        while client.info("persistence")["aof_last_write_status"] != "ok":
            assert monotonic() < ends_at
            sleep(0.1)


def test_a_server_with_no_connections_left_is_unavailable_until_there_are() -> None:
    server = RedisServer(maxclients="3", appendfsync="everysec")
    holders: list[Any] = [server.client(single_connection_client=True) for _ in range(3)]
    for holder in holders:
        holder.ping()
    store = sync.RedisStore(server.url("many"), durability="process", patience=1)
    with pytest.raises(sync.StoreUnavailable):
        store.save("t", 1)
    holders.pop().close()
    assert store.save("t", 2).seq == 1
    store.close()
    for holder in holders:
        holder.close()
    server.remove()


def test_a_batch_waits_for_a_server_that_is_loading() -> None:
    server = RedisServer(appendonly="no", key_load_delay="1000", loading_process_events_interval_bytes="1024")
    with server.client() as client:
        client.mset({f"key {number}": "x" * 100 for number in range(2000)})
        client.save()
    server.kill()
    server.start(wait=False)
    while not is_loading(server):
        sleep(0.01)
    backend = RedisBackend(server.url("loading"), Durability.NONE)
    lines = [Line(backend, key(name)) for name in "ab"]
    assert backend.swap([line.swap(head(1), rows(1)) for line in sorted(lines, key=lambda line: line.key)]) == [
        True,
        True,
    ]
    backend.close()
    server.remove()


def is_loading(server: RedisServer) -> bool:
    try:
        with server.client(retry=Retry(NoBackoff(), 0)) as client:
            client.get("key 1")
    except redis.BusyLoadingError:
        return True
    except redis.ConnectionError:
        return False
    raise AssertionError("it has loaded too soon to be met at it")


def test_more_threads_than_connections_wait_for_their_turn(prefix: str) -> None:
    with sync.RedisStore(shared_server().url(prefix), durability="process", connections=2) as store:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for turn in range(20):
                    store.save(f"t{number}", {"turn": turn})
                    store.latest(f"t{number}")
            except BaseException as error:  # noqa: BLE001  shown below
                failures.append(error)

        threads = [Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert {info.seq for info in store.threads()} == {20}


def test_a_server_that_forgot_its_scripts_is_told_them_again(store: sync.Store) -> None:
    store.save("t", {"numbers": []})
    with shared_server().client() as client:
        for number in range(3):
            client.script_flush()
            store.append("t", "numbers", number)
    assert numbers_in(store, "t") == [0, 1, 2]


# Round trips


def test_an_append_is_one_round_trip(store: sync.Store, proxy: Proxy) -> None:
    store.save("t", {"numbers": []})
    before = proxy.turns
    for number in range(50):
        store.append("t", "numbers", number)
    assert proxy.turns - before == 50


def test_the_first_save_of_a_thread_is_one_round_trip(store: sync.Store, proxy: Proxy) -> None:
    store.save("warm", 1)
    before = proxy.turns
    assert store.save("t", {"numbers": [0]}).seq == 1
    assert proxy.turns - before == 1


def test_the_first_append_to_a_thread_of_another_process_is_four_round_trips(
    store: sync.Store, proxy: Proxy, prefix: str
) -> None:
    with sync.open(shared_server().url(prefix), durability="process") as other:
        other.save("t", {"numbers": [0]})
        other.save("with a blob", {"numbers": [0], "text": Random(1).randbytes(9000)})
    store.latest("warm")
    for thread_id, count in (("t", 4), ("with a blob", 5)):
        before = proxy.turns
        store.append(thread_id, "numbers", 1)
        assert proxy.turns - before == count, "refused, head, rows, blobs, append"
        assert numbers_in(store, thread_id) == [0, 1]


def test_a_new_status_and_new_labels_cost_no_further_round_trip(store: sync.Store, proxy: Proxy) -> None:
    store.save("t", 1)
    before = proxy.turns
    store.save("t", 2, status="failed", labels={"a": "b"})
    assert proxy.turns - before == 1
    assert [info.thread_id for info in store.threads(status="failed", labels={"a": "b"})] == ["t"]


def test_a_restore_of_a_thousand_steps_is_three_round_trips(proxy: Proxy, prefix: str) -> None:
    url = shared_server().url(prefix, proxy.port)
    with sync.open(url, durability="process") as store:
        store.save("t", {"numbers": []})
        for number in range(1000):
            store.append("t", "numbers", {"number": number, "text": "x" * 300})
    with sync.open(url, durability="process") as store:
        store.thread("t")
        before = proxy.turns
        latest = store.latest("t")
        assert proxy.turns - before <= 3
        assert latest is not None
        assert len(latest.state["numbers"]) == 1000


def test_a_page_of_threads_is_two_round_trips(store: sync.Store, proxy: Proxy) -> None:
    for number in range(100):
        store.save(f"t{number}", number)
    before = proxy.turns
    assert len(store.threads(limit=50).items) == 50
    assert proxy.turns - before == 2
