"""A process that writes until it is killed: run as a script, told what to do on its standard input.

It forks a child for each line it reads (`kind of writer`, `thread id`), so that a round costs no new interpreter. What
a child has been promised it writes to standard output, a line for each, before it does anything else; when the child
is dead, `dead` follows.
"""

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from holdfast import sync


def state_at(number: int) -> dict[str, Any]:
    """The state that is saved as checkpoint `number`: small changes, large ones, and a growing list."""
    return {
        "n": number,
        "log": [f"entry {index}" for index in range(number)],
        "large": str(number // 3) * 3000,
        "text": "x" * 200 + str(number % 7),
    }


def tell(*words: object) -> None:
    """One line to whoever started us, in one write, so that no line is ever half there."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def honest(store: sync.Store, thread_id: str) -> Iterator[int]:
    """Saves, and then says so."""
    for number in count(1):
        store.save(thread_id, state_at(number))
        yield number


def boasting(store: sync.Store, thread_id: str) -> Iterator[int]:
    """Says so, and then saves: a broken writer."""
    for number in count(1):
        yield number
        store.save(thread_id, state_at(number))


def pruning(store: sync.Store, thread_id: str) -> Iterator[int]:
    """Saves, and prunes every now and then."""
    retention = sync.Retention(keep_last=4)
    for number in honest(store, thread_id):
        yield number
        if number % 5 == 0:
            store.prune(retention)


def contending(store: sync.Store, thread_id: str) -> Iterator[int]:
    """Thirty saves to a thread that others write to as well; each says in its state who wrote it."""
    for turn in range(30):
        yield store.save(thread_id, {"by": os.getpid(), "turn": turn, "padding": "x" * 300}).seq


def appending(store: sync.Store, thread_id: str) -> Iterator[int]:
    """Thirty appends to a list that others append to as well."""
    for turn in range(30):
        yield store.append(thread_id, "list", [os.getpid(), turn]).seq


WRITERS: dict[str, Callable[[sync.Store, str], Iterator[int]]] = {
    "honest": honest,
    "boasting": boasting,
    "pruning": pruning,
    "contending": contending,
    "appending": appending,
}


def write(url: str, kind: str, thread_id: str) -> None:
    """What a child does, until it is killed."""
    with sync.open(url, durability="process") as store:
        for number in WRITERS[kind](store, thread_id):
            tell("saved", number)


def main() -> None:
    """Fork a child for each line."""
    for line in sys.stdin:
        kind, _, thread_id = line.rstrip("\n").partition(" ")
        child = os.fork()
        if not child:
            status = 1
            try:
                write(sys.argv[1], kind, thread_id)
                status = 0
            finally:
                os._exit(status)
        tell("child", child)
        _, status = os.waitpid(child, 0)
        tell("dead", os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
