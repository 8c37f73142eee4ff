"""A process that makes one save, to be struck at one of its system calls: it tells how the save ended, if it can."""

import os
import sys

from holdfast import sync


def main(url: str) -> None:
    """Open the store, save the second checkpoint, and say what came of it."""
    try:
        store = sync.open(url, durability="durable")
        store.save("t", {"n": 2, "text": "x" * 9000})
        outcome = "saved"
    except sync.HoldfastError as error:
        outcome = type(error).__name__
    os.write(1, outcome.encode())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
