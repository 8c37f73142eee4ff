"""Figures of work done in memory: what a whole-state save costs beyond encoding, and a restore beyond decoding."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import ormsgpack

from benchmarks.figure import Figure
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_options import StoreOptions
from benchmarks.scale import Scale
from benchmarks.workloads import THREAD, State, agent_steps, empty_conversation, encoded

STEP_COUNT = 1_000
STEP_BYTES = 500


def whole_state_save(scale: Scale, directory: Path) -> list[Figure]:
    """4: CPU of saving a conversation that gained one step, against CPU of encoding it once."""
    figures = []
    for options in (StoreOptions("memory"), StoreOptions("sqlite", "process")):
        save, encode = _whole_state_cpu(scale.whole_state_saves, options, directory)
        note = f"{save * 1e3:.3f} ms of CPU per save, {encode * 1e3:.3f} ms to encode once"
        name = f"4 whole-state save of 1,000 x 500 B, {'memory' if options.kind == 'memory' else options.label}"
        figures += [
            Figure(f"{name}: beyond encoding", (save - encode) * 1e3, floor=0.35, unit="ms", note=note),
            Figure(f"{name}: all / encoding", save / encode, goal=1.5),
        ]
    return figures


def restore(scale: Scale, directory: Path) -> list[Figure]:
    """7: the latest of 1,000 steps through a fresh handle, against one blob of the whole state.

    A blob is what a store would keep of a full copy: sealed alike, verified by its digest alike. The ratio to decoding
    the bare bytes, unverified, is reported beside it.
    """
    figures = []
    for compress in (True, False):
        options = StoreOptions(level="process", compress=compress)
        place = directory / str(compress)
        times = _restore_times(options, place, _written(options, place), scale.restore_repeats)
        how = "" if compress else ", compress=False"
        figures += [
            Figure(
                f"7 restore latest of 1,000 steps / one full blob{how}", times.ratio, 2.0, 1.3, note=times.describe()
            ),
            Figure(f"7 the same / decoding its bare bytes, unverified{how}", times.bare_ratio),
        ]
    return figures


@dataclass
class RestoreTimes:
    opening: list[float] = field(default_factory=list)
    restoring: list[float] = field(default_factory=list)
    unsealing: list[float] = field(default_factory=list)
    decoding: list[float] = field(default_factory=list)
    ormsgpack_alone: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.restoring) / statistics.median(self.unsealing)

    @property
    def bare_ratio(self) -> float:
        return statistics.median(self.restoring) / statistics.median(self.decoding)

    def describe(self) -> str:
        sides = (self.restoring, self.unsealing, self.decoding, self.opening, self.ormsgpack_alone)
        restoring, unsealing, decoding, opening, alone = (statistics.median(side) * 1e3 for side in sides)
        return (
            f"{restoring:.2f} / {unsealing:.2f} ms (decoding alone {decoding:.2f}); opening {opening:.2f} ms more;"
            f" ormsgpack alone {alone:.2f} ms"
        )


def _whole_state_cpu(count: int, options: StoreOptions, directory: Path) -> tuple[float, float]:
    """Mean seconds of CPU of one save and of one encoding, in turns, around a length of 1,000 steps."""
    first = STEP_COUNT - count // 2
    steps = agent_steps(first + count, STEP_BYTES)
    state: State = {**empty_conversation(), "steps": steps[:first]}
    store = options.open_blocking(directory)
    store.save(THREAD, state)
    save_seconds, encode_seconds = [], []
    for step in steps[first:]:
        state["steps"].append(step)
        save_seconds.append(_timed(lambda: store.save(THREAD, state), process_time))
        encode_seconds.append(_timed(lambda: _encode(state), process_time))
    store.close()
    return statistics.fmean(save_seconds), statistics.fmean(encode_seconds)


def _written(options: StoreOptions, place: Path) -> State:
    """Write the thread, and return its state."""
    place.mkdir()
    contender = HoldfastAppend(options, agent_steps(STEP_COUNT, STEP_BYTES))
    contender.setup(place)
    contender.slice(range(STEP_COUNT))
    contender.finish()
    return {**empty_conversation(), "steps": contender.steps}


def _restore_times(options: StoreOptions, place: Path, state: State, repeats: int) -> RestoreTimes:
    times = RestoreTimes()
    blob, plain = _encode(state), encoded(state)
    sealed = _sealed(blob, compress=options.compress)
    for _ in range(repeats):
        opening, restoring = _restore_once(options, place)
        times.opening.append(opening)
        times.restoring.append(restoring)
        times.unsealing.append(_timed(lambda: _decode(_unsealed(sealed))))
        times.decoding.append(_timed(lambda: _decode(blob)))
        times.ormsgpack_alone.append(_timed(lambda: ormsgpack.unpackb(plain)))
    return times


def _restore_once(options: StoreOptions, place: Path) -> tuple[float, float]:
    """Seconds to open a fresh handle (asking it for a thread that is not there), and then to restore."""
    started = perf_counter()
    store = options.open_blocking(place)
    store.latest("nobody")
    opening = perf_counter() - started
    restoring = _timed(lambda: store.latest(THREAD).state)
    store.close()
    return opening, restoring


def _timed(work: Callable[[], Any], clock: Callable[[], float] = perf_counter) -> float:
    started = clock()
    result = work()
    seconds = clock() - started
    del result  # freeing it is not part of the work
    return seconds


def _encode(value: State) -> bytes:
    from holdfast import codec

    return codec.encode(value)


def _sealed(blob: bytes, *, compress: bool) -> tuple[bytes, bytes]:
    """A full copy as it would be stored: the digest and the sealed bytes."""
    from holdfast.codec.seal import Seal

    stored = Seal(compress=compress).seal(blob, b"thread")
    return sha256(stored).digest(), stored


def _unsealed(sealed: tuple[bytes, bytes]) -> bytes:
    from holdfast.codec.seal import Seal

    digest, stored = sealed
    if sha256(stored).digest() != digest:
        raise ValueError("damaged")
    return Seal().unseal(stored, b"thread", record="blob")


def _decode(blob: bytes) -> Any:
    from holdfast import codec

    return codec.decode(blob)
