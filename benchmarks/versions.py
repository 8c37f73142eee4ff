"""`python -m benchmarks.versions COMMIT`: this version of Holdfast against an earlier one, in alternating processes.

Each round measures both versions in a new interpreter each, the order reversed from round to round; the table shows the
least of the rounds, which the noise of the machine disturbs least. What waits for no disk is measured in time of the
processor, which other programs disturb little. Only calls that both versions have are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.disk import stored_bytes

_ROOT = Path(__file__).parent.parent
_COUNT = 2_000
_TEXT = "the agent reads a page and notes what it found there; " * 8

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=8, help="how often each version is measured (8)")
    options = parser.parse_args()
    with _checked_out(options.commit) as earlier:
        sources = [earlier / "src", _ROOT / "src"]
        rounds: list[list[Figures]] = [[], []]
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for side in (0, 1) if number % 2 else (1, 0):
                rounds[side].append(_measured(sources[side]))
    _print_table(options.commit, *rounds)


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-version-") as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", tree, commit], cwd=_ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=_ROOT, check=True)


def _measured(source: Path) -> Figures:
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{_ROOT}"}
    program = "from benchmarks.versions import print_figures; print_figures()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def _print_table(commit: str, earlier: list[Figures], today: list[Figures]) -> None:
    print(f"|  | {commit[:10]} | this version | ratio |\n| --- | --- | --- | --- |")
    for name in today[0]:
        before, after = (min(figures[name] for figures in side) for side in (earlier, today))
        print(f"| {name} | {before:,.4g} | {after:,.4g} | {after / before:.2f}x |")


def print_figures() -> None:
    """Measure the version of Holdfast that this interpreter imports, and print what was found as JSON."""
    figures: Figures = {}
    for level in ("process", "durable"):
        with tempfile.TemporaryDirectory(prefix="holdfast-version-") as folder:
            figures |= _figures_at(level, Path(folder))
    print(json.dumps(figures))


def _figures_at(level: str, folder: Path) -> Figures:
    from holdfast import sync

    count = _COUNT if level == "process" else _COUNT // 4
    _timer.now = process_time if level == "process" else perf_counter
    name = f"SQLite {level}"
    with sync.open(str(folder / "one.db"), durability=level) as store:
        found = {f"{measure.__name__[1:].replace('_', ' ')}, {name}, us": measure(store, count) for measure in _CALLS}
        if level == "process":
            found |= {f"{each.__name__[1:].replace('_', ' ')}, ms": each(store, count) for each in _WHOLE}
            found["all of it on disk, KB"] = stored_bytes(folder) / 1e3
    return found


class _Timer:
    """Which clock is used."""

    now: Callable[[], float] = staticmethod(perf_counter)


_timer = _Timer()


def _each(count: int, call: Callable[[int], Any]) -> float:
    """The time of one call in us: the median of `count`, after some that are not counted."""
    seconds = []
    for number in range(count + count // 10):
        began = _timer.now()
        call(number)
        seconds.append(_timer.now() - began)
    return sorted(seconds[count // 10 :])[count // 2] * 1e6


def _whole(call: Callable[[], Any]) -> float:
    """The time of one call in ms: the least of five."""
    seconds = []
    for _ in range(5):
        began = _timer.now()
        call()
        seconds.append(_timer.now() - began)
    return min(seconds) * 1e3


def _save(store: Any, count: int) -> float:
    state = {"text": _TEXT * 4, "n": 0}
    return _each(count, lambda number: store.save("saves", {**state, "n": number}))


def _append(store: Any, count: int) -> float:
    store.save("appends", {"messages": []})
    return _each(count, lambda number: store.append("appends", "messages", f"{number} {_TEXT}"))


def _step(store: Any, count: int) -> float:
    with store.run("steps") as run:
        return _each(count, lambda number: run.step(f"step-{number}", str, number))


def _replayed_step(store: Any, count: int) -> float:
    with store.run("steps") as run:
        return _each(count, lambda number: run.step(f"step-{number}", str, number))


def _turn(store: Any, count: int) -> float:
    with _session(store) as session:
        return _each(count, lambda number: session.run_turn(lambda: _TEXT, idempotency_key=f"turn-{number}"))


def _run_of_one_step(store: Any, count: int) -> float:
    def run_one(number: int) -> None:
        with store.run(f"short-{number}") as run:
            run.step("only", str, number)

    return _each(count // 4, run_one)


def _opening_a_session_of_many_turns(store: Any, _count: int) -> float:
    def enter() -> None:
        with _session(store):
            pass

    return _whole(enter)


def _resume_of_many_steps(store: Any, count: int) -> float:
    def resume() -> None:
        with store.run("steps") as run:
            for number in range(count):
                run.step(f"step-{number}", str, number)

    return _whole(resume)


def _loading_a_long_list(store: Any, _count: int) -> float:
    return _whole(lambda: store.latest("appends"))


def _listing_all_threads(store: Any, _count: int) -> float:
    return _whole(lambda: list(store.threads()))


def _session(store: Any) -> Any:
    from holdfast import sync

    return sync.Orchestrator(role="writer", phase="draft", store=store).session(thread_id="turns")


_CALLS = (_save, _append, _step, _replayed_step, _turn, _run_of_one_step)
_WHOLE = (_opening_a_session_of_many_turns, _resume_of_many_steps, _loading_a_long_list, _listing_all_threads)


if __name__ == "__main__":
    main()
