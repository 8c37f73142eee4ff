"""Programs that are resumed in new processes: what W4 and W6 race. Each is an ordinary script of `programs/`.

A round resumes each program once, in turn, each in an interpreter of its own that ends as a killed one does. So the
thread is as unfinished in the next round, and one step longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import perf_counter

from benchmarks.alone import python_alone
from benchmarks.contender import POWER_LOSS, PROCESS_CRASH
from benchmarks.disk import settle
from benchmarks.holdfast_options import StoreOptions
from benchmarks.race import reason

PROGRAMS = Path(__file__).parent / "programs"
_UNWANTED = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")  # a start is measured as users have it: from bytecode
_PATIENCE = 300
BESIDE_PEERS = "beside the peers' packages"


@dataclass
class Program:
    """One script, and what its resumes took."""

    name: str
    durability: str
    family: str
    script: str
    options: StoreOptions | None = None
    python: str = sys.executable
    cold: list[float] = field(default_factory=list)
    """Seconds from the start of the process to the first new step, stored."""
    warm: list[float] = field(default_factory=list)
    """Seconds from the call that resumes to there."""
    body: list[float] = field(default_factory=list)
    """Seconds of the recorded steps alone."""
    failure: str | None = None

    def prepare(self, directory: Path, count: int) -> None:
        directory.mkdir(parents=True)
        self._attempt("prepare", directory, count)

    def resume(self, directory: Path, count: int) -> None:
        settle()
        started = perf_counter()
        told = self._attempt("resume", directory, count)
        if told is not None:
            seconds, line = told
            warm, body = map(float, line.split())
            self.cold.append(seconds - started)
            self.warm.append(warm)
            self.body.append(body)

    def _attempt(self, action: str, directory: Path, count: int) -> tuple[float, str] | None:
        if self.failure is not None:
            return None
        try:
            return self._run(action, directory, count)
        except Exception as error:  # noqa: BLE001 - whatever a peer does is its result
            self.failure = reason(error)
            return None

    def _run(self, action: str, directory: Path, count: int) -> tuple[float, str]:
        """When the program told something, and what."""
        command = [self.python, str(PROGRAMS / self.script), action, str(directory), str(count)]
        environment, errors = self._environment(directory), directory / "errors.txt"
        with (
            errors.open("wb") as told,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True, env=environment) as child,
        ):
            assert child.stdout is not None
            line = child.stdout.readline()
            seconds = perf_counter()
            child.wait(_PATIENCE)
        if child.returncode or (action == "resume" and not line):
            raise RuntimeError(errors.read_text().strip().rpartition("\n")[2] or "no output")
        return seconds, line

    def _environment(self, directory: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        if self.options is not None:
            kept |= {"HOLDFAST_STORE": self.options.url(directory), "HOLDFAST_LEVEL": self.options.level}
        return kept


def holdfast_programs(script: str, what: str) -> list[Program]:
    """The script over each embedded store, at each level; and the first once more where the peers are installed too."""
    options = [StoreOptions(kind, level) for kind in ("sqlite", "file") for level in ("durable", "process")]
    alone = [_holdfast_program(f"Holdfast {what}", script, each, python_alone()) for each in options]
    return [*alone, _holdfast_program(f"Holdfast {what} {BESIDE_PEERS}", script, options[0], sys.executable)]


def _holdfast_program(name: str, script: str, options: StoreOptions, python: str) -> Program:
    return Program(f"{name}, {options.label}", options.durability, "holdfast", script, options, python)


def replaying_peers() -> list[Program]:
    """The peers that memoize steps."""
    return [
        Program("langgraph tasks, SQLite", POWER_LOSS, "peer", "langgraph_tasks.py"),
        Program("dbos, SQLite", POWER_LOSS, "peer", "dbos_workflow.py"),
        Program("agent-framework steps, file", PROCESS_CRASH, "peer", "agent_framework_steps.py"),
    ]


def reading_programs(*, peers: bool) -> list[Program]:
    """Those that read a state and go on from there, and the raw limit."""
    return [
        *holdfast_programs("holdfast_run.py", "run"),
        *([Program("langgraph graph, SQLite", POWER_LOSS, "peer", "langgraph_graph.py")] if peers else []),
        Program("raw SQLite FULL", POWER_LOSS, "raw", "bare.py"),
    ]


def replaying_programs(*, peers: bool) -> list[Program]:
    """Those whose function runs again, and whose recorded steps return."""
    ours = holdfast_programs("holdfast_durable.py", "durable function")
    return [*ours, *(replaying_peers() if peers else [])]


@cache
def resumed_together(count: int, rounds: int, scratch: Path, *, peers: bool) -> tuple[list[Program], list[Program]]:
    """Those that read and those that replay, in one race: once for W4 and W6."""
    reading, replaying = reading_programs(peers=peers), replaying_programs(peers=peers)
    resume_in_turn([*reading, *replaying], count, rounds, scratch)
    return reading, replaying


def resume_in_turn(programs: list[Program], count: int, rounds: int, scratch: Path) -> None:
    """Prepare each, then resume them in turn, each round begun by another.

    The first round is not counted: it finds no bytecode and a cold disk.
    """
    lanes = [(program, scratch / f"program-{number}") for number, program in enumerate(programs)]
    for program, place in lanes:
        program.prepare(place, count)
    for turn in range(rounds + 1):
        first = turn % len(lanes)
        for program, place in lanes[first:] + lanes[:first]:
            program.resume(place, count)
            if turn == 0:
                program.cold, program.warm, program.body = [], [], []
