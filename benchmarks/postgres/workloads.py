"""W1, W2, W3 and W5 on PostgreSQL, and the figures to reach there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import w1_saves, w2_history, w3_wide, w5_writers
from benchmarks.contender import BlockingSaves, Contender, Saver
from benchmarks.figure import Figure
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_save import AwaitableHoldfastSaver, HoldfastSaver
from benchmarks.postgres.savers import (
    AwaitableLanggraphPostgres,
    LanggraphPostgres,
    PostgresOptions,
    RawInsert,
    RawInsertSaver,
)
from benchmarks.postgres.server import Server
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

W1, W2, W3, W5 = (f"{name} PostgreSQL" for name in ("W1", "W2", "W3", "W5"))
SAVE = "Holdfast save, PostgreSQL durable"
APPEND = "Holdfast append, PostgreSQL durable"
AWAITED = "Holdfast save (awaited), PostgreSQL durable"
RAW = "raw INSERT + commit"
PEER = "langgraph PostgreSQL"


class DatabaseSaves(BlockingSaves):
    """Saves whose bytes are in the contender's database."""

    def __init__(self, server: Server, saver: Saver, script: Script) -> None:
        super().__init__(saver, script)
        self.server = server

    def bytes(self) -> int:
        return self.server.stored_bytes(self.directory)

    def final_bytes(self) -> int:
        return self.bytes()


class DatabaseAppend(HoldfastAppend):
    """Appends, likewise."""

    def bytes(self) -> int:
        return self.options.server.stored_bytes(self.directory)  # type: ignore[attr-defined]

    def final_bytes(self) -> int:
        return self.bytes()


def measure(scale: Scale, scratch: Path, *, peers: bool) -> dict[str, Table]:
    """Every table, on one server."""
    with Server(scratch / "server").running() as server:
        return {
            W1: _saves(server, scale, scratch / "W1", peers=peers),
            W2: _history(server, scale, scratch / "W2", peers=peers),
            W3: _wide(server, scale, scratch / "W3", peers=peers),
            W5: _writers(server, scale, scratch / "W5", peers=peers),
        }


def _contenders(server: Server, script: Any, *, peers: bool) -> list[Contender]:
    savers: list[Saver] = [
        HoldfastSaver(PostgresOptions(server=server)),
        *([LanggraphPostgres(server)] if peers else []),
    ]
    return [DatabaseSaves(server, saver, script()) for saver in savers]


def _saves(server: Server, scale: Scale, scratch: Path, *, peers: bool) -> Table:
    states = replaced_states(500)
    raw = RawInsert(server, [encoded(state) for state in states])
    return w1_saves.table_of(W1, [*_contenders(server, lambda: replacing(states), peers=peers), raw], scale, scratch)


def _history(server: Server, scale: Scale, scratch: Path, *, peers: bool) -> Table:
    steps = agent_steps(scale.step_count, w2_history.STEP_BYTES)
    append = DatabaseAppend(PostgresOptions(server=server), steps)
    raw = RawInsert(server, [encoded(step) for step in steps])
    savers = _contenders(server, lambda: growing(steps), peers=peers)
    return w2_history.table_of(W2, [append, *savers, raw], steps, scratch)


def _wide(server: Server, scale: Scale, scratch: Path, *, peers: bool) -> Table:
    values = wide_values(2 * WIDE_KEY_COUNT)
    raw = RawInsert(server, [encoded(value) for value in values])
    contenders = [*_contenders(server, lambda: widening(values), peers=peers), raw]
    return w3_wide.table_of(W3, contenders, values, scale, scratch)


def _writers(server: Server, scale: Scale, scratch: Path, *, peers: bool) -> Table:
    options = PostgresOptions(server=server)
    others = [AwaitableLanggraphPostgres(server), LanggraphPostgres(server, pooled=True)] if peers else []
    savers = [AwaitableHoldfastSaver(options), HoldfastSaver(options), *others, RawInsertSaver(server)]
    return w5_writers.table_of(W5, savers, scale, scratch)


def gates(tables: dict[str, Table], scale: Scale) -> list[Figure]:
    """What has to be reached, of what was run."""
    if W1 not in tables:
        return []
    history, whole = tables[W2], scale.whole
    peers = history.row(PEER) is not None
    return [
        Figure("W1 PostgreSQL save / raw INSERT + commit", _ratio(tables[W1], w1_saves.MEDIAN, SAVE, RAW), 1.5, 1.2),
        *(_against(tables, whole=whole) if peers else []),
    ]


def _against(tables: dict[str, Table], *, whole: bool) -> list[Figure]:
    history, writers = tables[W2], tables[W5]
    rates = [writers.cell(name, w5_writers.RATE) or 0.0 for name in (f"{PEER} (awaited), pool", f"{PEER}, pool")]
    ours = writers.cell(AWAITED, w5_writers.RATE)
    time, size = (_ratio(history, column, PEER, APPEND) for column in (w2_history.SECONDS, w2_history.MEGABYTES))
    return [
        Figure(f"W2 time: {PEER} / append", time, 20 if whole else None, at_least=True),
        Figure(f"W2 bytes: {PEER} / append", size, 300 if whole else None, at_least=True),
        Figure(f"W5 32 writers / the better of {PEER}", ours / max(rates) if ours else None, 5, at_least=True),
    ]


def _ratio(table: Table, column: str, above: str, below: str) -> float | None:
    top, bottom = table.cell(above, column), table.cell(below, column)
    return top / bottom if top is not None and bottom else None
