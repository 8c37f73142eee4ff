"""Time and bytes per step against the number of steps, log scale, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.result import Row, Table

_HOLDFAST_COLOURS = ("#0b5394", "#3d85c6", "#0b8043", "#57bb8a", "#674ea7", "#8e7cc3", "#134f5c", "#76a5af")
_PEER_COLOURS = ("#cc0000", "#e69138", "#bf9000", "#a64d79", "#d5573b", "#85200c", "#783f04")
_RAW_COLOURS = ("#444444", "#777777", "#999999", "#bbbbbb")
_COLOURS = {"holdfast": _HOLDFAST_COLOURS, "peer": _PEER_COLOURS, "raw": _RAW_COLOURS}
_STYLES = {"P": "-", "P*": "-", "C": "--"}


def draw(table: Table, directory: Path) -> list[Path]:
    """Draw both plots of W2; without compression Holdfast's lines nearly coincide, so those are left to the table."""
    rows = [row for row in table.rows if row.failure is None and "compress=False" not in row.name]
    directory.mkdir(parents=True, exist_ok=True)
    return [
        *_draw(rows, table, "time per step [us]", 1, directory / "time_per_step"),
        *_draw(rows, table, "stored bytes per step, so far", 2, directory / "bytes_per_step"),
    ]


def _draw(rows: list[Row], table: Table, label: str, place: int, path: Path) -> list[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6))
    axes = figure.subplots()
    for row, colour in _coloured(rows):
        points = table.curves[row.name]
        width = 2.0 if row.family == "holdfast" else 1.3
        axes.plot(
            [point[0] for point in points],
            [point[place] for point in points],
            color=colour,
            linestyle=_STYLES[row.durability],
            linewidth=width,
            label=f"{row.name} ({row.durability})",
        )
    _dress(axes, label)
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    for each in paths:
        figure.savefig(each, dpi=150, bbox_inches="tight", metadata={"Date": None} if each.suffix == ".svg" else None)
    return paths


def _dress(axes: Any, label: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("steps in the thread")
    axes.set_ylabel(label)
    axes.grid(visible=True, which="both", linewidth=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)


def _coloured(rows: list[Row]) -> Iterator[tuple[Row, str]]:
    used = dict.fromkeys(_COLOURS, 0)
    for row in rows:
        colours = _COLOURS[row.family]
        yield row, colours[used[row.family] % len(colours)]
        used[row.family] += 1
