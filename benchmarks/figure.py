"""One figure against its floor and its goal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """`floor` must hold, `goal` is wanted; both are upper bounds unless `at_least`."""

    name: str
    measured: float | None
    floor: float | None = None
    goal: float | None = None
    unit: str = "x"
    at_least: bool = False
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if self._reaches(self.goal):
            return "goal"
        if self._reaches(self.floor):
            return "floor"
        return "reported" if self.floor is None and self.goal is None else "MISSED"

    def _reaches(self, bound: float | None) -> bool:
        if bound is None or self.measured is None:
            return False
        return self.measured >= bound if self.at_least else self.measured <= bound
