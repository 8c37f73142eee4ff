"""One-step threads and submits per second: Holdfast and absurd in turn, and what PostgreSQL commits by itself."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.contender import POWER_LOSS
from benchmarks.postgres.server import Server, binary
from benchmarks.result import Row, Table
from benchmarks.scale import Scale
from benchmarks.workers import absurd_app, app
from benchmarks.workers.processes import Child

NAME = "Workers: threads"
HOLDFAST, ABSURD, RAW = "Holdfast, PostgreSQL durable", "absurd, PostgreSQL", "raw INSERT + commit, pgbench"
THREADS, SUBMITS = "threads/s", "submits/s"
DATABASE, OF_SUBMIT = "database ms/thread", "database ms/submit"
COLUMNS = [THREADS, SUBMITS, DATABASE, OF_SUBMIT]
WORKERS, AT_ONCE, ROUNDS = 2, 64, 4
DONE = "SELECT count(*) FROM holdfast.threads WHERE status = 'complete'"
ABSURD_DONE = "SELECT count(*) FROM absurd.t_default WHERE state = 'completed'"


@dataclass
class Side:
    """One system: how to fill its queue, which program works it off, and how to count what is done."""

    name: str
    conninfo: str
    submit: Callable[[str, range], float]
    words: tuple[object, ...]
    done: str
    cells: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})


def measure(server: Server, scale: Scale, scratch: Path, *, peers: bool) -> Table:
    count = scale.worker_thread_count
    sides, failed = _sides(server, scratch, peers=peers)
    for number in range(ROUNDS):
        for side in sides if number % 2 else sides[::-1]:
            _round(server, side, range(number * count, (number + 1) * count))
    rows = [Row(side.name, "", POWER_LOSS, {name: median(all_) for name, all_ in side.cells.items()}) for side in sides]
    description = f"{count} threads of one step, {WORKERS} workers of {app.CONCURRENCY}, medians of {ROUNDS} rounds"
    return Table(NAME, description, COLUMNS, [*rows, *failed, _raw(server, scratch / "raw")])


def _sides(server: Server, scratch: Path, *, peers: bool) -> tuple[list[Side], list[Row]]:
    ours = server.conninfo(scratch / "threads")
    sides = [Side(HOLDFAST, ours, _submitted, (app.MODULE, server.url(scratch / "threads"), 1, 30, "once"), DONE)]
    theirs = server.conninfo(scratch / "absurd")
    try:
        if peers:
            absurd_app.create(theirs)
            sides.append(Side(ABSURD, theirs, _spawned, (absurd_app.MODULE, theirs), ABSURD_DONE))
    except ImportError as error:
        return sides, [Row(ABSURD, "peer", POWER_LOSS, failure=str(error))]
    return sides, []


def _round(server: Server, side: Side, numbers: range) -> None:
    """Fill the queue while the workers wait, then let them work it off."""
    children = [Child(*map(str, side.words)) for _ in range(WORKERS)]
    try:
        first = server.cpu_seconds()
        submitting = side.submit(str(side.words[1]), numbers)
        before, began = server.cpu_seconds(), time.monotonic()
        for child in children:
            child.begin()
        ended = max(float(child.answer()) for child in children)
        used = server.cpu_seconds() - before
    finally:
        for child in children:
            child.kill()
    (done,) = server.fetch(side.conninfo, side.done)
    if done < len(numbers):
        raise RuntimeError(f"{side.name}: {done} of {len(numbers)} ended")
    side.cells[SUBMITS].append(len(numbers) / submitting)
    side.cells[THREADS].append(len(numbers) / (ended - began))
    side.cells[DATABASE].append(used / len(numbers) * 1e3)
    side.cells[OF_SUBMIT].append((before - first) / len(numbers) * 1e3)


def _submitted(url: str, numbers: range) -> float:
    return asyncio.run(_submit(url, iter(numbers)))


async def _submit(url: str, numbers: Iterator[int]) -> float:
    import holdfast

    async with holdfast.open(url) as store:
        one_step = app.functions(store)[0]
        await one_step.submit(f"warm-{time.monotonic_ns()}", 0)

        async def submit_some() -> None:
            for number in numbers:
                await one_step.submit(f"t{number}", number)

        began = time.monotonic()
        await asyncio.gather(*(submit_some() for _ in range(AT_ONCE)))
        return time.monotonic() - began


def _spawned(conninfo: str, numbers: range) -> float:
    return asyncio.run(absurd_app.spawn(conninfo, numbers, AT_ONCE))


def _raw(server: Server, directory: Path) -> Row:
    """Commits per second of PostgreSQL's own program, on as many connections as threads run at once."""
    conninfo = server.conninfo(directory)
    server.fetch(conninfo, "CREATE TABLE entries (id bigserial PRIMARY KEY, body bytea NOT NULL)")
    script = directory.with_suffix(".sql")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("INSERT INTO entries (body) VALUES (decode(repeat('61', 300), 'hex'));\n", encoding="utf-8")
    connections = str(WORKERS * app.CONCURRENCY)
    command = [binary("pgbench"), "-n", "-M", "prepared", "-c", connections, "-j", "2", "-T", "3", "-f", str(script)]
    done = subprocess.run([*command, conninfo], capture_output=True, text=True, check=True)
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    return Row(RAW, "raw", POWER_LOSS, {SUBMITS: float(found.group(1)) if found else None})
