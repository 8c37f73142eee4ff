"""Two things timed against each other in small alternating batches, so that the noise of the disk hits both alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.disk import settle

Slice = Callable[[range], list[float]]
_BATCH = 20


@dataclass(frozen=True)
class Pair:
    """The seconds of both sides, sample by sample."""

    ours: list[float]
    limit: list[float]

    @property
    def ratio_of_medians(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.limit)

    @property
    def ratio_of_means(self) -> float:
        return statistics.fmean(self.ours) / statistics.fmean(self.limit)

    def describe(self, unit: float = 1e6, name: str = "us") -> str:
        ours, limit = (statistics.median(side) * unit for side in (self.ours, self.limit))
        return f"{ours:.0f} / {limit:.0f} {name}, ratio of means {self.ratio_of_means:.2f}"


def alternate(ours: Slice, limit: Slice, count: int, *, warm: int = 0, batch: int = _BATCH) -> Pair:
    """`count` samples of each side, after `warm` steps of each that are not counted."""
    return Pair(*take_turns((ours, limit), count, warm=warm, batch=batch))


def take_turns(sides: Sequence[Slice], count: int, *, warm: int = 0, batch: int = _BATCH) -> list[list[float]]:
    """The same for any number of sides: the seconds of each. Their order is turned round from batch to batch."""
    for side in sides:
        side(range(warm))
    settle()
    lanes: list[tuple[Slice, list[float]]] = [(side, []) for side in sides]
    for first in range(warm, warm + count, batch):
        steps = range(first, min(first + batch, warm + count))
        for side, seconds in lanes if (first // batch) % 2 else reversed(lanes):
            seconds.extend(side(steps))
    return [seconds for _, seconds in lanes]
