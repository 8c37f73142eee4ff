"""W1, W2, W3 and W5 on Redis, with appendfsync always and everysec, and the figures to reach there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import w1_saves, w2_history, w3_wide, w5_writers
from benchmarks.contender import AwaitableSaver, Contender, Saver
from benchmarks.figure import Figure
from benchmarks.holdfast_save import AwaitableHoldfastSaver, HoldfastSaver
from benchmarks.redis.savers import (
    AwaitableDatabaseSaves,
    DatabaseAppend,
    DatabaseSaves,
    RawSet,
    RawSetSaver,
    TriageRedis,
    options_on,
)
from benchmarks.redis.server import Server
from benchmarks.result import Table
from benchmarks.scale import Scale
from benchmarks.workloads import (
    WIDE_KEY_COUNT,
    Script,
    agent_steps,
    encoded,
    growing,
    replaced_states,
    replacing,
    wide_values,
    widening,
)

W1, W2, W3, W5 = (f"{name} Redis" for name in ("W1", "W2", "W3", "W5"))
LEVELS = ("always", "everysec")

Workload = Callable[..., Table]


def measure(scale: Scale, scratch: Path, *, peers: bool) -> dict[str, Table]:
    """Every table, each on two new servers: what a peer has left would weigh on the next one."""
    workloads: dict[str, Workload] = {W1: _saves, W2: _history, W3: _wide, W5: _writers}
    return {name: _on_servers(workload, scale, scratch / name[:2], peers=peers) for name, workload in workloads.items()}


def _on_servers(workload: Workload, scale: Scale, scratch: Path, *, peers: bool) -> Table:
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(scratch / level, level).running()) for level in LEVELS]
        return workload(servers, scale, scratch / "places", peers=peers)


def _contenders(servers: list[Server], script: Callable[[], Script], *, peers: bool) -> list[Contender]:
    found: list[Contender] = []
    for server in servers:
        found.append(DatabaseSaves(server, HoldfastSaver(options_on(server)), script()))
        if peers:
            found.append(AwaitableDatabaseSaves(server, TriageRedis(server), script()))
    return found


def _saves(servers: list[Server], scale: Scale, scratch: Path, *, peers: bool) -> Table:
    states = replaced_states(500)
    raw = [RawSet(server, [encoded(state) for state in states]) for server in servers]
    return w1_saves.table_of(W1, [*_contenders(servers, lambda: replacing(states), peers=peers), *raw], scale, scratch)


def _history(servers: list[Server], scale: Scale, scratch: Path, *, peers: bool) -> Table:
    steps = agent_steps(scale.step_count, w2_history.STEP_BYTES)
    appends = [DatabaseAppend(server, options_on(server), steps) for server in servers]
    raw = [RawSet(server, [encoded(step) for step in steps]) for server in servers]
    savers = _contenders(servers, lambda: growing(steps), peers=peers)
    return w2_history.table_of(W2, [*appends, *savers, *raw], steps, scratch)


def _wide(servers: list[Server], scale: Scale, scratch: Path, *, peers: bool) -> Table:
    values = wide_values(2 * WIDE_KEY_COUNT)
    raw = [RawSet(server, [encoded(value) for value in values]) for server in servers]
    contenders = [*_contenders(servers, lambda: widening(values), peers=peers), *raw]
    return w3_wide.table_of(W3, contenders, values, scale, scratch)


def _writers(servers: list[Server], scale: Scale, scratch: Path, *, peers: bool) -> Table:
    savers: list[Saver | AwaitableSaver] = []
    for server in servers:
        options = options_on(server)
        others = [TriageRedis(server)] if peers else []
        savers += [AwaitableHoldfastSaver(options), HoldfastSaver(options), *others, RawSetSaver(server)]
    return w5_writers.table_of(W5, savers, scale, scratch)


def gates(tables: dict[str, Table], scale: Scale) -> list[Figure]:
    """What has to be reached, of what was run."""
    if W1 not in tables:
        return []
    return [figure for level in LEVELS for figure in _of_level(tables, level, whole=scale.whole)]


def _of_level(tables: dict[str, Table], level: str, *, whole: bool) -> list[Figure]:
    place, peer = f"Redis {level}", f"triage Redis {level}"
    save, raw = f"Holdfast save, {place}", f"raw SET, {place}"
    figures = [Figure(f"W1 {place}: save / raw SET", _ratio(tables[W1], w1_saves.MEDIAN, save, raw), 2, 1.5)]
    if tables[W2].row(peer) is None:
        return figures
    time = _ratio(tables[W2], w2_history.SECONDS, peer, f"Holdfast append, {place}")
    limit = _ratio(tables[W2], w2_history.SECONDS, peer, raw)
    rate = _ratio(tables[W5], w5_writers.RATE, f"Holdfast save (awaited), {place}", peer)
    fastest = _ratio(tables[W5], w5_writers.RATE, raw, peer)
    return [
        *figures,
        Figure(f"W2 time: {peer} / append", time, 50 if whole else None, at_least=True, note=_beside(limit)),
        Figure(f"W5 32 writers / {peer}", rate, 2, at_least=True, note=_beside(fastest)),
    ]


def _beside(limit: float | None) -> str:
    return f"a bare SET of the new bytes: {limit:.1f}x" if limit is not None else ""


def _ratio(table: Table, column: str, above: str, below: str) -> float | None:
    top, bottom = table.cell(above, column), table.cell(below, column)
    return top / bottom if top is not None and bottom else None
