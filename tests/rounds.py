"""How often the fault tests go round: a sample in an ordinary run, all of it HOLDFAST_ROUNDS times in `make faults`."""

import os

TIMES = int(os.environ.get("HOLDFAST_ROUNDS", "1"))


def rounds(sample: int, full: int) -> int:
    """Return `sample` in an ordinary run, and `full` times HOLDFAST_ROUNDS in `make faults`."""
    return sample if TIMES == 1 else full * TIMES


def points(sample: int) -> int | None:
    """At how many points a scenario is killed: a sample in an ordinary run, all of them in `make faults`."""
    return sample if TIMES == 1 else None


def size(sample: int, full: int) -> int:
    """How large a scene is: a sample in an ordinary run, `full` in `make faults`, whatever the number of rounds."""
    return sample if TIMES == 1 else full
