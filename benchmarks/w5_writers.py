"""W5: 1,000 threads, ten saves of 2 KB each, by 32 writers at once: tasks if the API is awaited, threads if not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.contender import POWER_LOSS, PROCESS_CRASH, AwaitableSaver, Saver
from benchmarks.disk import settle
from benchmarks.holdfast_options import default_options
from benchmarks.holdfast_save import AwaitableHoldfastSaver, HoldfastSaver
from benchmarks.peers import savers_of_peers
from benchmarks.race import reason
from benchmarks.raw import RawAppendSaver, RawInsertSaver
from benchmarks.result import Table, row_of
from benchmarks.scale import Scale
from benchmarks.workloads import State, replaced_states

RATE = "saves/s"
WRITER_COUNT = 32

_VOLLEYS = 5
Job = tuple[str, State]


@dataclass
class Team:
    """One saver and what its 32 writers have done so far."""

    saver: Saver | AwaitableSaver
    seconds: float = 0.0
    save_count: int = 0
    failure: str | None = None

    def attempt(self, work: Callable[..., None], *arguments: Any) -> None:
        if self.failure is not None:
            return
        try:
            work(self, *arguments)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its result
            self.failure = reason(error)


def measure(scale: Scale, scratch: Path, *, peers: bool) -> Table:
    return table_of("W5", _savers(peers=peers), scale, scratch)


def table_of(name: str, savers: list[Saver | AwaitableSaver], scale: Scale, scratch: Path) -> Table:
    """Volleys of a fifth of the threads, all savers in turn."""
    teams = [Team(saver) for saver in savers]
    states = replaced_states(500)
    with asyncio.Runner() as runner, ThreadPoolExecutor(WRITER_COUNT) as pool:
        writers = Writers(runner, pool)
        for number, team in enumerate(teams):
            team.attempt(writers.open, scratch / f"team-{number}")
        for volley in range(_VOLLEYS):
            shares = _shares(scale, states, volley)
            for team in teams[volley % len(teams) :] + teams[: volley % len(teams)]:
                team.attempt(writers.fire, shares)
        for team in teams:
            team.attempt(writers.close)
    return _table(name, scale, teams)


@dataclass
class Writers:
    """Runs the shares of one volley at the same time, as tasks or as threads."""

    runner: asyncio.Runner
    pool: ThreadPoolExecutor

    def open(self, team: Team, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._call(team.saver.open(directory))

    def close(self, team: Team) -> None:
        self._call(team.saver.close())

    def fire(self, team: Team, shares: list[list[Job]]) -> None:
        settle()
        started = perf_counter()
        if isinstance(team.saver, Saver):
            self._fire_threads(team.saver, shares)
        else:
            self.runner.run(_fire_tasks(team.saver, shares))
        team.seconds += perf_counter() - started
        team.save_count += sum(len(share) for share in shares)

    def _fire_threads(self, saver: Saver, shares: list[list[Job]]) -> None:
        for done in [self.pool.submit(_save_all, saver, share) for share in shares]:
            done.result()

    def _call(self, outcome: object) -> None:
        if asyncio.iscoroutine(outcome):
            self.runner.run(outcome)


def _save_all(saver: Saver, share: list[Job]) -> None:
    for thread, state in share:
        saver.save(thread, state)


async def _fire_tasks(saver: AwaitableSaver, shares: list[list[Job]]) -> None:
    async with asyncio.TaskGroup() as group:
        for share in shares:
            group.create_task(_await_all(saver, share))


async def _await_all(saver: AwaitableSaver, share: list[Job]) -> None:
    for thread, state in share:
        await saver.save(thread, state)


def _shares(scale: Scale, states: list[State], volley: int) -> list[list[Job]]:
    """For each writer the saves it makes: to its own threads in turn, again and again."""
    count = scale.thread_count // _VOLLEYS
    threads = [f"customer-{volley * count + number}" for number in range(count)]
    return [
        [
            (thread, states[(round_ * count + place) % len(states)])
            for round_ in range(scale.saves_per_thread)
            for place, thread in enumerate(threads[writer::WRITER_COUNT])
        ]
        for writer in range(WRITER_COUNT)
    ]


def _savers(*, peers: bool) -> list[Saver | AwaitableSaver]:
    ours = [kind(options) for options in default_options() for kind in (AwaitableHoldfastSaver, HoldfastSaver)]
    raw = [RawInsertSaver(POWER_LOSS), RawInsertSaver(PROCESS_CRASH), RawAppendSaver()]
    return [*ours, *(savers_of_peers() if peers else []), *raw]


def _table(name: str, scale: Scale, teams: list[Team]) -> Table:
    rows = [row_of(team.saver, {RATE: _rate(team)}, team.failure) for team in teams]
    description = f"{scale.thread_count:,} threads x {scale.saves_per_thread} saves of 2 KB by {WRITER_COUNT} writers"
    return Table(name, description, [RATE], rows)


def _rate(team: Team) -> float | None:
    return team.save_count / team.seconds if team.seconds else None
