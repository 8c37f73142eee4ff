"""What a workload found: one row per contender, with its cells by column, or the reason why there are none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass
class Row:
    name: str
    family: str
    durability: str
    cells: dict[str, float | None] = field(default_factory=dict)
    failure: str | None = None


@dataclass
class Table:
    """One workload: its rows, and the sentence that says how large it was."""

    workload: str
    description: str
    columns: list[str]
    rows: list[Row]
    curves: dict[str, Any] = field(default_factory=dict)

    def row(self, name: str) -> Row | None:
        """The row of this contender, if it finished."""
        return next((row for row in self.rows if row.name == name and row.failure is None), None)

    def cell(self, name: str, column: str) -> float | None:
        row = self.row(name)
        return row.cells.get(column) if row else None


class Named(Protocol):
    """Whatever has a row."""

    name: str
    family: str
    durability: str


def row_of(contender: Named, cells: dict[str, float | None], failure: str | None) -> Row:
    """A row that names the contender, and holds either cells or a failure."""
    return Row(contender.name, contender.family, contender.durability, {} if failure else cells, failure)
