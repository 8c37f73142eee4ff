"""W7: 2,000 supersteps of a workflow with a list of messages that grows by about 500 bytes, a checkpoint after each.

Frameworks that write everything with each checkpoint pay for all earlier messages with each new one.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.contender import Contender
from benchmarks.holdfast_options import StoreOptions, default_options
from benchmarks.peer_langgraph_graph import LanggraphGraph
from benchmarks.race import Course, Lane, check_and_load, clear, race
from benchmarks.result import Table, row_of
from benchmarks.scale import Scale
from benchmarks.supersteps import AgentFrameworkSupersteps, HoldfastAwaitedSupersteps, HoldfastSupersteps
from benchmarks.w2_history import STEP_BYTES
from benchmarks.workloads import State, agent_steps, empty_conversation

SECONDS = "s"
FIRST = "first 10 % us/superstep"
LAST = "last 10 % us/superstep"
MEGABYTES = "MB"
LOAD = "load ms"
COLUMNS = [SECONDS, FIRST, LAST, MEGABYTES, LOAD]

_SLICES = 20


def measure(scale: Scale, scratch: Path, *, peers: bool) -> Table:
    steps = agent_steps(scale.superstep_count, STEP_BYTES)
    lanes = race(_contenders(steps, peers=peers), Course(len(steps), max(1, len(steps) // _SLICES)), scratch)
    for lane in lanes:
        check_and_load(lane, lambda index: {**empty_conversation(), "steps": steps[: index + 1]})
        clear(lane)
    description = f"{len(steps):,} supersteps of a workflow, of a list of messages that grows"
    return Table("W7", description, COLUMNS, [row_of(lane.contender, _cells(lane), lane.failure) for lane in lanes], {})


def _contenders(steps: list[State], *, peers: bool) -> list[Contender]:
    awaited = [StoreOptions("sqlite", level) for level in ("durable", "process")]
    ours: list[Contender] = [
        *(HoldfastSupersteps(options, steps) for options in default_options()),
        *(HoldfastAwaitedSupersteps(options, steps) for options in awaited),
    ]
    ours.append(HoldfastSupersteps(StoreOptions(), steps, reads=True))
    theirs = [AgentFrameworkSupersteps(steps), LanggraphGraph(steps, delta=False), LanggraphGraph(steps, delta=True)]
    return [*ours, *(theirs if peers else [])]


def _cells(lane: Lane) -> dict[str, float | None]:
    if not lane.seconds:
        return {}
    tenth = max(1, len(lane.seconds) // 10)
    return {
        SECONDS: sum(lane.seconds),
        FIRST: statistics.median(lane.seconds[:tenth]) * 1e6,
        LAST: statistics.median(lane.seconds[-tenth:]) * 1e6,
        MEGABYTES: lane.final_bytes / 1e6,
        LOAD: None if lane.load_seconds is None else lane.load_seconds * 1e3,
    }
