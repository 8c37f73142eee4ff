"""Servers that die, restart, refuse and fall silent: no acknowledged save is lost, and none is made twice."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event, Thread

import psycopg
import pytest

import holdfast
from harness.broken_backends import Deaf
from holdfast import sync
from holdfast.records.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.records.words import Durability
from holdfast.stores.postgres import PostgresBackend
from holdfast.testing.conformance.samples import Line, head, rows
from patience import GIVE_UP_SECONDS
from rounds import rounds
from servers.postgres import PostgresServer, new_schema, shared_server
from servers.proxy import Proxy
from stores.postgres.scenes import NOT_WAITING

ROUNDS = rounds(4, 20)


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    """A server of its own, to be killed; it waits for the disk."""
    server = PostgresServer("max_connections=20", "shared_buffers=16MB")
    yield server
    server.remove()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    opened = Proxy(shared_server().port)
    yield opened
    opened.close()


class Writer:
    """Appends to a list until it is told to stop; knows what was acknowledged, and what was left open."""

    def __init__(self, store: sync.Store, thread_id: str) -> None:
        self.acknowledged: list[int] = []
        self.unknown: set[int] = set()
        self.refused = 0
        self.found: HoldfastError | None = None
        """Anything but an outage: then it wrote no more."""
        self._store = store
        self._thread_id = thread_id
        self._stop = Event()
        self.has_written = Event()
        store.save(thread_id, {"list": []})
        self._thread = Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._store.append(self._thread_id, "list", number)
            except OutcomeUnknown:
                self.unknown.add(number)
            except StoreUnavailable:
                self.refused += 1
            except HoldfastError as error:
                self.found = error
                self.has_written.set()
                return
            else:
                self.acknowledged.append(number)
                self.has_written.set()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Everything acknowledged is there, once, in its order; and nothing that was refused."""
        assert self.found is None, f"what it built on is lost: {self.found!r}"
        latest = self._store.latest(self._thread_id)
        assert latest is not None
        found = latest.state["list"]
        assert found == sorted(set(found)), "twice, or out of order"
        assert set(self.acknowledged) <= set(found), "an acknowledged save is lost"
        assert set(found) <= set(self.acknowledged) | self.unknown, "what was refused is there"


@pytest.mark.faults
def test_kill_9_of_the_server_in_mid_write_loses_and_doubles_nothing(mortal: PostgresServer) -> None:
    kill_servers(mortal, mortal.conninfo(), "killed", ROUNDS)


def test_a_server_that_does_not_wait_for_the_disk_is_found_out(mortal: PostgresServer) -> None:
    with pytest.raises(AssertionError, match="lost"):
        kill_servers(mortal, mortal.conninfo(options=NOT_WAITING), "not_waiting", 30)


def kill_servers(mortal: PostgresServer, conninfo: str, schema: str, rounds: int) -> None:
    """Kill the server again and again while several write, and compare what they were promised with what is there."""
    random = Random(5)
    with sync.PostgresStore(conninfo, schema, durability="process", patience=GIVE_UP_SECONDS) as store:
        for number in range(rounds):
            writers = [Writer(store, f"round {number} thread {each}") for each in range(3)]
            for writer in writers:
                assert writer.has_written.wait(GIVE_UP_SECONDS)
            for _ in range(random.randrange(200_000)):
                pass
            mortal.kill()
            mortal.start()
            for writer in writers:
                writer.has_written.clear()
                assert writer.has_written.wait(GIVE_UP_SECONDS), "it goes on by itself"
                writer.stop()
            for writer in writers:
                writer.check()
                assert len(writer.acknowledged) > 1
        assert store.verify().ok


def test_a_restart_between_two_saves_is_not_noticed(mortal: PostgresServer) -> None:
    with sync.PostgresStore(mortal.conninfo(), "restarted", patience=GIVE_UP_SECONDS) as store:
        store.save("t", {"n": 1})
        mortal.stop()
        mortal.start()
        assert store.save("t", {"n": 2}).seq == 2
        mortal.stop()
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(store.latest, "t")
            mortal.start()
            latest = reading.result()
        assert latest is not None
        assert latest.state == {"n": 2}


