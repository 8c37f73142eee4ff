"""The targets that follow from the workloads: Holdfast's rows against the raw limits' and the peers'."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import w1_saves, w2_history, w3_wide, w4_resume, w5_writers, w6_replay, w7_supersteps
from benchmarks.figure import Figure
from benchmarks.result import Table
from benchmarks.resuming import BESIDE_PEERS
from benchmarks.scale import Scale

_APPEND = "Holdfast append, SQLite durable"
_SAVE = "Holdfast save, SQLite durable"
_QUADRATIC = ("triage SQLite", "techrevati put", "agent-framework file")


def gates(tables: dict[str, Table], scale: Scale) -> list[Figure]:
    """Those whose workloads were run."""
    found: list[Figure] = []
    if "W1" in tables:
        found += _saves(tables["W1"])
    if "W2" in tables:
        found += [figure if scale.whole else _unjudged(figure) for figure in _history(tables["W2"])]
    if "W3" in tables:
        found += [figure if scale.whole else _unjudged(figure) for figure in _wide(tables["W3"])]
    if "W5" in tables:
        found += _writers(tables["W5"])
    if "W4" in tables:
        found += _resumes(tables["W4"])
    for name in ("W6", "W6 long"):
        if name in tables:
            found += _replays(tables[name])
    if "W7" in tables:
        found += [figure if scale.whole else _unjudged(figure) for figure in _supersteps(tables["W7"])]
    return found


def _unjudged(figure: Figure) -> Figure:
    """The same without bounds, because the run was too short for them."""
    return replace(figure, floor=None, goal=None)


def _saves(table: Table) -> list[Figure]:
    column = w1_saves.MEDIAN
    parity = "one fsync each: parity is honest"
    return [
        Figure("W1 save / raw SQLite FULL", _ratio(table, column, _SAVE, "raw SQLite FULL"), goal=1.1),
        Figure(
            "W1 save / raw SQLite NORMAL",
            _ratio(table, column, "Holdfast save, SQLite process", "raw SQLite NORMAL"),
            goal=1.3,
        ),
        *(
            Figure(f"W1 {peer} / save", _ratio(table, column, peer, _SAVE), note=parity)
            for peer in ("langgraph SQLite", "techrevati put")
            if table.row(peer)
        ),
    ]


def _history(table: Table) -> list[Figure]:
    figures = [
        *_against(table, "langgraph SQLite", time=(15, 20), size=(700, 1_000)),
        *_against(table, "langgraph DeltaChannel", time=(2.5, None), size=(10, None)),
    ]
    for peer in _QUADRATIC:
        figures += _against(table, peer, time=(80, None), size=(800, None))
    return figures


def _against(
    table: Table, peer: str, time: tuple[float, float | None], size: tuple[float, float | None]
) -> list[Figure]:
    if table.row(peer) is None:
        return []
    beside = {
        "whole-state save": _ratio(table, w2_history.SECONDS, peer, _SAVE),
        "a bare INSERT per step": _ratio(table, w2_history.SECONDS, peer, "raw SQLite FULL"),
    }
    note = ", ".join(f"{ratio:.1f}x against {name}" for name, ratio in beside.items() if ratio is not None)
    return [
        Figure(
            f"W2 time: {peer} / append",
            _ratio(table, w2_history.SECONDS, peer, _APPEND),
            *time,
            at_least=True,
            note=note,
        ),
        Figure(f"W2 bytes: {peer} / append", _ratio(table, w2_history.MEGABYTES, peer, _APPEND), *size, at_least=True),
    ]


def _wide(table: Table) -> list[Figure]:
    names = (f"{_SAVE}, compress=False", _SAVE)
    return [
        Figure(f"W3 stored bytes / changed bytes, {name}", table.cell(name, w3_wide.NEW_BYTES_RATIO), 2.2, 2.1)
        for name in names
    ]


def _writers(table: Table) -> list[Figure]:
    awaited = "Holdfast save (awaited), SQLite durable"
    ratios = {name: _ratio(table, w5_writers.RATE, name, "raw SQLite FULL") for name in (awaited, _SAVE)}
    return [
        Figure(f"W5 32 writers / one fsync per save, {name}", ratio, goal=3, at_least=True)
        for name, ratio in ratios.items()
    ]


RESUME_MS = 110
REPLAY_US = 15


def _resumes(table: Table) -> list[Figure]:
    """From the start of the process: the median of the rounds, and beside it the least."""
    kinds = [f"Holdfast {what}{where}" for what in ("run", "durable function") for where in ("", f" {BESIDE_PEERS}")]
    names = [f"{kind}, SQLite durable" for kind in kinds]
    return [_resume(table, name) for name in names if table.row(name)]


def _resume(table: Table, name: str) -> Figure:
    least, bare = table.cell(name, w4_resume.LEAST), table.cell("raw SQLite FULL", w4_resume.MEDIAN)
    note = "" if least is None or bare is None else f"the least of the rounds {least:.0f} ms; Python itself {bare:.0f}"
    return Figure(f"W4 cold resume, {name}", table.cell(name, w4_resume.MEDIAN), RESUME_MS, unit="ms", note=note)


def _replays(table: Table) -> list[Figure]:
    """Among the same packages as the peers."""
    name = f"Holdfast durable function {BESIDE_PEERS}, SQLite durable"
    peers = [peer for peer in ("langgraph tasks, SQLite", "dbos, SQLite") if table.row(peer)]
    return [
        Figure(f"{table.workload} replay, {name}", table.cell(name, w6_replay.PER_STEP), REPLAY_US, unit="us/step"),
        *(
            Figure(
                f"{table.workload} {peer} / {name}",
                _ratio(table, w6_replay.PER_STEP, peer, name),
                goal=20,
                at_least=True,
                note="the recorded steps alone",
            )
            for peer in peers
        ),
    ]


_WORKFLOW = "Holdfast workflow, SQLite durable"
_WORKFLOW_AWAITED = "Holdfast workflow (awaited), SQLite process"


def _supersteps(table: Table) -> list[Figure]:
    """Each peer against the workflow of its own durability and colour."""
    seconds, first, last = w7_supersteps.SECONDS, w7_supersteps.FIRST, w7_supersteps.LAST
    end, start = table.cell(_WORKFLOW, last), table.cell(_WORKFLOW, first)
    figures = [Figure("W7 a superstep at the end / at the start", end / start if end and start else None, goal=1.5)]
    slow, quick = "agent-framework workflow, file", "langgraph graph"
    if table.row(slow):
        size = _ratio(table, w7_supersteps.MEGABYTES, slow, _WORKFLOW_AWAITED)
        figures += [
            Figure(f"W7 time: {slow} / workflow", _ratio(table, seconds, slow, _WORKFLOW_AWAITED), 20, at_least=True),
            Figure(f"W7 bytes: {slow} / workflow", size, 500, at_least=True),
        ]
    if table.row(quick):
        ratio = _ratio(table, seconds, quick, _WORKFLOW)
        figures.append(Figure(f"W7 time: {quick}, SQLite / workflow", ratio, 1, at_least=True))
    return figures


def _ratio(table: Table, column: str, above: str, below: str) -> float | None:
    top, bottom = table.cell(above, column), table.cell(below, column)
    return top / bottom if top is not None and bottom else None
