"""W2: a conversation of 3,000 steps of about 500 bytes, a checkpoint after each, every one restorable.

Stores that keep whole states pay for all earlier steps with each new one; here that shows in time and in bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.contender import Contender, saves
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_options import StoreOptions, every_option
from benchmarks.holdfast_save import HoldfastSaver
from benchmarks.peer_langgraph_delta import LanggraphDelta
from benchmarks.peer_langgraph_graph import LanggraphGraph
from benchmarks.peers import savers_of_peers
from benchmarks.race import Course, Lane, check_and_load, clear, race
from benchmarks.raw import raw_limits
from benchmarks.result import Table, row_of
from benchmarks.scale import Scale
from benchmarks.workloads import State, agent_steps, empty_conversation, encoded, growing

STEP_BYTES = 500
SECONDS = "s"
FIRST = "first 10 % us/step"
LAST = "last 10 % us/step"
MEGABYTES = "MB"
LOAD = "load ms"
COLUMNS = [SECONDS, FIRST, LAST, MEGABYTES, LOAD]

_SLICES = 30


def measure(scale: Scale, scratch: Path, *, peers: bool) -> Table:
    steps = agent_steps(scale.step_count, STEP_BYTES)
    contenders = [*_holdfast(steps), *(_peers(steps) if peers else []), *raw_limits([encoded(s) for s in steps])]
    return table_of("W2", contenders, steps, scratch)


def table_of(name: str, contenders: Sequence[Contender], steps: list[State], scratch: Path) -> Table:
    """The workload, done by these."""
    new_bytes = sum(len(encoded(step)) for step in steps)
    description = f"{len(steps):,} steps, {new_bytes / 1e6:.2f} MB of new data in all"
    return _measure(name, description, contenders, steps, scratch)


def measure_long(scale: Scale, scratch: Path) -> Table:
    """The same, longer, for Holdfast's append alone: is its cost flat?"""
    steps = agent_steps(scale.long_step_count, STEP_BYTES)
    options = [StoreOptions(kind, level) for kind in ("sqlite", "file") for level in ("durable", "process")]
    contenders = [HoldfastAppend(each, steps) for each in options]
    description = f"{scale.long_step_count:,} steps of the same kind, Holdfast append alone"
    return _measure("W2 long", description, contenders, steps, scratch)


def _measure(name: str, description: str, contenders: Sequence[Contender], steps: list[State], scratch: Path) -> Table:
    course = Course(len(steps), slice_size=max(1, len(steps) // _SLICES))
    lanes = race(contenders, course, scratch)
    for lane in lanes:
        check_and_load(lane, _expected(steps))
        clear(lane)
    rows = [row_of(lane.contender, _cells(lane), lane.failure) for lane in lanes]
    return Table(name, description, COLUMNS, rows, {lane.name: _curve(lane, course) for lane in lanes})


def _holdfast(steps: list[State]) -> list[Contender]:
    appends = [HoldfastAppend(options, steps) for options in every_option()]
    return [*appends, *(saves(HoldfastSaver(options), growing(steps)) for options in every_option())]


def _peers(steps: list[State]) -> list[Contender]:
    graphs = [LanggraphGraph(steps, delta=delta) for delta in (False, True)]
    return [*(saves(saver, growing(steps)) for saver in savers_of_peers()), LanggraphDelta(steps), *graphs]


def _expected(steps: list[State]) -> Callable[[int], State]:
    return lambda index: {**empty_conversation(), "steps": steps[: index + 1]}


def _cells(lane: Lane) -> dict[str, float | None]:
    tenth = max(1, len(lane.seconds) // 10)
    if not lane.seconds:
        return {}
    return {
        SECONDS: sum(lane.seconds),
        FIRST: statistics.fmean(lane.seconds[:tenth]) * 1e6,
        LAST: statistics.fmean(lane.seconds[-tenth:]) * 1e6,
        MEGABYTES: lane.final_bytes / 1e6,
        LOAD: None if lane.load_seconds is None else lane.load_seconds * 1e3,
    }


def _curve(lane: Lane, course: Course) -> list[tuple[int, float, float]]:
    """Per slice: steps done, microseconds per step in it, bytes stored per step so far."""
    points = []
    for done, stored in lane.stored:
        recent = lane.seconds[max(0, done - course.slice_size) : done]
        points.append((done, statistics.fmean(recent) * 1e6, stored / done))
    return points