def test_a_server_that_stays_away_is_unavailable(mortal: PostgresServer) -> None:
    with sync.PostgresStore(mortal.conninfo(), "away", patience=0.2) as store:
        store.save("t", {"n": 1})
        mortal.stop()
        try:
            with pytest.raises(StoreUnavailable) as caught:
                store.save("t", {"n": 2})
            assert isinstance(caught.value.__cause__, psycopg.OperationalError)
            with pytest.raises(StoreUnavailable):
                store.latest("t")
        finally:
            mortal.start()
        assert store.save("t", {"n": 3}).seq == 2


def test_a_session_that_is_ended_is_replaced(mortal: PostgresServer) -> None:
    with sync.PostgresStore(mortal.conninfo(), "ended") as store:
        for number in range(1, 6):
            assert store.save("t", {"n": number}).seq == number
            mortal.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'holdfast'"
            )


# Replies that are lost


def backend_through(proxy: Proxy, schema: str) -> PostgresBackend:
    backend = PostgresBackend(shared_server().conninfo(port=proxy.port), schema=schema)
    backend.open()
    return backend


def is_swap(request: bytes) -> bool:
    return b".swap" in request


def test_a_lost_reply_leaves_the_outcome_open(proxy: Proxy) -> None:
    backend = backend_through(proxy, new_schema())
    line = Line(backend)
    line.put(head(1), rows(1))
    swap = line.swap(head(2), rows(2))
    proxy.swallow_reply(is_swap)
    with pytest.raises(OutcomeUnknown) as caught:
        backend.swap([swap])
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)
    assert line.encoded == swap.replacement, "here it was written"
    assert backend.swap([swap]) == [False]
    backend.close()


def test_a_request_that_never_arrived_leaves_the_outcome_open_too(proxy: Proxy) -> None:
    backend = backend_through(proxy, new_schema())
    line = Line(backend)
    line.put(head(1), rows(1))
    swap = line.swap(head(2), rows(2))
    proxy.drop_after(60)
    with pytest.raises(OutcomeUnknown):
        backend.swap([swap])
    assert line.encoded == line.stored, "here it was not"
    assert backend.swap([swap]) == [True]
    backend.close()


def test_a_connection_lost_before_a_write_is_replaced_in_silence(proxy: Proxy) -> None:
    backend = backend_through(proxy, new_schema())
    line = Line(backend)
    for seq in range(1, 6):
        line.put(head(seq), rows(seq))
        proxy.drop_all()
    assert proxy.connections >= 5
    backend.close()


def test_a_read_is_asked_again(proxy: Proxy) -> None:
    backend = backend_through(proxy, new_schema())
    line = Line(backend)
    line.put(head(1), rows(1))
    for _ in range(3):
        proxy.swallow_reply(lambda request: b".threads" in request)
        assert line.encoded == line.stored
    backend.close()


@pytest.mark.faults
@pytest.mark.parametrize("world", ["blocking", "awaitable"])
def test_saves_whose_replies_are_lost_are_found_out_and_never_doubled(world: str, proxy: Proxy) -> None:
    url, count = shared_server().url(new_schema(), proxy.port), rounds(15, 30)

    async def awaited() -> list[int]:
        async with holdfast.open(url) as store:
            await store.save("t", {"list": []})
            for number in range(count):
                proxy.swallow_reply(is_swap)
                await store.append("t", "list", number)
            latest = await store.latest("t")
            assert latest is not None
            return list(latest.state["list"])

    def blocking() -> list[int]:
        with sync.open(url) as store:
            store.save("t", {"list": []})
            for number in range(count):
                proxy.swallow_reply(is_swap)
                store.append("t", "list", number)
            latest = store.latest("t")
            assert latest is not None
            return list(latest.state["list"])

    assert (blocking() if world == "blocking" else asyncio.run(awaited())) == list(range(count))
    assert proxy.connections > count


def test_a_run_whose_replies_are_lost_records_each_step_once(proxy: Proxy) -> None:
    schema, executed = new_schema(), list[int]()
    with sync.open(shared_server().url(schema, proxy.port)) as store, store.run("t") as run:
        for number in range(15):
            proxy.swallow_reply(is_swap)
            run.step(f"step {number}", lambda number=number: executed.append(number))
        run.complete()
    assert executed == list(range(15))
    with sync.open(shared_server().url(schema)) as store:
        latest = store.latest("t")
        assert latest is not None
        assert [step.action for step in latest.steps] == [f"step {number}" for number in range(15)]


# Servers that refuse


def save_all(store: sync.Store, count: int, state: object) -> None:
    """Save to many threads: the given state, or a megabyte of noise."""
    for number in range(count):
        store.save(f"t{number}", state or Random(number).randbytes(1 << 20))


