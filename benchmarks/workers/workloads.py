"""The tables of workers, and the figures to reach there."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.postgres.server import Server
from benchmarks.result import Table
from benchmarks.scale import Scale
from benchmarks.workers import delays, engines, looks, throughput


def measure(scale: Scale, scratch: Path, *, peers: bool) -> dict[str, Table]:
    """Every table, on one server of PostgreSQL."""
    with Server(scratch / "server").running() as server:
        tables = [
            looks.measure(server, scale, scratch),
            looks.measure_steps(server, scratch),
            throughput.measure(server, scale, scratch, peers=peers),
            delays.first_lines(server, scratch),
            delays.takeovers(server, scratch),
            delays.idle(server, scale, scratch),
        ]
    return {table.workload: table for table in [*tables, engines.measure(scratch)]}


def gates(tables: dict[str, Table], scale: Scale) -> list[Figure]:
    """What has to be reached, of what was run."""
    if looks.NAME not in tables:
        return []
    return [*_looks(tables), *_threads(tables[throughput.NAME]), *_delays(tables, scale), *_engines(tables)]


def _looks(tables: dict[str, Table]) -> list[Figure]:
    found, steps = tables[looks.NAME], tables[looks.STEPS]
    with_entry = _ratio(steps, looks.MEDIAN, looks.WITH, looks.WITHOUT)
    return [
        Figure("idle look: open threads / none", _ratio(found, looks.MEDIAN, looks.OPEN, looks.NONE), 1.5, 1.2),
        Figure("look: dead entries / none", _ratio(found, looks.MEDIAN, looks.DEAD, looks.NONE), 2, 1.2),
        Figure("commit of a step: with the agenda / without", with_entry, 1.03, 1.0),
    ]


def _threads(found: Table) -> list[Figure]:
    if found.row(throughput.ABSURD) is None:
        return []
    names = (throughput.HOLDFAST, throughput.ABSURD)
    threads, submits = (_ratio(found, column, *names) for column in (throughput.THREADS, throughput.SUBMITS))
    return [
        Figure("one-step threads per second / absurd's tasks", threads, 1.0, 1.5, at_least=True),
        Figure("submits per second / absurd's spawns", submits, 2, 3, at_least=True),
    ]


def _delays(tables: dict[str, Table], scale: Scale) -> list[Figure]:
    first, takeover, idle = (tables[name] for name in (delays.FIRST, delays.TAKEOVER, delays.IDLE))
    goals = {delays.POSTGRES: 20, delays.REDIS: 20, delays.SQLITE: 60}
    largest = takeover.cell(delays.POSTGRES, delays.LARGEST)
    load = idle.rows[0].cells[delays.LOAD]
    per_100 = load * 100 / scale.idle_worker_count if load is not None else None
    return [
        *(
            Figure(f"submit to first line, {name}", first.cell(name, delays.MEDIAN), 100, goal, "ms")
            for name, goal in goals.items()
        ),
        Figure("takeover, less the lease", (largest or 0) / 1e3 - delays.LEASE, 1, 0.3, "s"),
        Figure("100 idle workers: load of the database", per_100, 5, 2, "% of a core"),
    ]


def _engines(tables: dict[str, Table]) -> list[Figure]:
    """A thread of 1,000 steps is one segment: it may not take more than the eventful one."""
    found = tables[engines.NAME]
    ratios = [
        (
            kind,
            _ratio(found, engines.ITEMS, engines.row_name(kind, engines.MANY), engines.row_name(kind, engines.STORY)),
        )
        for kind in engines.KINDS
    ]
    return [Figure(f"{engines.KINDS[kind]}: 1,000 steps / 8 steps", ratio, 1, 1) for kind, ratio in ratios]


def _ratio(table: Table, column: str, above: str, below: str) -> float | None:
    top, bottom = table.cell(above, column), table.cell(below, column)
    return top / bottom if top is not None and bottom else None
