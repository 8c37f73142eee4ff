"""From a submit to the first line of its function, from a kill to the next worker; and what idle workers cost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contender import POWER_LOSS
from benchmarks.postgres.server import Server
from benchmarks.redis.server import Server as RedisServer
from benchmarks.result import Row, Table
from benchmarks.scale import Scale
from benchmarks.workers import app
from benchmarks.workers.processes import Child, started

FIRST, TAKEOVER, IDLE = "Workers: first line", "Workers: takeover", "Workers: idle"
POSTGRES, REDIS, SQLITE = "PostgreSQL", "Redis", "SQLite"
MEDIAN, LARGEST, LOAD = "p50 ms", "max ms", "% of a core"
LEASE, STUCK, SAMPLES, KILLS = 2, 5, 60, 6
IDLE_SECONDS, IDLE_PROCESSES = 15, 4


def first_lines(server: Server, scratch: Path) -> Table:
    """Submits to an idle worker, on each store."""
    with RedisServer(scratch / "redis", "always").running() as redis:
        urls = {
            POSTGRES: server.url(scratch / "first"),
            REDIS: redis.url(scratch / "first"),
            SQLITE: str(scratch / "first.db"),
        }
        rows = [Row(name, "", POWER_LOSS, _milliseconds(_first_lines(url))) for name, url in urls.items()]
    return Table(FIRST, f"{SAMPLES} submits, one after the other, to an idle worker", [MEDIAN, LARGEST], rows)


def _milliseconds(seconds: list[float]) -> dict[str, float | None]:
    return {MEDIAN: median(seconds) * 1e3, LARGEST: max(seconds) * 1e3}


def _first_lines(url: str) -> list[float]:
    child = started(app.MODULE, url, 1, 30)
    try:
        return asyncio.run(_submit_each(url))
    finally:
        child.kill()


async def _submit_each(url: str) -> list[float]:
    import holdfast

    seconds = []
    async with holdfast.open(url) as store:
        first_line = app.functions(store)[1]
        for number in range(SAMPLES + 3):
            await asyncio.sleep(0.15 + number % 7 / 50)
            began = time.monotonic()
            handle = await first_line.submit(f"t{number}")
            seconds.append(await handle.result(60) - began)
    return seconds[3:]


def takeovers(server: Server, scratch: Path) -> Table:
    """Kill a worker that runs some threads, beside an idle one that takes them over."""
    url, seconds = server.url(scratch / "takeover"), list[float]()
    spare = started(app.MODULE, url, 1, LEASE, "elsewhere")
    try:
        for number in range(KILLS):
            holder, spare = spare, started(app.MODULE, url, 1, LEASE, "elsewhere")
            # The spare may get some of the threads: those of the holder alone count.
            seconds += asyncio.run(_kill(url, [scratch / f"{number}-{each}" for each in range(STUCK)], holder))
    finally:
        spare.kill()
    description = f"{KILLS} kills of a worker with lease {LEASE} s and {STUCK} threads"
    return Table(TAKEOVER, description, [MEDIAN, LARGEST], [Row(POSTGRES, "", POWER_LOSS, _milliseconds(seconds))])


async def _kill(url: str, files: list[Path], holder: Child) -> list[float]:
    import holdfast

    async with holdfast.open(url) as store:
        taken_over = app.functions(store)[2]
        for file in files:
            await taken_over.submit(file.name, str(file))
        await _until(lambda: all(file.exists() for file in files))
        await asyncio.sleep(1)
        holder.kill()
        killed_at = time.monotonic()
        await asyncio.sleep(LEASE + 2)
        lines = [[float(line) for line in file.read_text(encoding="utf-8").split()] for file in files]
    return [found[1] - killed_at for found in lines if len(found) > 1]


async def _until(condition: Any) -> None:
    ends_at = time.monotonic() + 60
    while not condition():
        if time.monotonic() > ends_at:
            raise TimeoutError("nobody ran the threads")
        await asyncio.sleep(0.05)


def idle(server: Server, scale: Scale, scratch: Path) -> Table:
    """The time of the processor that the server takes while nothing is due, less what it takes without workers."""
    url, each = server.url(scratch / "idle"), scale.idle_worker_count // IDLE_PROCESSES
    children: list[Child] = []
    alone = _load(server)
    try:
        children += [started(app.MODULE, url, each, 30) for _ in range(IDLE_PROCESSES)]
        time.sleep(5)
        load = _load(server) - alone
    finally:
        for child in children:
            child.kill()
    count = each * IDLE_PROCESSES
    rows = [Row(f"{count} idle workers", "", POWER_LOSS, {LOAD: load})]
    return Table(IDLE, f"{count} workers in {IDLE_PROCESSES} processes, for {IDLE_SECONDS} s", [LOAD], rows)


def _load(server: Server) -> float:
    before = server.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return (server.cpu_seconds() - before) / IDLE_SECONDS * 100
