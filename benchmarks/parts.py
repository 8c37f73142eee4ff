"""The parts of a run, each in an interpreter of its own: what one leaves on the heap does not slow the next."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

from benchmarks import figures, w1_saves, w2_history, w3_wide, w4_resume, w5_writers, w6_replay, w7_supersteps
from benchmarks.postgres import workloads as postgres
from benchmarks.redis import workloads as redis
from benchmarks.s3 import workloads as s3
from benchmarks.workers import workloads as workers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from benchmarks.figure import Figure
    from benchmarks.result import Table
    from benchmarks.scale import Scale

WORKLOADS = {
    "W1": w1_saves,
    "W2": w2_history,
    "W3": w3_wide,
    "W4": w4_resume,
    "W5": w5_writers,
    "W6": w6_replay,
    "W7": w7_supersteps,
}
FIGURES = "figures"
SERVERS = {"redis": redis, "postgres": postgres, "s3": s3, "workers": workers}
"""Each with a server of its own, and its own tables."""
_TOGETHER = ("W4", "W6")
"""Two views of the same race."""

Part = tuple[str, ...]


def parts_of(wanted: Collection[str]) -> Iterator[Part]:
    """What is to be measured, in its order."""
    for name in (*WORKLOADS, FIGURES, *SERVERS):
        if name in wanted and name not in _TOGETHER:
            yield (name,)
        elif name == _TOGETHER[0] and (both := tuple(each for each in _TOGETHER if each in wanted)):
            yield both


def measured(part: Part, scale: Scale, scratch: Path, *, peers: bool) -> tuple[dict[str, Table], list[Figure]]:
    """The tables and figures of one part, from a new interpreter."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as interpreter:
        return interpreter.submit(_measure, part, scale, scratch, peers=peers).result()


def _measure(part: Part, scale: Scale, scratch: Path, *, peers: bool) -> tuple[dict[str, Table], list[Figure]]:
    tables: dict[str, Table] = {}
    for name in part:
        if name in WORKLOADS:
            tables[name] = WORKLOADS[name].measure(scale, scratch / name, peers=peers)
        elif name in SERVERS:
            tables |= SERVERS[name].measure(scale, scratch / name, peers=peers)
    if "W2" in part:
        tables["W2 long"] = w2_history.measure_long(scale, scratch / "W2-long")
    if "W6" in part:
        tables["W6 long"] = w6_replay.measure_long(scale, scratch / "W6-long")
    return tables, figures.measure(scale, scratch / FIGURES) if FIGURES in part else []
