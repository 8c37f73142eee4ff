"""Figures of size: what appends, a wide state and a pruned thread take on disk, against the new data itself."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Contender, saves
from benchmarks.disk import file_bytes, stored_bytes
from benchmarks.figure import Figure
from benchmarks.holdfast_append import HoldfastAppend
from benchmarks.holdfast_options import StoreOptions
from benchmarks.holdfast_save import HoldfastSaver
from benchmarks.workloads import THREAD, WIDE_KEY_COUNT, State, agent_steps, wide_values, widening

STEP_BYTES = 430
STEP_COUNTS = (3_000, 10_000)
WIDE_SAVE_COUNT = 200
KEPT_CHECKPOINTS = 10
PREVIEWED_STEPS = 1_000


def appended(directory: Path) -> list[Figure]:
    """1: stored bytes / new bytes, at two lengths."""
    figures = []
    for compress, floor in ((False, 2.2), (True, 1.6)):
        ratios = {
            count: _appended_ratio(count, directory / f"{count}-{compress}", compress=compress) for count in STEP_COUNTS
        }
        figures += [
            Figure(f"1 stored bytes / new bytes, {count:,} appends{_with(compress)}", ratio, floor, 1.3)
            for count, ratio in ratios.items()
        ]
        growth = ratios[STEP_COUNTS[1]] / ratios[STEP_COUNTS[0]]
        figures.append(Figure(f"1 the same, flat in n: 10,000 / 3,000{_with(compress)}", growth, goal=1.05))
    return figures


def wide(directory: Path) -> list[Figure]:
    """5: bytes per step of a wide state, after the first save."""
    figures = []
    for compress, floor, goal in ((False, 8.0, 5.5), (True, 4.5, None)):
        kilobytes = _wide_kilobytes(WIDE_SAVE_COUNT, directory / str(compress), compress=compress)
        figures.append(Figure(f"5 wide state, per changed key of 5 KB{_with(compress)}", kilobytes, floor, goal, "KB"))
    return figures


def pruned(directory: Path) -> list[Figure]:
    """6: what is left after pruning to the last ten, against the state's own encoding."""
    figures = []
    for compress in (False, True):
        used, whole, own = _pruned_bytes(STEP_COUNTS[0], directory / str(compress), compress=compress)
        note = f"file {whole / own:.2f}x, free pages included"
        floor, goal = (None, None) if compress else (1.15, 1.05)
        figures.append(
            Figure(f"6 pruned to the last 10 / own size{_with(compress)}", used / own, floor, goal, note=note)
        )
    return figures


def previewed(directory: Path) -> list[Figure]:
    """10: what the preview of a step's arguments takes in its row, against a store that keeps none."""
    directory.mkdir(parents=True, exist_ok=True)
    sizes = {inputs: _step_bytes(directory / f"{inputs}.db", inputs) for inputs in ("none", "preview")}
    more = (sizes["preview"] - sizes["none"]) / PREVIEWED_STEPS
    note = f"{sizes['preview'] / PREVIEWED_STEPS:.0f} / {sizes['none'] / PREVIEWED_STEPS:.0f} bytes a step"
    return [Figure("10 preview of a step's arguments ('question 17', 3)", more, unit="bytes", note=note)]


def _step_bytes(path: Path, inputs: str) -> int:
    import holdfast.sync

    with holdfast.sync.open(path, durability="process", inputs=inputs) as store, store.run(THREAD) as run:
        for number in range(PREVIEWED_STEPS):
            run.step(f"step {number}", lambda question, _count: question, "question 17", 3)
        return store.stats().bytes


def _appended_ratio(count: int, directory: Path, *, compress: bool) -> float:
    steps = agent_steps(count, STEP_BYTES)
    contender = HoldfastAppend(StoreOptions(level="process", compress=compress), steps)
    _run(contender, directory, count)
    contender.finish()
    return file_bytes(directory) / sum(len(_encode(step)) for step in steps)


def _wide_kilobytes(count: int, directory: Path, *, compress: bool) -> float:
    saver = HoldfastSaver(StoreOptions(level="process", compress=compress))
    contender = saves(saver, widening(wide_values(2 * WIDE_KEY_COUNT)))
    _run(contender, directory, 1)
    before = contender.bytes()
    contender.slice(range(1, count))
    after = contender.bytes()
    contender.finish()
    return (after - before) / (count - 1) / 1e3


def _pruned_bytes(count: int, directory: Path, *, compress: bool) -> tuple[int, int, int]:
    """Bytes in use, bytes of the file, bytes of the state's encoding."""
    import holdfast

    contender = HoldfastAppend(StoreOptions(level="process", compress=compress), agent_steps(count, STEP_BYTES))
    _run(contender, directory, count)
    contender.store.prune(holdfast.Retention(keep_last=KEPT_CHECKPOINTS))
    own = len(_encode(contender.store.latest(THREAD).state))
    contender.finish()
    return stored_bytes(directory), file_bytes(directory), own


def _run(contender: Contender, directory: Path, count: int) -> None:
    directory.mkdir()
    contender.setup(directory)
    contender.slice(range(count))


def _encode(value: State) -> bytes:
    from holdfast import codec

    return codec.encode(value)


def _with(compress: bool) -> str:
    return " (zstd)" if compress else " (compress=False)"
