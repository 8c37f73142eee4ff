"""The results as tables: on the terminal and, the same text, as markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.figure import Figure
from benchmarks.result import Row, Table
from benchmarks.resuming import BESIDE_PEERS

LEGEND = "Durability: P survives power loss, C the crash of the process only. (P* uses Python's default journal mode.)"

_REFERENCE = {
    "W1": "raw SQLite FULL",
    "W2": "Holdfast append, SQLite durable",
    "W2 long": "Holdfast append, SQLite durable",
    "W3": "Holdfast save, SQLite durable",
    "W4": f"Holdfast run {BESIDE_PEERS}, SQLite durable",
    "W5": "raw SQLite FULL",
    "W6": f"Holdfast durable function {BESIDE_PEERS}, SQLite durable",
    "W6 long": f"Holdfast durable function {BESIDE_PEERS}, SQLite durable",
    "W7": "Holdfast workflow, SQLite durable",
    "W1 Redis": "raw SET, Redis always",
    "W2 Redis": "Holdfast append, Redis always",
    "W3 Redis": "Holdfast save, Redis always",
    "W5 Redis": "raw SET, Redis always",
    "W1 PostgreSQL": "raw INSERT + commit",
    "W2 PostgreSQL": "Holdfast append, PostgreSQL durable",
    "W3 PostgreSQL": "Holdfast save, PostgreSQL durable",
    "W5 PostgreSQL": "raw INSERT + commit, pool",
    "W1 S3": "raw PUT",
    "W2 S3": "raw PUT",
    "W3 S3": "raw PUT",
    "W5 S3": "raw PUT, 32 threads",
}
_WITH_RATIO = ("p50 us", "s", "MB", "saves/s", "p50 ms", "replay ms")


@dataclass
class Results:
    """Everything that one run found."""

    command: str
    scale: str
    machine: dict[str, str]
    data: dict[str, str]
    tables: dict[str, Table] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """What did not run, with its reason."""
        rows = [(table, row) for table in self.tables.values() for row in table.rows if row.failure]
        failed_figures = [f"{figure.name}: {figure.note}" for figure in self.figures if figure.measured is None]
        return [f"{table.workload}, {row.name}: {row.failure}" for table, row in rows] + failed_figures


def markdown(results: Results) -> str:
    parts = [
        f"`{results.command}` ({results.scale})",
        _facts("Machine", results.machine),
        _facts("zstd-1 ratio of the data itself", results.data),
        LEGEND,
        *(workload(table) for table in results.tables.values()),
        _figures(results.figures),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(title: str, facts: dict[str, str]) -> str:
    return "\n".join([f"{title}:", "", *(f"- {name}: {value}" for name, value in facts.items())])


def workload(table: Table) -> str:
    """The table of one workload, under its heading."""
    reference = _REFERENCE.get(table.workload)
    columns = [column for column in table.columns for column in _with_ratio(column)]
    lines = [[row.name, row.durability, *_cells(row, table, reference)] for row in table.rows]
    heading = f"## {table.workload}: {table.description}\n\n"
    heading += f"Ratios are to {reference}.\n\n" if reference else ""
    return heading + _grid([["", "dur.", *columns], *lines])


def _with_ratio(column: str) -> list[str]:
    return [column, f"{column} ratio"] if column in _WITH_RATIO else [column]


def _cells(row: Row, table: Table, reference: str | None) -> list[str]:
    if row.failure is not None:
        return [f"failed: {row.failure}"]
    cells = []
    for column in table.columns:
        value = row.cells.get(column)
        cells.append(number(value))
        if column in _WITH_RATIO:
            base = table.cell(reference, column) if reference else None
            cells.append(f"{number(value / base)}x" if value is not None and base else "")
    return cells


def _figures(figures: list[Figure]) -> str:
    if not figures:
        return ""
    lines = [["figure", "measured", "floor", "goal", "verdict", "note"]]
    for figure in figures:
        sign = ">= " if figure.at_least else "<= "
        bounds = [f"{sign}{number(bound)}" if bound is not None else "" for bound in (figure.floor, figure.goal)]
        measured = f"{number(figure.measured)} {figure.unit}" if figure.measured is not None else ""
        lines.append([figure.name, measured, *bounds, figure.verdict, figure.note])
    return "## Figures to reach\n\n" + _grid(lines)


def _grid(lines: list[list[str]]) -> str:
    """A markdown table whose columns also line up when read as plain text."""
    width = max(len(line) for line in lines)
    padded = [line + [""] * (width - len(line)) for line in lines]
    widths = [max(len(_short(line[place])) for line in padded) for place in range(width)]
    rows = [_line(line, widths) for line in padded]
    return "\n".join([rows[0], _line(["-" * size for size in widths], widths), *rows[1:]])


def _line(cells: Sequence[str], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True)) + " |"


def _short(cell: str) -> str:
    """Reasons of failures may stick out; they do not widen their column."""
    return "" if cell.startswith("failed:") else cell


def number(value: float | None) -> str:
    """Three figures, and no more."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}"
