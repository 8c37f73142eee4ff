"""W6: replay: a function that did 1,000 steps is resumed, and each step returns what was recorded."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.result import Table, row_of
from benchmarks.resuming import Program, replaying_programs, resume_in_turn, resumed_together
from benchmarks.scale import Scale

STEP_COUNT = 1_000
LONG_STEP_COUNT = 10_000
TOTAL = "replay ms"
PER_STEP = "least us/step"
COLUMNS = [TOTAL, PER_STEP]


def measure(scale: Scale, scratch: Path, *, peers: bool) -> Table:
    place = scratch.parent / "resumed"
    return _table("W6", resumed_together(STEP_COUNT, scale.resume_rounds, place, peers=peers)[1], STEP_COUNT)


def measure_long(scale: Scale, scratch: Path) -> Table:
    """The same, longer, for Holdfast alone: is its cost flat?"""
    programs = replaying_programs(peers=False)
    resume_in_turn(programs, LONG_STEP_COUNT, scale.resume_rounds, scratch)
    return _table("W6 long", programs, LONG_STEP_COUNT)


def _table(name: str, programs: list[Program], count: int) -> Table:
    rows = [row_of(program, _cells(program, count), program.failure) for program in programs]
    return Table(name, f"replay of {count:,} recorded steps of 500 bytes, in a new process", COLUMNS, rows)


def _cells(program: Program, count: int) -> dict[str, float | None]:
    """The whole: the call that resumes, the replay, and one new step. Per step: the recorded steps alone.

    The least, since a busy machine only adds to it.
    """
    if not program.body:
        return {}
    return {TOTAL: statistics.median(program.warm) * 1e3, PER_STEP: min(program.body) / count * 1e6}
