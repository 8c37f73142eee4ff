"""What every program here shares: the steps it does, and how it tells that it came to its first new one.

python PROGRAM.py prepare DIRECTORY COUNT    a thread of COUNT finished steps, left unfinished
python PROGRAM.py resume DIRECTORY COUNT     goes on with it in a new process: one more step, told, and no clean end
"""

import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import NoReturn

TEXT = "the customer wrote again and asked where the parcel was; the agent looked it up and noted what it had found. "


def result_of(index: int) -> dict[str, object]:
    """A step's result, about 500 bytes."""
    return {"index": index, "tool": "search_orders", "content": f"{index}: {TEXT * 4}"}


class Clock:
    """The moments of one resume."""

    def __init__(self) -> None:
        self.called = self.entered = perf_counter()

    def enter(self) -> None:
        """The body begins, or for the first time is there again."""
        self.entered = perf_counter()

    def tell(self) -> NoReturn:
        """The first new step is stored. Say when, and die as a killed process does."""
        now = perf_counter()
        os.write(1, f"{now - self.called} {self.replayed - self.entered}\n".encode())
        os._exit(0)

    def replay_ends(self) -> None:
        """All that was recorded has been returned."""
        self.replayed = perf_counter()

    replayed = 0.0


def main(prepare: Callable[[str, int], None], resume: Callable[[str, int], None]) -> None:
    """Do what the command line says."""
    action, directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    {"prepare": prepare, "resume": resume}[action](directory, count)
