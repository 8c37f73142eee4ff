"""Three workers on one store; one of them is killed with SIGKILL every few seconds, and started again.

    python fleet.py                             # on a private PostgreSQL server, or on SQLite if none is installed
    python fleet.py --store postgresql://…      # on yours, in a namespace of its own

Shows the threads and steps until all threads are complete. Then it checks what the store and the workers say: every
step is recorded once, and only steps that were in flight in a killed worker were executed again.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from private_postgres import private_server, program
from reports import STEPS

import holdfast.sync as holdfast

HERE = Path(__file__).parent
WORKERS = 3
CONCURRENCY = 5
Execution = tuple[str, str, int]
"""A thread, a step of it, and the process that executed it."""


class Fleet:
    """The workers, those that were killed, and what they executed."""

    def __init__(self, url: str, namespace: str, log: Path) -> None:
        self.killed: set[int] = set()
        self._log = log
        options = ["--namespace", namespace, "--concurrency", str(CONCURRENCY), "--lease", "2", "--grace", "5"]
        self._command = [sys.executable, "-m", "holdfast", "worker", str(HERE / "reports.py"), *options]
        self._environment = {**os.environ, "HOLDFAST_STORE": url, "FLEET_LOG": str(log)}
        self.workers = [self._started() for _ in range(WORKERS)]

    def _started(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)

    def kill_one(self) -> None:
        """Kill a worker that has finished steps, if there is one, and start another in its place."""
        counts = Counter(process for _, _, process in self.executions())
        busy = [number for number, worker in enumerate(self.workers) if counts[worker.pid] >= 2 * CONCURRENCY]
        if busy:
            number = random.choice(busy)
            self.workers[number].kill()
            self.workers[number].wait()
            self.killed.add(self.workers[number].pid)
            self.workers[number] = self._started()

    def executions(self) -> list[Execution]:
        """What was executed so far, in order."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [(thread, step, int(process)) for thread, step, process in map(str.split, lines)]

    def check_alive(self) -> None:
        """Raise `SystemExit` if a worker ended by itself."""
        if any(worker.poll() is not None for worker in self.workers):
            raise SystemExit("a worker ended by itself")

    def end(self) -> None:
        """Drain all workers."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait()


class Page:
    """Lines that are refreshed on a terminal; elsewhere the first of them, once a second."""

    def __init__(self) -> None:
        self._height = 0
        self._next = 0.0

    def show(self, lines: list[str], *, now: bool = False) -> None:
        """Show the page as it is now."""
        if sys.stdout.isatty():
            print(f"\033[{self._height}A" * bool(self._height) + "".join(f"\033[2K{line}\n" for line in lines), end="")
            self._height = len(lines)
        elif now or time.monotonic() >= self._next:
            print(lines[0], flush=True)
            self._next = time.monotonic() + 1


def page_of(counts: dict[str, int], fleet: Fleet) -> list[str]:
    """The counts of threads and steps, then a line for each worker."""
    executions = fleet.executions()
    mine = Counter(process for _, _, process in executions)
    states = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return [
        f"threads: {states}; steps executed: {len(executions)}; kills: {len(fleet.killed)}",
        *(
            f"worker {number}: process {worker.pid}, {mine[worker.pid]} steps"
            for number, worker in enumerate(fleet.workers, 1)
        ),
    ]


def check_recorded(store: holdfast.Store, threads: list[str]) -> int:
    """Count the recorded steps. Raises `SystemExit` unless each thread is complete and has each step once."""
    count = 0
    for thread_id in threads:
        newest = store.latest(thread_id)
        keys = [step.metadata["key"] for step in newest.steps] if newest else []
        if store.outcome(thread_id).status != "complete" or len(keys) != STEPS or len(set(keys)) != STEPS:
            raise SystemExit(f"{thread_id} is {store.outcome(thread_id).status}, and has the steps {keys}")
        count += len(keys)
    return count


def check_executed(executions: list[Execution], killed: set[int]) -> int:
    """Count the repeated executions. Raises `SystemExit` unless the earlier one of each was in a killed worker."""
    earlier: dict[tuple[str, str], int] = {}
    interrupted: Counter[int] = Counter()
    for thread, step, process in executions:
        before = earlier.get((thread, step))
        if before is not None:
            interrupted[before] += 1
        earlier[thread, step] = process
    for process, count in interrupted.items():
        if process not in killed or count > CONCURRENCY:
            raise SystemExit(f"{count} steps of process {process} were executed again; killed were {sorted(killed)}")
    return interrupted.total()


@contextmanager
def store_url(given: str | None, directory: Path) -> Iterator[str]:
    """The store that was given, else a private PostgreSQL server, else a SQLite file."""
    if given:
        yield given
    elif program("initdb"):
        print("store: a private PostgreSQL server, removed at the end")
        with private_server() as url:
            yield url
    else:
        print("store: a SQLite file, because PostgreSQL is not installed; removed at the end")
        yield str(directory / "fleet.db")


def run(url: str, directory: Path, thread_count: int, seconds: float) -> None:
    """Submit the threads, run the fleet until they are complete, and check what it did."""
    namespace, threads = f"fleet-{uuid4().hex[:8]}", [f"report-{number}" for number in range(thread_count)]
    with holdfast.open(url, namespace=namespace) as store:
        for thread_id in threads:
            store.submit("report", thread_id, (f"kelp {thread_id}",))
        fleet, page = Fleet(url, namespace, directory / "executed"), Page()
        kill_at = time.monotonic() + seconds
        try:
            while (counts := store.counts()).keys() & {"queued", "working"}:
                page.show(page_of(counts, fleet))
                fleet.check_alive()
                if time.monotonic() >= kill_at:
                    fleet.kill_one()
                    kill_at = time.monotonic() + seconds * random.uniform(0.5, 1.5)
                time.sleep(0.1)
        finally:
            fleet.end()
        page.show(page_of(counts, fleet), now=True)
        recorded, again = check_recorded(store, threads), check_executed(fleet.executions(), fleet.killed)
    print(f"recorded: {recorded} steps, {STEPS} in each of {thread_count} threads, none twice")
    print(f"executed: {recorded} steps, and {again} again, which {len(fleet.killed)} killed workers had begun")
    print("each step once")


def main() -> None:
    """Run the fleet on the store that was asked for."""
    parser = argparse.ArgumentParser(description="Run three workers, kill one every few seconds, and check each step.")
    parser.add_argument("--store", default=os.environ.get("HOLDFAST_STORE"), help="the URL of a store")
    parser.add_argument("--threads", type=int, default=300, help="how many threads to run")
    parser.add_argument("--every", type=float, default=3, metavar="SECONDS", help="how often to kill a worker")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory, store_url(given.store, Path(directory)) as url:
        run(url, Path(directory), given.threads, given.every)


if __name__ == "__main__":
    main()
