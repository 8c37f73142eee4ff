"""Real processes that hold sessions: run as a script, with a store, a scene and what it needs."""

import os
import signal
import sys
import time
from pathlib import Path

from holdfast import sync
from holdfast.sync import Orchestrator, UsageSnapshot

THREAD = "user-42:essay"


def call_model(log: Path, text: str) -> str:
    """What is paid for: each call is a line in a file that survives its caller."""
    with log.open("a") as file:
        file.write(f"{text}\n")
    return f"answer to {text}"


def tell(what: object) -> None:
    """A line to whoever started us."""
    sys.stdout.write(f"{what}\n")


def one_turn(store: sync.Store, log: Path) -> None:
    """One turn under a key that others have too; slow enough for them to meet."""

    def turn() -> str:
        time.sleep(0.05)
        return call_model(log, "the only call")

    with Orchestrator("writer", "draft", store).session(THREAD) as session:
        tell(session.run_turn(turn, idempotency_key="request-1").value)


def many_turns(store: sync.Store, log: Path, count: int, fatal: int) -> None:
    """So many turns of one token; killed within turn `fatal`, after its call was made."""
    with Orchestrator("writer", "draft", store, max_turns=count, budget_tokens=count).session(THREAD) as session:
        for number in range(count):

            def turn(number: int = number) -> str:
                text = call_model(log, str(number))
                if number == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
                return text

            session.run_turn(turn, usage=UsageSnapshot(output_tokens=1), idempotency_key=str(number))
        tell(session.summary())


def main() -> None:
    """Play a scene."""
    url, scene, log, *numbers = sys.argv[1:]
    with sync.open(url, durability="process") as store:
        if scene == "one":
            one_turn(store, Path(log))
        else:
            many_turns(store, Path(log), *map(int, numbers))


if __name__ == "__main__":
    main()
