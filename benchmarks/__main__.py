"""`python -m benchmarks`: run the workloads, print the tables, and write what was asked for."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import data_facts, machine, plot
from benchmarks.disk import scratch_directory
from benchmarks.gates import gates
from benchmarks.parts import FIGURES, SERVERS, WORKLOADS, measured, parts_of
from benchmarks.report import Results, markdown, workload
from benchmarks.result import Table
from benchmarks.scale import FULL, QUICK, Scale

HERE = Path(__file__).parent

_DISK_NEEDED = 15 * 10**9
_MEMORY_NEEDED = 10 * 10**9


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    with scratch_directory(options.scratch) as scratch:
        _check_room(options, scale, scratch)
        results = _run(options, scale, scratch)
    text = markdown(results)
    print(text)
    _write(options, results, text)
    return _exit_code(options, results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, a few minutes; shows the shape only")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*WORKLOADS, FIGURES, *SERVERS],
        metavar="PART",
        help=f"W1 to W7, figures, {', '.join(SERVERS)}",
    )
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="race the peers as well")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the report, the JSON and the plots there")
    parser.add_argument("--write-results", action="store_true", help="write RESULTS.md and plots beside this program")
    parser.add_argument(
        "--check", action="store_true", help="fail if a figure misses its floor (or its goal, if alone)"
    )
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where to store; a real disk, not tmpfs")
    return parser


def _check_room(options: argparse.Namespace, scale: Scale, scratch: Path) -> None:
    """The peers' W2 is quadratic: gigabytes on disk, and agent-framework reads all of it to find the latest."""
    if scale is QUICK or not options.peers or (options.only and "W2" not in options.only):
        return
    if shutil.disk_usage(scratch).free < _DISK_NEEDED:
        sys.exit("The full W2 with peers needs 15 GB of disk: give --scratch, or use --quick or --no-peers.")
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < _MEMORY_NEEDED:
        sys.exit("The full W2 with peers needs 10 GB of memory: use --quick or --no-peers.")


def _run(options: argparse.Namespace, scale: Scale, scratch: Path) -> Results:
    results = Results(_command(options), scale.name, machine.facts(scratch), data_facts.facts())
    for part in parts_of(options.only or [*WORKLOADS, FIGURES, *SERVERS]):
        _say(f"{' and '.join(part)} ...")
        tables, found = measured(part, scale, scratch, peers=options.peers)
        _add(results, tables)
        results.figures += found
        for name in SERVERS.keys() & set(part):
            results.figures += SERVERS[name].gates(results.tables, scale)
    results.figures += gates(results.tables, scale)
    return results


def _add(results: Results, tables: dict[str, Table]) -> None:
    """Keep what was measured, and show it at once: the whole takes long."""
    results.tables |= tables
    for table in tables.values():
        _say(workload(table) + "\n")


def _command(options: argparse.Namespace) -> str:
    """The command as anyone would type it, without the paths that were given."""
    words = ["python -m benchmarks"]
    words += ["--quick"] if options.quick else []
    words += ["--only", *options.only] if options.only else []
    words += [] if options.peers else ["--no-peers"]
    return " ".join(words)


def _write(options: argparse.Namespace, results: Results, text: str) -> None:
    if options.json:
        _write_json(options.json, results)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        _write_json(options.out / "results.json", results)
        _write_report(options.out / "results.md", results, text)
    if options.write_results:
        _write_report(HERE / "RESULTS.md", results, text)


def _write_json(path: Path, results: Results) -> None:
    content = {**asdict(results), "verdicts": {figure.name: figure.verdict for figure in results.figures}}
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _write_report(path: Path, results: Results, text: str) -> None:
    """The tables as markdown, with the plots of W2 in a folder beside them."""
    pictures = plot.draw(results.tables["W2"], path.parent / "plots") if "W2" in results.tables else []
    links = [f"![{each.stem.replace('_', ' ')}](plots/{each.name})" for each in pictures if each.suffix == ".svg"]
    path.write_text("\n\n".join(["# Benchmark results", text.rstrip(), *links]) + "\n", encoding="utf-8")


def _exit_code(options: argparse.Namespace, results: Results) -> int:
    for failure in results.failures:
        _say(f"failed: {failure}")
    missed = [figure.name for figure in results.figures if options.check and figure.verdict == "MISSED"]
    for name in missed:
        _say(f"missed: {name}")
    return 1 if results.failures or missed else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
