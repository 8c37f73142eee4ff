"""Figure of growth: does a step late in a long thread cost more than one early in it?

A young thread takes turns with an old one in the same store, so both meet the same disk and the same log. Means are
compared, because keyframes are rare and must count; but a checkpoint of SQLite's log is so rare and so slow that it
decides the mean by chance, so several pairs are pooled and the slowest two in a thousand left out, on both sides.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_options import StoreOptions
from benchmarks.pairing import Pair, Slice, alternate
from benchmarks.workloads import State, agent_steps

STEP_BYTES = 430
STEP_COUNT = 3_000

_TENTH = STEP_COUNT // 10
_LEFT_OUT = 0.002
_SHIFT = 1_200
_PAIRS = {"durable": 4, "process": 12}


def flatness(directory: Path) -> list[Figure]:
    """2: the last tenth of 3,000 steps against the first, and against steps 100 to 300."""
    steps = agent_steps(STEP_COUNT, STEP_BYTES)
    figures = []
    for level, count in _PAIRS.items():
        pairs = [_old_against_young(directory / level, level, steps, number) for number in range(count)]
        figures += [
            _figure(f"2 time per step, last 10 % / first 10 %, {level}", pairs, skipped=0, floor=1.2, goal=1.05),
            _figure(f"2 time per step at 3,000 / at 100, {level}", pairs, skipped=100, floor=None, goal=1.1),
        ]
    return figures


def _figure(name: str, pairs: list[Pair], skipped: int, floor: float | None, goal: float) -> Figure:
    old = [seconds for pair in pairs for seconds in pair.ours]
    young = [seconds for pair in pairs for seconds in pair.limit[skipped:]]
    ratio, whole, medians = (
        average(old) / average(young) for average in (_trimmed_mean, statistics.fmean, statistics.median)
    )
    note = f"with the slowest 0.2 % {whole:.2f}, medians {medians:.2f}; {len(old):,} steps"
    return Figure(name, ratio, floor, goal, note=note)


def _trimmed_mean(seconds: list[float]) -> float:
    kept = sorted(seconds)[: len(seconds) - round(len(seconds) * _LEFT_OUT)]
    return statistics.fmean(kept)


def _old_against_young(directory: Path, level: str, steps: list[State], number: int) -> Pair:
    """One pair of threads, in a store opened for it.

    A third thread, sorted behind both, takes the place at the end of the index, where appends are cheaper; and as many
    appends to it as chance has it shift the moment at which the log is checkpointed.
    """
    options = StoreOptions(level=level)
    old, young, last = (HoldfastAppend(options, steps, f"{number:02d}-{age}") for age in ("old", "young", "~"))
    directory.mkdir(parents=True, exist_ok=True)
    store = options.open_blocking(directory)
    for thread in (old, young, last):
        thread.join(store)
    old.slice(range(STEP_COUNT - _TENTH))
    last.slice(range(random.Random(number).randrange(_SHIFT)))
    pair = alternate(_from(old, STEP_COUNT - _TENTH), young.slice, _TENTH)
    store.close()
    return pair


def _from(thread: HoldfastAppend, start: int) -> Slice:
    return lambda steps: thread.slice(range(start + steps.start, start + steps.stop))
