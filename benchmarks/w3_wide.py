"""W3: a state of 200 keys of 5 KB, of which one changes per save."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Contender, saves
from benchmarks.holdfast_options import every_option
from benchmarks.holdfast_save import HoldfastSaver
from benchmarks.peers import savers_of_peers
from benchmarks.race import Course, Lane, check_and_load, clear, race
from benchmarks.raw import raw_limits
from benchmarks.result import Table, row_of
from benchmarks.scale import Scale
from benchmarks.workloads import WIDE_KEY_COUNT, WIDE_VALUE_BYTES, State, encoded, wide_values, widening

SECONDS = "s"
MEGABYTES = "MB"
NEW_BYTES_RATIO = "MB / changed MB"


def measure(scale: Scale, scratch: Path, *, peers: bool) -> Table:
    values = wide_values(2 * WIDE_KEY_COUNT)
    return table_of("W3", _contenders(values, peers=peers), values, scale, scratch)


def table_of(name: str, contenders: list[Contender], values: list[str], scale: Scale, scratch: Path) -> Table:
    """The workload, done by these."""
    changed = scale.wide_save_count * WIDE_VALUE_BYTES
    lanes = race(contenders, Course(scale.wide_save_count, slice_size=20), scratch)
    for lane in lanes:
        check_and_load(lane, lambda index: _expected(values, index))
        clear(lane)
    rows = [row_of(lane.contender, _cells(lane, changed), lane.failure) for lane in lanes]
    description = (
        f"{scale.wide_save_count} saves of {WIDE_KEY_COUNT} x 5 KB; {changed / 1e6:.2f} MB change in all, "
        "and the first save, which is stored as well, holds 1 MB; the raw limits write the changed value only"
    )
    return Table(name, description, [SECONDS, MEGABYTES, NEW_BYTES_RATIO], rows)


def _contenders(values: list[str], *, peers: bool) -> list[Contender]:
    savers = [*(HoldfastSaver(options) for options in every_option()), *(savers_of_peers() if peers else [])]
    raw = raw_limits([encoded(value) for value in values])
    return [*(saves(saver, widening(values)) for saver in savers), *raw]


def _expected(values: list[str], index: int) -> State:
    script = widening(values)
    states = [script(step) for step in range(index + 1)]
    return states[-1]


def _cells(lane: Lane, changed: int) -> dict[str, float | None]:
    return {
        SECONDS: sum(lane.seconds),
        MEGABYTES: lane.final_bytes / 1e6,
        NEW_BYTES_RATIO: lane.final_bytes / changed,
    }
