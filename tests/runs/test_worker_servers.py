"""Real worker processes on PostgreSQL and Redis: killed, cut off, with wrong clocks, and while the server is away."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.runs.looking import POLL_SECONDS
from holdfast.runs.store import Store
from holdfast.runs.worker import ANNOUNCED_SECONDS, Worker
from rounds import rounds
from runs.fleet import LEASE, Fleet
from servers import postgres, redis
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from servers.redis import RedisServer

pytestmark = [pytest.mark.processes, pytest.mark.faults, pytest.mark.servers]
KINDS = ("postgres", "redis")
HOUR = 3600
on_both = pytest.mark.parametrize("kind", KINDS)


def shared_url(kind: str) -> str:
    if kind == "postgres":
        return postgres.shared_server().url(postgres.new_schema())
    return redis.shared_server().url(redis.new_prefix()) + "&durability=process"


@pytest.fixture
def fleet(kind: str, tmp_path: Path) -> Iterator[Fleet]:
    with closing(Fleet(tmp_path, shared_url(kind))) as made:
        yield made


# Clocks


@on_both
@pytest.mark.parametrize("shift", [HOUR, -HOUR])
def test_a_worker_whose_clock_is_an_hour_off_takes_nothing_early_and_nothing_late(fleet: Fleet, shift: int) -> None:
    fleet.submit("later", 1, delay=HOUR / 2)
    fleet.submit("soon", 1, delay=2)
    due = fleet.store.thread("soon").wake_at
    assert due is not None
    fleet.start(shift=shift)
    fleet.until(lambda: fleet.store.counts() == {"complete": 1, "queued": 1})
    assert due <= fleet.store.history("soon").items[0].created_at < due + timedelta(seconds=HOUR / 2)
    assert fleet.executions() == ["soon 0", "soon by 1 for 1"]


@on_both
def test_leases_hold_between_workers_with_different_clocks(fleet: Fleet) -> None:
    fleet.start(shift=-HOUR, step=str(2 * LEASE))
    fleet.submit("t", 1)
    fleet.until(fleet.executions)
    fleet.start(shift=HOUR)
    fleet.until(lambda: fleet.store.counts() == {"complete": 1})
    assert fleet.executions() == ["t 0", "t by 1 for 1"]


@on_both
@pytest.mark.parametrize("shift", [HOUR, -HOUR])
def test_what_a_dead_worker_with_another_clock_held_is_taken_over(fleet: Fleet, shift: int) -> None:
    victim = fleet.start(shift=shift, step="600")
    fleet.submit("t", 1)
    fleet.until(fleet.executions)
    victim.kill()
    fleet.start(shift=-shift)
    fleet.until(lambda: fleet.store.counts() == {"complete": 1})
    assert fleet.executions() == ["t 0", "t 0", "t by 1 for 1"]


# Dead workers, and servers that are away


@on_both
def test_killed_workers_lose_nothing_and_only_steps_in_flight_are_executed_again(fleet: Fleet) -> None:
    threads, kills = rounds(30, 100), rounds(3, 8)
    fleet.submit_many(threads)
    for _ in range(2):
        fleet.start()
    fleet.kill_at_random(threads, kills)
    fleet.check_all_ended(threads, most_repeated=kills * 10)  # ten run at once in each worker


@pytest.mark.parametrize("server", [PostgresServer, RedisServer])
def test_a_server_that_is_killed_under_load_stops_no_worker(server: Any, tmp_path: Path) -> None:
    threads, kills = rounds(30, 100), rounds(2, 8)
    mortal = server()
    with closing(Fleet(tmp_path, mortal.url("fleet"))) as fleet:
        alive = [tmp_path / "alive 1", tmp_path / "alive 2"]
        workers = [fleet.start("--alive", str(each)) for each in alive]
        fleet.until(lambda: all(each.exists() for each in alive))
        fleet.submit_many(threads)
        for kill in range(kills):
            fleet.until_executed((kill + 1) * threads // kills)
            mortal.kill()
            time.sleep(0.5)
            mortal.start()
        fleet.check_all_ended(threads, most_repeated=kills * 20)  # ten run at once in each of two workers
        fleet.submit("afterwards", 1)
        fleet.until(lambda: fleet.store.thread("afterwards").status == "complete")
        assert [worker.poll() for worker in workers] == [None, None]
    mortal.remove()


def cut_listeners(kind: str) -> int:
    """Cut the connections of all that listen, and return how many there were."""
    if kind == "postgres":
        listening = "query LIKE 'LISTEN%'"
        return len(postgres.shared_server().execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {listening}"
        ))  # fmt: skip
    with redis.shared_server().client() as client:
        return int(client.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))


@on_both
def test_workers_whose_listening_connections_are_cut_listen_again(kind: str, fleet: Fleet) -> None:
    fleet.start()
    for number in range(rounds(3, 10)):
        fleet.until(lambda: cut_listeners(kind))
        fleet.submit(f"t-{number}", 1)
    fleet.until(lambda: fleet.store.counts() == {"complete": number + 1})


def test_workers_behind_a_pooler_find_work_by_looking(tmp_path: Path) -> None:
    server = postgres.shared_server()
    with PgBouncer(server) as pooler, closing(Fleet(tmp_path, server.url(postgres.new_schema(), pooler.port))) as fleet:
        fleet.start()
        fleet.submit_many(3)
        fleet.check_all_ended(3, most_repeated=0)
        fleet.submit("afterwards", 1)
        fleet.until(lambda: fleet.store.thread("afterwards").status == "complete")


def test_what_a_users_transaction_submits_is_found_by_looking(tmp_path: Path) -> None:
    server = postgres.shared_server()
    with closing(Fleet(tmp_path, server.url(postgres.new_schema()))) as fleet:
        fleet.start()
        fleet.submit("first", 1)
        fleet.until(lambda: fleet.store.counts() == {"complete": 1})
        with psycopg.connect(server.conninfo()) as connection, connection.transaction():
            fleet.submit("within", 1, connection=connection)
            assert fleet.store.counts() == {"complete": 1}
        fleet.until(lambda: fleet.store.counts() == {"complete": 2})


# Idle workers


def longest_pause(url: str, **options: Any) -> float:
    async def measure() -> float:
        async with holdfast.open(url) as store:
            search = Worker(store, **options)._search(store)
            assert search.listener is not None
            search.listener.wait(0)
            with closing(search.listener):
                return search._longest_pause()

    return asyncio.run(measure())


def test_workers_look_less_often_where_announcements_are_heard() -> None:
    server = postgres.shared_server()
    with PgBouncer(server) as pooler:
        assert longest_pause(server.url(postgres.new_schema(), pooler.port)) == POLL_SECONDS
    assert longest_pause(shared_url("redis")) == longest_pause(shared_url("postgres")) == ANNOUNCED_SECONDS
    assert longest_pause(shared_url("postgres"), lease=0.5) <= 1.5, "a lease that ends is noticed within a second"


def test_an_idle_worker_sends_at_most_two_statements_a_second() -> None:
    server, workers, seconds = PostgresServer("log_statement=all"), 4, 6

    def statements() -> int:
        lines = (server.directory / "log").read_text().splitlines()
        return sum("LOG:  execute" in line or "LOG:  statement" in line for line in lines)

    async def idle() -> int:
        async with AsyncExitStack() as stack:
            for _ in range(workers):
                store: Store = await stack.enter_async_context(holdfast.open(server.url("idle")))
                await stack.enter_async_context(Worker(store, functions=[], queues=["one", "two", "three"]))
            await asyncio.sleep(2)
            before = statements()
            await asyncio.sleep(seconds)
            return statements() - before

    found = asyncio.run(idle())
    server.remove()
    assert workers * seconds / 2 < found <= workers * seconds * 2
