"""Contenders side by side: each does a slice of its steps in turn, and a failure ends only the one that failed."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.contender import Contender
from benchmarks.disk import settle
from benchmarks.workloads import State

_FAST_LOAD_SECONDS = 0.5
_FAST_LOAD_REPEATS = 5


@dataclass
class Lane:
    """One contender's run, as far as it came."""

    contender: Contender
    directory: Path
    seconds: list[float] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)  # (steps done, bytes stored then)
    final_bytes: int = 0
    load_seconds: float | None = None
    failure: str | None = None

    @property
    def name(self) -> str:
        return self.contender.name

    def attempt(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do this unless the contender has failed before; if it fails now, keep the reason."""
        if self.failure is not None:
            return
        try:
            work(self, *arguments)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is its result
            self.failure = reason(error)


@dataclass(frozen=True)
class Course:
    """How long a race is: `warm` steps that are not counted, then `total`, in slices."""

    total: int
    slice_size: int
    warm: int = 0


def race(contenders: Iterable[Contender], course: Course, scratch: Path) -> list[Lane]:
    """Run all contenders in alternating slices; the lanes come back finished, their files still there."""
    lanes = [Lane(contender, scratch / f"lane-{number}") for number, contender in enumerate(contenders)]
    for lane in lanes:
        lane.attempt(_start, course.warm)
    for turn, first in enumerate(range(0, course.total, course.slice_size)):
        steps = range(first, min(first + course.slice_size, course.total))
        for lane in _rotated(lanes, turn):
            lane.attempt(_advance, steps, course.warm)
    for lane in lanes:
        lane.attempt(_finish)
    return lanes


def check_and_load(lane: Lane, expected_at: Callable[[int], State]) -> None:
    """Time loading the latest state, and prove that it and one from the middle are what was saved."""
    lane.attempt(_check_and_load, expected_at)


def clear(lane: Lane) -> None:
    """Delete what the contender stored: the quadratic ones leave gigabytes."""
    shutil.rmtree(lane.directory, ignore_errors=True)


def reason(error: BaseException) -> str:
    """One line, without the paths of this machine."""
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return " ".join("(path)" if word.strip("'\"(),").startswith("/") else word for word in text.split())[:160]


def _start(lane: Lane, warm: int) -> None:
    lane.directory.mkdir(parents=True)
    lane.contender.setup(lane.directory)
    lane.contender.slice(range(warm))


def _advance(lane: Lane, steps: range, warm: int) -> None:
    settle()
    lane.seconds += lane.contender.slice(range(steps.start + warm, steps.stop + warm))
    lane.stored.append((steps.stop, lane.contender.bytes()))


def _finish(lane: Lane) -> None:
    lane.contender.finish()
    lane.final_bytes = lane.contender.final_bytes()


def _check_and_load(lane: Lane, expected_at: Callable[[int], State]) -> None:
    state, lane.load_seconds = _timed_load(lane.contender)
    if state is None:
        lane.load_seconds = None
        return
    _compare(state, expected_at(len(lane.seconds) - 1), "the latest")
    middle = len(lane.seconds) // 2
    _compare(lane.contender.restore(middle), expected_at(middle), "a middle")
    lane.contender.finish()


def _timed_load(contender: Contender) -> tuple[State | None, float]:
    settle()
    state, seconds = _load_once(contender)
    if state is None or seconds > _FAST_LOAD_SECONDS:
        return state, seconds
    times = [seconds]
    for _ in range(_FAST_LOAD_REPEATS):
        contender.finish()
        state, seconds = _load_once(contender)
        times.append(seconds)
    return state, statistics.median(times)


def _load_once(contender: Contender) -> tuple[State | None, float]:
    started = perf_counter()
    state = contender.load()
    return state, perf_counter() - started


def _compare(found: State | None, expected: State, which: str) -> None:
    if found != expected:
        raise AssertionError(f"{which} checkpoint does not come back as it was saved")


def _rotated(lanes: list[Lane], turn: int) -> list[Lane]:
    offset = turn % len(lanes) if lanes else 0
    return lanes[offset:] + lanes[:offset]
