"""A process that makes one save, to be struck at one of its system calls: it tells how the save ended, if it can."""

import os
import sys
from random import Random

from holdfast import sync

SECOND = {"n": 2, "text": "x" * 9000, "grows": Random(2).randbytes(9000)}


def main(url: str, writer: str) -> None:
    """Open the store, save the second checkpoint, and say what came of it; a boaster says so first."""
    if writer == "boasting":
        os.write(1, b"saved")
    try:
        store = sync.open(url, durability="durable")
        store.save("t", SECOND)
        if writer == "closing":
            store.close()
        outcome = "saved"
    except sync.HoldfastError as error:
        outcome = type(error).__name__
    if writer != "boasting":
        os.write(1, outcome.encode())
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
