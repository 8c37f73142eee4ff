"""Figures of a session: what a turn costs beyond the raw commit, and a replay far into a long thread."""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.bare_turn import BareTurn
from benchmarks.contender import PROCESS_CRASH, Contender
from benchmarks.figure import Figure
from benchmarks.holdfast_options import StoreOptions
from benchmarks.pairing import take_turns
from benchmarks.raw import RawInsert
from benchmarks.scale import Scale
from benchmarks.workloads import THREAD, agent_steps, encoded

TURN_BYTES = 430
TURN_COUNT = 3_000
LONG = 10_000


class HoldfastTurn(Contender):
    """A turn with a key, usage, a price and budgets, whose function returns at once."""

    family = "holdfast"
    name = "Holdfast run_turn, SQLite process"
    durability = PROCESS_CRASH

    def __init__(self, results: list[Any]) -> None:
        self.results = results
        self.called = 0

    def setup(self, directory: Path) -> None:
        from holdfast.sync import ModelPricing, Orchestrator, UsageSnapshot

        self.store = StoreOptions(level="process").open_blocking(directory)
        self.usage = UsageSnapshot(input_tokens=2_000, output_tokens=900)
        self.orchestrator = Orchestrator(
            "writer", "draft", self.store, budget_usd=1e6, max_turns=10**6, pricing={"model-a": ModelPricing(3, 15)}
        )
        self.enter()

    def enter(self) -> None:
        self.block = self.orchestrator.session(THREAD)
        self.session = self.block.__enter__()

    def leave(self) -> None:
        self.block.__exit__(None, None, None)

    def step(self, index: int) -> None:
        self.session.run_turn(self.call, model="model-a", usage=self.usage, idempotency_key=f"turn-{index}")

    def call(self) -> Any:
        self.called += 1
        return self.results[self.called % len(self.results)]

    def finish(self) -> None:
        self.leave()
        self.store.close()


def turn_against_insert(scale: Scale, directory: Path) -> list[Figure]:
    """A turn against one INSERT of its result and the commit, at NORMAL; and a bare function that stores as much."""
    results = agent_steps(TURN_COUNT, TURN_BYTES)
    ours, bare = HoldfastTurn(results), BareTurn(results)
    limit = RawInsert([encoded(result) for result in results], PROCESS_CRASH)
    sides: tuple[Contender, ...] = (ours, bare, limit)
    for number, side in enumerate(sides):
        (directory / str(number)).mkdir(parents=True)
        side.setup(directory / str(number))
    seconds = take_turns([side.slice for side in sides], scale.pair_count, warm=scale.pair_warm_count)
    for side in sides:
        side.finish()
    turn, least, insert = (statistics.median(each) * 1e6 for each in seconds)
    beyond = "beyond raw one-row INSERT + commit, NORMAL"
    return [
        Figure(f"9 session turn {beyond}", turn - insert, goal=60, unit="us", note=f"{turn:.0f} / {insert:.0f} us"),
        Figure(f"9 {bare.name} {beyond}", least - insert, unit="us", note=f"{least:.0f} / {insert:.0f} us"),
    ]


def long_session(_scale: Scale, directory: Path) -> list[Figure]:
    """10,000 turns, and all of them again: how many are executed, and whether a look-up depends on their number."""
    ours = HoldfastTurn(agent_steps(TURN_COUNT, TURN_BYTES))
    ours.setup(directory)
    ours.slice(range(LONG))
    ours.leave()
    ours.called = 0
    started = perf_counter()
    ours.enter()
    opening = (perf_counter() - started) * 1e3
    replays = ours.slice(range(LONG))
    ours.finish()
    first, last = (statistics.median(part) * 1e6 for part in (replays[:1000], replays[-1000:]))
    note = f"{first:.1f} us at the first, {last:.1f} us at the last thousand; opening took {opening:.0f} ms"
    return [
        Figure("9 turns executed again of 10,000 recorded", ours.called, goal=0, unit="turns"),
        Figure("9 replay of turn 10,000 / of turn 1", last / first, goal=1.2, note=note),
    ]
