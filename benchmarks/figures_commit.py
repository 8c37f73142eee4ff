"""Figures of a commit: Holdfast's against the raw one at equal durability, and awaited against blocking."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from benchmarks.contender import POWER_LOSS, Contender, saves
from benchmarks.figure import Figure
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_options import StoreOptions
from benchmarks.holdfast_save import AwaitableHoldfastSaver, HoldfastSaver
from benchmarks.pairing import Pair, alternate
from benchmarks.raw import RawAppend, RawInsert
from benchmarks.scale import Scale
from benchmarks.workloads import agent_steps, encoded, replaced_states, replacing

STEP_BYTES = 430
STEP_COUNT = 3_000


class TimedCommits(HoldfastAppend):
    """Notes what of each append the backend's commit took: the rest is finding the change and making the row."""

    def setup(self, directory: Path) -> None:
        super().setup(directory)
        self.commit_seconds: list[float] = []
        backend = self.store._store._backend
        commit = backend.swap

        def timed(swaps: object, *, wait: bool = True) -> list[bool]:
            started = perf_counter()
            outcomes = commit(swaps, wait=wait)
            self.commit_seconds.append(perf_counter() - started)
            return outcomes

        backend.swap = timed


def append_against_insert(scale: Scale, directory: Path) -> list[Figure]:
    """3: an explicit append against one INSERT and its commit."""
    steps = agent_steps(STEP_COUNT, STEP_BYTES)
    figures = []
    for level, mode, goal in (("durable", "FULL", 1.1), ("process", "NORMAL", 1.3)):
        ours = TimedCommits(StoreOptions(level=level), steps)
        pair = _raced(ours, RawInsert([encoded(step) for step in steps], ours.durability), scale, directory / level)
        name = f"3 append / raw one-row INSERT + commit, {mode}"
        commits = ours.commit_seconds[-len(pair.ours) :]
        commit = Pair(commits, pair.limit)
        figures += [
            Figure(name, pair.ratio_of_medians, 1.5, goal, note=pair.describe()),
            Figure(f"3 of it the commit alone (backend swap), {mode}", commit.ratio_of_medians, note=commit.describe()),
        ]
    return figures


def append_against_file(scale: Scale, directory: Path) -> list[Figure]:
    """8: the same on the file store, against one write and its fdatasync."""
    steps = agent_steps(STEP_COUNT, STEP_BYTES)
    ours = HoldfastAppend(StoreOptions("file"), steps)
    pair = _raced(ours, RawAppend([encoded(step) for step in steps], POWER_LOSS), scale, directory)
    return [Figure("8 file append / raw append + fdatasync", pair.ratio_of_medians, 1.5, 1.25, note=pair.describe())]


def awaited_against_blocking(scale: Scale, directory: Path) -> list[Figure]:
    """One awaited 2 KB save against one blocking, one writer, FULL, inline."""
    states = replaced_states(500)
    awaited = saves(AwaitableHoldfastSaver(StoreOptions()), replacing(states))
    blocking = saves(HoldfastSaver(StoreOptions()), replacing(states))
    pair = _raced(awaited, blocking, scale, directory)
    return [Figure("awaited / blocking save, FULL", pair.ratio_of_medians, goal=1.2, note=pair.describe())]


def _raced(ours: Contender, limit: Contender, scale: Scale, directory: Path) -> Pair:
    for side, contender in (("ours", ours), ("limit", limit)):
        (directory / side).mkdir(parents=True)
        contender.setup(directory / side)
    pair = alternate(ours.slice, limit.slice, scale.pair_count, warm=scale.pair_warm_count)
    ours.finish()
    limit.finish()
    return pair
