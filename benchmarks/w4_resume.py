"""W4: cold resume: a new process opens the store, goes on with a thread of 1,000 checkpoints, and stores one step."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.result import Table, row_of
from benchmarks.resuming import Program, resumed_together
from benchmarks.scale import Scale

CHECKPOINT_COUNT = 1_000
MEDIAN = "p50 ms"
LEAST = "least ms"
OPENING = "of it in the call, p50 ms"


def measure(scale: Scale, scratch: Path, *, peers: bool) -> Table:
    place = scratch.parent / "resumed"
    reading, replaying = resumed_together(CHECKPOINT_COUNT, scale.resume_rounds, place, peers=peers)
    programs = [*reading, *replaying]
    rows = [row_of(program, _cells(program), program.failure) for program in programs]
    description = f"new process to the first new step of a thread of {CHECKPOINT_COUNT:,} checkpoints"
    return Table("W4", description, [MEDIAN, LEAST, OPENING], rows)


def _cells(program: Program) -> dict[str, float | None]:
    if not program.cold:
        return {}
    return {
        MEDIAN: statistics.median(program.cold) * 1e3,
        LEAST: min(program.cold) * 1e3,
        OPENING: statistics.median(program.warm) * 1e3,
    }