def test_a_server_that_takes_no_writes_is_unavailable_and_its_connection_is_given_up(mortal: PostgresServer) -> None:
    with sync.PostgresStore(mortal.conninfo(), "standby", patience=0.3) as store:
        store.save("t", {"n": 1})
        mortal.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        mortal.execute("SELECT pg_reload_conf()")
        try:
            with pytest.raises(StoreUnavailable, match="standby") as caught:
                save_all(store, 50, {"n": 1})
            assert isinstance(caught.value.__cause__, psycopg.errors.ReadOnlySqlTransaction)
            assert store.latest("t") is not None
        finally:
            with psycopg.connect(mortal.conninfo(), autocommit=True) as connection:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
                connection.execute("SELECT pg_reload_conf()")
    with sync.PostgresStore(mortal.conninfo(), "standby", patience=GIVE_UP_SECONDS) as store:
        assert store.save("t", {"n": "after"}).seq > 1


def test_a_server_without_a_free_connection_is_waited_for(mortal: PostgresServer) -> None:
    with sync.PostgresStore(mortal.conninfo(), "full", patience=GIVE_UP_SECONDS) as store:
        store.save("t", {"n": 1})
        mortal.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'holdfast'"
        )
        others = every_slot(mortal)
        saved = Event()

        def save() -> None:
            store.save("t", {"n": 2})
            saved.set()

        saving = Thread(target=save)
        saving.start()
        assert not saved.wait(0.3)
        for other in others:
            other.close()
        saving.join()
        assert saved.is_set()
    others = every_slot(mortal)
    refused = pytest.raises(StoreUnavailable, match=r"too many|remaining connection slots")
    with refused, sync.PostgresStore(mortal.conninfo(), "full") as store:
        store.save("t", 1)
    for other in others:
        other.close()


def every_slot(server: PostgresServer) -> list[psycopg.Connection[tuple[object, ...]]]:
    """All the connections that a server has left."""
    taken: list[psycopg.Connection[tuple[object, ...]]] = []
    while True:
        try:
            taken.append(psycopg.connect(server.conninfo()))
        except psycopg.OperationalError:
            return taken


def test_a_statement_that_takes_too_long_was_not_made(mortal: PostgresServer) -> None:
    options = "-c statement_timeout=1000"
    with sync.PostgresStore(mortal.conninfo(options=options), "slow") as store:
        store.save("t", {"n": 1})
        with psycopg.connect(mortal.conninfo()) as blocker:
            blocker.execute("SELECT * FROM slow.threads FOR UPDATE")
            with pytest.raises(StoreUnavailable, match="statement_timeout") as caught:
                store.save("t", {"n": 2})
            assert isinstance(caught.value.__cause__, psycopg.errors.QueryCanceled)
        assert store.save("t", {"n": 3}).seq == 2


def survive_a_full_disk(store: sync.Store) -> None:
    with pytest.raises(StoreUnavailable, match="could not"):
        save_all(store, 40, b"")
    kept = store.stats().threads
    assert kept > 3
    for each in range(kept):
        latest = store.latest(f"t{each}")
        assert latest is not None
        assert latest.state == Random(each).randbytes(1 << 20)
    assert store.latest(f"t{kept}") is None
    assert store.verify().ok


@pytest.fixture
def small_server() -> Iterator[PostgresServer]:
    server = PostgresServer("shared_buffers=1MB", largest_file=16 << 20)
    yield server
    server.remove()


def test_a_server_out_of_disk_is_unavailable_and_loses_nothing(small_server: PostgresServer) -> None:
    with sync.PostgresStore(small_server.conninfo(), patience=0.2, compress=False) as store:
        survive_a_full_disk(store)


def test_a_store_that_does_not_hear_its_server_is_found_out_when_the_disk_is_full(small_server: PostgresServer) -> None:
    deaf = Deaf(PostgresBackend(small_server.conninfo(), Durability.DURABLE, patience=0.2))
    with sync.Store(deaf, compress=False) as store, pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        survive_a_full_disk(store)


def test_a_wrong_address_is_told_at_once() -> None:
    with pytest.raises(StoreUnavailable, match="refused"), sync.open("postgresql://127.0.0.1:1/x") as store:
        store.save("t", 1)
    backend = PostgresBackend(shared_server().conninfo(dbname="nowhere"), Durability.DURABLE)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        backend.open()
