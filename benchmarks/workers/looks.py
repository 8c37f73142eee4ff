"""A look of an idle worker: with many open threads, under dead entries, and with none; and the commit of a step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contender import POWER_LOSS
from benchmarks.postgres.server import Server
from benchmarks.result import Row, Table
from benchmarks.scale import Scale
from benchmarks.workers import app

NAME, STEPS = "Workers: looks", "Workers: steps"
NONE, OPEN, DEAD = "no open threads", "open threads", "dead entries, old snapshot"
WITH, WITHOUT = "step of a thread with an entry", "step of a thread without"
MEDIAN, LARGEST, BYTES = "p50 ms", "max ms", "bytes/thread"
IN_PAGE, DATABASE, ROW_BYTES = "in-page head updates %", "database ms/step", "bytes/step"
LOOKS, STEP_COUNT, DEAD_COUNT = 200, 400, 300_000

FILL_THREADS = """
INSERT INTO holdfast.threads (key, thread, head, status, labels)
SELECT substr(sha256(t.thread || int8send(n)), 1, 16), t.thread || int8send(n), t.head, t.status, t.labels
  FROM holdfast.threads AS t, generate_series(1, {count}) AS n
"""
FILL_AGENDA = """
INSERT INTO holdfast.agenda (key, place, route, priority, lane, held, due)
SELECT substr(sha256(t.thread || int8send(n)), 1, 16), a.place, a.route, a.priority, a.lane, n % 3 = 0,
       CASE WHEN n % 3 = 1 THEN 1152921504606846976 ELSE a.due + n END
  FROM holdfast.threads AS t JOIN holdfast.agenda AS a USING (key), generate_series(1, {count}) AS n
"""
"""A third is running, a third waits for an answer, a third for a timer: nothing is due. One queue, one route."""
BURY = f"""
INSERT INTO holdfast.agenda (key, place, route, priority, lane, held, due)
SELECT substr(sha256(int8send(n)), 1, 16), a.place, a.route, a.priority, a.lane, false, holdfast.moment() - n
  FROM holdfast.agenda AS a, generate_series(1, {DEAD_COUNT}) AS n
"""
HOT = "SELECT n_tup_hot_upd * 100.0 / n_tup_upd FROM pg_stat_user_tables WHERE relname = 'threads'"


def measure(server: Server, scale: Scale, scratch: Path) -> Table:
    """Looks in three databases, in turn."""
    names = [NONE, OPEN, DEAD]
    for name in names:
        _seed(server, scratch / name, delayed=name != NONE)
    conninfo = server.conninfo(scratch / OPEN)
    for statement in (FILL_THREADS, FILL_AGENDA):
        server.fetch(conninfo, statement.format(count=scale.open_thread_count))
    server.fetch(conninfo, "VACUUM ANALYZE")
    size = server.stored_bytes(scratch / OPEN) / scale.open_thread_count
    with _buried(server, scratch / DEAD):
        seconds = asyncio.run(_looked([server.url(scratch / name) for name in names]))
    cells = [{MEDIAN: median(each) * 1e3, LARGEST: max(each) * 1e3} for each in seconds]
    rows = [Row(name, "", POWER_LOSS, dict(found)) for name, found in zip(names, cells, strict=True)]
    rows[1].cells[BYTES] = size
    description = f"{LOOKS} looks each, in turn; {scale.open_thread_count:,} open threads, {DEAD_COUNT:,} dead entries"
    return Table(NAME, description, [MEDIAN, LARGEST, BYTES], rows)


def _seed(server: Server, directory: Path, *, delayed: bool) -> None:
    import holdfast

    async def create() -> None:
        async with holdfast.open(server.url(directory)) as store:
            submitting = app.functions(store)[0]
            if delayed:
                await submitting.options(delay=86_400).submit("seed", 0)
            else:
                await submitting.run("seed", 0)

    asyncio.run(create())


@contextmanager
def _buried(server: Server, directory: Path) -> Iterator[None]:
    """Entries that were due and are gone, and a snapshot from before that keeps them."""
    import psycopg

    conninfo = server.conninfo(directory)
    with psycopg.connect(conninfo) as old:
        server.fetch(conninfo, BURY)
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM holdfast.agenda").fetchone()
        server.fetch(conninfo, "DELETE FROM holdfast.agenda WHERE due < holdfast.moment()")
        yield


async def _looked(urls: list[str]) -> list[list[float]]:
    """The seconds of each look, as a worker makes them. The looks block, as nothing else runs here."""
    import holdfast

    stores = [holdfast.open(url) for url in urls]
    searches: list[Any] = []
    for store in stores:
        await store.threads(limit=1)
        searches.append(holdfast.Worker(store, functions=app.functions(store)[:1])._search(store))
    seconds: list[list[float]] = [[] for _ in searches]
    for _ in range(LOOKS):
        for search, found in zip(searches, seconds, strict=True):
            began = time.perf_counter()
            threads, _ = search.look(app.CONCURRENCY)
            found.append(time.perf_counter() - began)
            assert not threads
    for store in stores:
        await store.close()
    return seconds


def measure_steps(server: Server, scratch: Path) -> Table:
    """Steps of two threads in turn: a durable function has an entry in the agenda, a plain run has none."""
    directory = scratch / "steps"
    url, empty = server.url(directory), server.cpu_seconds()
    seconds = asyncio.run(_steps(url))
    used = server.cpu_seconds() - empty
    rows = [Row(name, "", POWER_LOSS, {MEDIAN: median(found) * 1e3}) for name, found in seconds.items()]
    time.sleep(1)
    rows[0].cells[IN_PAGE] = float(server.fetch(server.conninfo(directory), HOT)[0])
    rows[0].cells[DATABASE] = used / STEP_COUNT / 2 * 1e3
    rows[0].cells[ROW_BYTES] = server.stored_bytes(directory) / STEP_COUNT / 2
    columns = [MEDIAN, IN_PAGE, DATABASE, ROW_BYTES]
    return Table(STEPS, f"{STEP_COUNT} durable steps each, in turn", columns, rows)


async def _steps(url: str) -> dict[str, list[float]]:
    import holdfast

    seconds: dict[str, list[float]] = {WITH: [], WITHOUT: []}

    async def both() -> None:
        entered = holdfast.current()
        async with store.run("plain") as plain:
            for number in range(STEP_COUNT):
                for name, run in ((WITH, entered), (WITHOUT, plain)):
                    began = time.perf_counter()
                    await run.step(f"step {number}", str, number)
                    seconds[name].append(time.perf_counter() - began)

    async with holdfast.open(url) as store:
        await holdfast.durable(store=store, name="both")(both).run("entered")
    return {name: found[20:] for name, found in seconds.items()}
