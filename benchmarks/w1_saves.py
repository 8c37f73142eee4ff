"""W1: saves of 2 KB to one thread; the median of one save."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.contender import AwaitableSaver, Contender, Saver, saves
from benchmarks.holdfast_options import default_options
from benchmarks.holdfast_save import AwaitableHoldfastSaver, HoldfastSaver
from benchmarks.peers import savers_of_peers
from benchmarks.race import Course, Lane, clear, race
from benchmarks.raw import raw_limits
from benchmarks.result import Table, row_of
from benchmarks.scale import Scale
from benchmarks.workloads import encoded, replaced_states, replacing

MEDIAN = "p50 us"
TAIL = "p99 us"


def measure(scale: Scale, scratch: Path, *, peers: bool) -> Table:
    return table_of("W1", _contenders(peers=peers), scale, scratch)


def table_of(name: str, contenders: list[Contender], scale: Scale, scratch: Path) -> Table:
    """The workload, done by these."""
    course = Course(scale.save_count, slice_size=50, warm=scale.save_warm_count)
    lanes = race(contenders, course, scratch)
    rows = [row_of(lane.contender, _cells(lane), lane.failure) for lane in lanes]
    for lane in lanes:
        clear(lane)
    description = f"{scale.save_count} saves of 2 KB to one thread, after {scale.save_warm_count} that are not counted"
    return Table(name, description, [MEDIAN, TAIL], rows)


def _contenders(*, peers: bool) -> list[Contender]:
    states = replaced_states(500)
    ours: list[Saver | AwaitableSaver] = [
        kind(options) for options in default_options() for kind in (HoldfastSaver, AwaitableHoldfastSaver)
    ]
    savers = [*ours, *(savers_of_peers() if peers else [])]
    return [*(saves(saver, replacing(states)) for saver in savers), *raw_limits([encoded(state) for state in states])]


def _cells(lane: Lane) -> dict[str, float | None]:
    if len(lane.seconds) < 2:
        return {}
    return {
        MEDIAN: statistics.median(lane.seconds) * 1e6,
        TAIL: statistics.quantiles(lane.seconds, n=100)[-1] * 1e6,
    }
