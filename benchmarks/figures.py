"""All figures that Holdfast has to reach, each measured on its own; one that cannot be measured says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import figures_bytes, figures_commit, figures_cpu, figures_flatness, figures_session, figures_weight
from benchmarks.figure import Figure
from benchmarks.race import reason
from benchmarks.scale import Scale

Measurement = Callable[[Scale, Path], list[Figure]]

_MEASUREMENTS: dict[str, Measurement] = {
    "1 stored bytes / new bytes": lambda _, directory: figures_bytes.appended(directory),
    "2 flat in n": lambda _, directory: figures_flatness.flatness(directory),
    "3 append / raw INSERT": figures_commit.append_against_insert,
    "4 whole-state save, CPU": figures_cpu.whole_state_save,
    "5 wide state, bytes per step": lambda _, directory: figures_bytes.wide(directory),
    "6 after pruning to the last 10": lambda _, directory: figures_bytes.pruned(directory),
    "10 preview of arguments": lambda _, directory: figures_bytes.previewed(directory),
    "7 restore / decoding one blob": figures_cpu.restore,
    "8 file append / raw append": figures_commit.append_against_file,
    "9 session turn": figures_session.turn_against_insert,
    "9 long session": figures_session.long_session,
    "awaited / blocking save": figures_commit.awaited_against_blocking,
    "weight": lambda _, __: figures_weight.weight(),
}


def measure(scale: Scale, scratch: Path) -> list[Figure]:
    found: list[Figure] = []
    for number, (name, measurement) in enumerate(_MEASUREMENTS.items()):
        directory = scratch / f"figure-{number}"
        directory.mkdir(parents=True)
        try:
            found += measurement(scale, directory)
        except Exception as error:  # noqa: BLE001 - a figure that fails is reported, the others go on
            found.append(Figure(name, None, note=reason(error)))
    return found
