"""`python -m benchmarks.simulation`: what one PostgreSQL server carries, computed from measured constants.

Nothing is run. The constants are those of `python -m benchmarks --only workers`; each has an
option, to compute with yours.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

OPEN_THREADS = (1_000, 10_000, 100_000, 1_000_000)
HEADROOM = 0.7
"""The share of the processors that a database is planned for: the rest is for vacuum, checkpoints and bursts."""
LOOKS_PER_SECOND = 1.2
"""Of an idle worker: one a second for its queue, and one in five seconds for the schedules."""


@dataclass(frozen=True)
class Constants:
    """Measured on the slowest machine at hand, beside other load: see RESULTS.md."""

    thread_ms: float = 3.85  # of the database's processor, for a thread of one step, from its claim to its end
    submit_ms: float = 0.28  # likewise, for its submit, in batches
    step_ms: float = 0.71  # likewise, for each further step
    look_ms: float = 0.53  # likewise, for an idle look
    look_growth: float = 0.055  # how much longer a look takes with ten times the open threads, as a share
    worker_ms: float = 4.4  # of the worker's processor, for a thread of one step
    bytes_per_thread: float = 735  # of an open thread in the tables and indexes of heads and agenda
    row_bytes: float = 573  # of each recorded step, with its index, without what it returned
    cores: float = 8  # of the server


@dataclass(frozen=True)
class Load:
    """A service: how many threads are open, how long each one is, how many steps it has, how many workers look."""

    open_threads: int
    steps: int
    minutes: float
    workers: int

    @property
    def threads_per_second(self) -> float:
        """As many begin as end: by Little's law, the open ones divided by how long each is open."""
        return self.open_threads / (self.minutes * 60)


def database_cores(constants: Constants, load: Load) -> float:
    """How many processors of the database are busy."""
    per_thread = constants.submit_ms + constants.thread_ms + constants.step_ms * (load.steps - 1)
    return (load.threads_per_second * per_thread + load.workers * LOOKS_PER_SECOND * look_ms(constants, load)) / 1000


def look_ms(constants: Constants, load: Load) -> float:
    """An index is as deep as the logarithm of its size."""
    tens = max(0, len(str(load.open_threads)) - 4)
    return constants.look_ms * (1 + constants.look_growth) ** tens


def stored_gigabytes(constants: Constants, load: Load) -> float:
    """What the open threads occupy, half of whose steps are done."""
    return load.open_threads * (constants.bytes_per_thread + constants.row_bytes * load.steps / 2) / 1e9


def most_threads_per_second(constants: Constants) -> float:
    """Of one step, with nothing else to do."""
    return constants.cores * HEADROOM * 1000 / (constants.thread_ms + constants.submit_ms)


def table(constants: Constants, steps: int, minutes: float, workers: int) -> str:
    """One line for each number of open threads."""
    lines = [
        "| open threads | begin and end per s | steps per s | busy cores of the database | its time of a look | disk |",
        "|---|---|---|---|---|---|",
    ]
    for count in OPEN_THREADS:
        load = Load(count, steps, minutes, workers)
        rate = load.threads_per_second
        cells = (
            f"{count:,}",
            f"{rate:,.1f}",
            f"{rate * steps:,.0f}",
            f"{database_cores(constants, load):.2f}",
            f"{look_ms(constants, load):.2f} ms",
            f"{stored_gigabytes(constants, load):.3f} GB",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    for each in fields(Constants):
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=float, default=each.default, dest=each.name)
    parser.add_argument("--steps", type=int, default=20, help="steps of a thread (20)")
    parser.add_argument("--minutes", type=float, default=60, help="for how long a thread is open, mostly waiting (60)")
    parser.add_argument("--workers", type=int, default=100, help="worker processes (100)")
    given = vars(parser.parse_args())
    shape = {name: given.pop(name) for name in ("steps", "minutes", "workers")}
    constants = Constants(**given)
    print(table(constants, **shape))
    most, per_core = most_threads_per_second(constants), 1000 / constants.worker_ms
    print(f"\nAt most {most:,.0f} one-step threads per second on {constants.cores:g} cores of the database.")
    print(f"A core of a worker runs {per_core:,.0f} of them per second: {most / per_core:,.1f} cores of workers.")


if __name__ == "__main__":
    main()
