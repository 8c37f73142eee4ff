"""The agenda on PostgreSQL: it agrees with the model, its looks stay cheap, and takers at once share what is due."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import Any

import psycopg
import pytest

from holdfast import sync
from holdfast.records.errors import StoreUnavailable
from holdfast.records.words import Durability
from holdfast.stores.agenda import HIDE, PARKED, Pace, QueueLimits
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.postgres import PostgresBackend
from holdfast.testing.conformance.agendas import PREFIX, ROUTE, queued
from holdfast.testing.conformance.samples import Line, key, rows
from patience import GIVE_UP_SECONDS
from servers.postgres import new_schema, shared_server
from servers.proxy import Proxy
from stores.postgres.scenes import NOT_WAITING, backend_in
from stores.test_agenda import Clock, Story

PLACE = f"'\\x{(PREFIX + b'q').hex()}'"
SERVED, UNSERVED = f"'\\x{ROUTE.hex()}'", "'other'"
FEW = 60
"""An idle look reads fewer pages: a few of the index for each priority. To take a thread costs as many."""
TEMPTING = "-c random_page_cost=1000 -c seq_page_cost=0.001"
"""With these costs a planner that may choose reads whole tables."""


class StoreClock(Clock):
    """A time that a test sets: for its backends, and for the functions in their schema."""

    _now = 1_000_000

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._connection = psycopg.connect(shared_server().conninfo(), autocommit=True)
        self._run(
            f"CREATE TABLE {schema}.clock AS SELECT {self._now}::bigint AS now;"
            f"CREATE OR REPLACE FUNCTION {schema}.moment() RETURNS bigint LANGUAGE plpgsql AS"
            f" 'BEGIN RETURN (SELECT now FROM {schema}.clock); END'"
        )

    def _run(self, sql: str) -> None:
        self._connection.execute(sql.encode())

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
def backend(schema: str) -> Iterator[PostgresBackend]:
    opened = backend_in(schema)
    opened.open()
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(6))
def test_postgres_tells_the_same_story_as_memory(backend: PostgresBackend, schema: str, seed: int) -> None:
    clock, backends = StoreClock(schema), list[Any]([MemoryBackend(), backend])
    for each in backends:
        each.now = clock
    Story(backends, clock, Random(seed)).tell()
    clock.close()


# Looks stay cheap


def fill(schema: str, count: int, due: str, *, lane: str = "''", route: str = SERVED, held: bool = False) -> None:
    """Insert entries and their threads as the server can: `due` and `lane` are expressions of their number, i."""
    shared_server().execute(
        f"INSERT INTO {schema}.agenda (key, place, route, priority, lane, held, due)"
        f" SELECT sha256(i::text::bytea), {PLACE}, {route}, 0, {lane}, {held}, {due}"
        f" FROM generate_series(1, {count}) AS i;"
        f"INSERT INTO {schema}.threads (key, thread, head, status, labels)"
        f" SELECT key, key, '', 'queued', '{{}}' FROM {schema}.agenda ON CONFLICT DO NOTHING"
    )


def pages(schema: str, low: int = 0, limits: str = "NULL, NULL, NULL, NULL, NULL, NULL", unbegun: str = "'{}'") -> int:
    """Return how many pages a look reads, on a session that has looked before."""
    look = f"SELECT * FROM {schema}.take({PLACE}, ARRAY[{SERVED}::bytea], 10, '', {low}, {limits}, {unbegun})"
    with psycopg.connect(shared_server().conninfo(options=TEMPTING), autocommit=True) as connection:
        for _ in range(7):
            connection.execute(look.encode())
        ((explained,),) = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {look}".encode()).fetchall()
    plan = explained[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


BACKLOGS = {
    "waiting for answers": {"due": f"{PARKED}"},
    "delayed": {"due": f"{PARKED} - i"},
    "delayed, and not served": {"due": f"{PARKED} - i", "route": UNSERVED},
    "due, and not served": {"due": "i", "route": UNSERVED},
    "due": {"due": "i"},
    "due, and many delayed": {"due": f"CASE WHEN i < 20 THEN i ELSE {PARKED} - i END"},
    "due, and many delayed, each in a lane": {
        "due": f"CASE WHEN i < 5 THEN i ELSE {PARKED} - i END",
        "lane": "i::text::bytea",
    },
    "due at the same time": {"due": "5"},
    "due in many lanes": {"due": "i", "lane": "(i % 1000)::text::bytea"},
    "running": {"due": f"{PARKED} - i", "held": True},
}


@pytest.mark.parametrize("statistics", ["none", "empty", "large", "stale"])
@pytest.mark.parametrize("backlog", BACKLOGS.values(), ids=BACKLOGS)
def test_a_look_reads_a_few_pages_whatever_waits_and_whatever_the_statistics_say(
    backend: PostgresBackend, schema: str, backlog: dict[str, Any], statistics: str
) -> None:
    if statistics == "empty":
        shared_server().execute(f"ANALYZE {schema}.agenda, {schema}.threads")
    if statistics == "stale":
        fill(schema, 20_000, f"{PARKED}", lane="'x'", route=UNSERVED)
        shared_server().execute(
            f"ANALYZE {schema}.agenda, {schema}.threads; TRUNCATE {schema}.agenda, {schema}.threads"
        )
    fill(schema, 20_000, **backlog)
    if statistics == "large":
        shared_server().execute(f"ANALYZE {schema}.agenda, {schema}.threads")
    most = FEW if str(PARKED) in backlog["due"][:30] else 10 * FEW
    assert pages(schema) < most
    assert pages(schema, limits="1, 1000000, 1000, 'bucket', 1, 1000") < most


def test_a_look_from_the_low_water_mark_on_passes_no_dead_entries(backend: PostgresBackend, schema: str) -> None:
    low = backend.now()
    with psycopg.connect(shared_server().conninfo()) as report:
        report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT 1")
        before = pages(schema)
        fill(schema, 20_000, f"{low} - 100000000 + i")
        shared_server().execute(f"UPDATE {schema}.agenda SET held = true, due = due + 1")
        shared_server().execute(f"DELETE FROM {schema}.agenda")
        assert pages(schema) > 400, "the report keeps them"
        assert pages(schema, low) < before + FEW


def test_a_backlog_that_the_pace_holds_back_costs_a_look_nothing(backend: PostgresBackend, schema: str) -> None:
    fill(schema, 20_000, "i", lane="(i % 1000)::text::bytea")
    assert backend.spend(b"bucket", HIDE * 1_000_000, 0) == 0
    assert pages(schema, limits="1, NULL, NULL, 'bucket', 1, 0", unbegun=f"ARRAY[{SERVED}::bytea]") < FEW


# Takers at once


def _taken_by(conninfo: str, schema: str) -> list[bytes]:
    """Take until nothing is left, in another process or thread."""
    backend, found = PostgresBackend(conninfo, Durability.PROCESS, schema=schema), list[bytes]()
    backend.open()
    while entries := backend.take(PREFIX, "q", [ROUTE], 3).entries:
        found += [due.thread for due in entries]
    backend.close()
    return found


def test_processes_that_take_at_once_share_what_is_due(backend: PostgresBackend, schema: str) -> None:
    fill(schema, 600, "i", lane="(i % 7)::text::bytea")
    pool: Executor
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        taken = [pool.submit(_taken_by, shared_server().conninfo(options=NOT_WAITING), schema) for _ in range(3)]
        found = Counter(thread for each in taken for thread in each.result(GIVE_UP_SECONDS))
    assert len(found) == 600


def test_takers_at_once_never_exceed_the_limits(backend: PostgresBackend, schema: str) -> None:
    limits = QueueLimits(5, 2, Pace(b"bucket", 1_000, 4_000), frozenset([ROUTE]))
    for number in range(80):
        Line(backend, key(f"t{number}")).put(queued(lane=b"%d" % (number % 4), updated_at=1_000 + number), rows(1))

    def work(_: int) -> int:
        mine, ended = backend_in(schema), 0
        mine.open()
        while mine.depth(PREFIX, "q").ready:
            for due in mine.take(PREFIX, "q", [ROUTE], 3, limits=limits).entries:
                held = Counter(entry.lane for entry in mine.entries(PREFIX).values() if entry.held)
                assert held.total() <= 5
                assert max(held.values()) <= 2
                line = Line(mine, due.thread)
                line.stored = due.head
                ended += sum(mine.swap([line.swap(queued(seq=2, status="complete"))]))
        mine.close()
        return ended

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) <= 80
    assert backend.depth(PREFIX, "q").ready == 0


def test_limits_need_snapshots_that_see_what_others_hold(backend: PostgresBackend, schema: str) -> None:
    options = "-c default_transaction_isolation=repeatable\\ read"
    strict = PostgresBackend(shared_server().conninfo(options=options), schema=schema)
    strict.open()
    Line(backend).put(queued(), rows(1))
    with pytest.raises(StoreUnavailable, match="READ COMMITTED"):
        strict.take(PREFIX, "q", [ROUTE], 1, limits=QueueLimits(concurrency=1))
    assert len(strict.take(PREFIX, "q", [ROUTE], 1).entries) == 1
    strict.close()


# What touches it


def test_a_sweep_forgets_what_is_paid_off_and_skips_what_is_being_charged(
    backend: PostgresBackend, schema: str
) -> None:
    buckets = f"SELECT bucket FROM {schema}.buckets ORDER BY bucket"
    for bucket, cost in ((b"charged", 1), (b"owing", HIDE * 1000), (b"paid", 1)):
        assert backend.spend(bucket, cost, 0) == 0
    with psycopg.connect(shared_server().conninfo()) as other:
        other.execute(f"SELECT 1 FROM {schema}.buckets WHERE bucket = 'charged' FOR UPDATE".encode())
        assert backend.sweep(PREFIX) == 0
        assert shared_server().execute(buckets) == [(b"charged",), (b"owing",)]
    backend.sweep(PREFIX)
    assert shared_server().execute(buckets) == [(b"owing",)]
    assert backend.spend(b"owing", 1, 0) > 0


def test_a_step_commits_while_nobody_can_touch_the_agenda(schema: str) -> None:
    with sync.PostgresStore(shared_server().conninfo(options="-c lock_timeout=1s"), schema, patience=0) as store:

        @sync.durable(store=store, name="postgres agenda steps")
        def steps() -> int:
            run = sync.current()
            run.step("first", int)
            with psycopg.connect(shared_server().conninfo()) as connection:
                connection.execute(f"LOCK TABLE {schema}.agenda IN ACCESS EXCLUSIVE MODE".encode())
                for number in range(5):
                    run.step(f"s{number}", int)
                with pytest.raises(StoreUnavailable, match="lock timeout"):
                    store.submit("app:f", "other", (1,))
            return 7

        assert steps.run("t") == 7


def test_a_look_costs_one_round_trip_and_the_time_none(schema: str) -> None:
    proxy = Proxy(shared_server().port)
    backend = PostgresBackend(shared_server().conninfo(port=proxy.port), schema=schema, prepare_threshold=None)
    backend.open()
    Line(backend).put(queued(), rows(1))
    before = proxy.turns
    times = [backend.now() for _ in range(20)]
    assert times == sorted(times)
    assert proxy.turns == before
    assert len(backend.take(PREFIX, "q", [ROUTE], 10, limits=QueueLimits(1)).entries) == 1
    assert proxy.turns - before == 1
    backend.close()
    proxy.close()


def test_an_entry_is_part_of_the_transaction_that_submits(backend: PostgresBackend, schema: str) -> None:
    with (
        sync.PostgresStore(shared_server().conninfo(), schema) as store,
        psycopg.connect(shared_server().conninfo(), autocommit=True) as connection,
    ):
        with connection.transaction(force_rollback=True):
            store.submit("app:f", "t", (1,), connection=connection)
        assert backend.entries(PREFIX) == {}
        with connection.transaction():
            store.submit("app:f", "t", (1,), connection=connection)
            assert backend.entries(PREFIX) == {}
        assert list(backend.entries(PREFIX)) == [key("t")]
        assert store.verify().ok


@pytest.mark.parametrize(
    "damage", ["DELETE FROM {}.agenda", "UPDATE {}.agenda SET due = due + 60000000", "UPDATE {}.agenda SET place = 'x'"]
)
def test_verify_finds_what_differs_from_the_heads(schema: str, damage: str) -> None:
    with sync.PostgresStore(shared_server().conninfo(), schema) as store:
        store.submit("app:f", "a", (1,))
        assert store.verify().ok
        shared_server().execute(damage.format(schema))
        (problem,) = store.verify().problems
        assert (problem.thread_id, problem.record) == ("a", "agenda")
        shared_server().execute(f"INSERT INTO {schema}.agenda VALUES ('no thread', 'q', 'r', 0, '', false, 0)")
        assert any("an entry of no thread" in each.message for each in store.verify().problems)


# Announcements


def _listening(channel: str) -> list[int]:
    found = shared_server().execute(f"SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%{channel}'")
    return [int(str(pid)) for (pid,) in found]


def test_a_listener_that_is_cut_connects_again_and_says_so(backend: PostgresBackend) -> None:
    listener = backend.listener(PREFIX)
    assert listener.wait(GIVE_UP_SECONDS), "it is connected"
    assert not listener.wait(0.1)
    (process,) = _listening(listener._channel)
    shared_server().execute(f"SELECT pg_terminate_backend({process})")
    assert listener.wait(GIVE_UP_SECONDS), "what was announced meanwhile is lost, so there may be something"
    assert _listening(listener._channel) != [process]
    backend.announce(PREFIX)
    assert listener.wait(GIVE_UP_SECONDS)
    listener.close()
    assert not listener.wait(1)


def test_a_listener_hears_its_own_namespace_alone(backend: PostgresBackend) -> None:
    listener = backend.listener(PREFIX)
    assert listener.wait(GIVE_UP_SECONDS)
    backend.announce(b"\x05other")
    assert not listener.wait(0.2)
    listener.close()


def test_a_listener_that_waits_can_be_closed(backend: PostgresBackend) -> None:
    listener = backend.listener(PREFIX)
    assert listener.wait(GIVE_UP_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(listener.wait, GIVE_UP_SECONDS)
        listener.close()
        assert not waiting.result(GIVE_UP_SECONDS)
    assert _listening(listener._channel) == []


def test_an_announcement_never_raises(schema: str) -> None:
    backend = backend_in(schema)
    backend.open()
    backend.announce(PREFIX)
    backend.announce(PREFIX)
    backend.close()
    backend.announce(PREFIX)
