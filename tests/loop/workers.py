"""A real process that drives a loop of ten steps with effects: killed at a chosen moment, or at none."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast import sync

THREAD = "report"


class World:
    """The outside: each call is a line in a file that survives its caller."""

    def __init__(self, log: Path, fatal: str) -> None:
        self._log = log
        self._fatal = fatal

    def note(self, line: str) -> None:
        """Write a line; die if it is the fatal one."""
        with self._log.open("a") as file:
            file.write(f"{line}\n")
        if line.split("|", maxsplit=1)[0] == self._fatal:
            self._fatal = ""
            os.kill(os.getpid(), signal.SIGKILL)

    def plan(self, _: Any) -> list[str]:
        """Ten steps."""
        self.note("plan")
        return [f"step{number}" for number in range(10)]

    def execute(self, loop: sync.Loop, step: str) -> str:
        """Do a step: one effect, and one that is deferred."""
        self.note(f"begin {step}")
        loop.call("mail", step)
        paid = loop.call("pay", step)
        self.note(f"end {step}")
        return f"{step} {paid}"

    def observe(self, _loop: sync.Loop, step: str, result: str) -> str:
        """Keep the result."""
        self.note(f"observe {step}")
        return result

    def reflect(self, loop: sync.Loop) -> None:
        """Decide to continue."""
        self.note(f"reflect {loop.cursor}")

    def pay(self, step: str, idempotency_key: str) -> str:
        """An effect."""
        self.note(f"pay {step}|{idempotency_key}")
        return "paid"

    def mail(self, step: str, idempotency_key: str) -> str:
        """A deferred effect."""
        self.note(f"mail {step}|{idempotency_key}")
        return "sent"


def main() -> None:
    """Drive the loop."""
    url, log, fatal = sys.argv[1:]
    world = World(Path(log), fatal)
    with sync.open(url, durability="process") as store:
        loop = sync.Loop(
            "ten steps",
            plan=world.plan,
            execute=world.execute,
            observe=world.observe,
            reflect=world.reflect,
            tools=[sync.tool(world.pay, effect=True), sync.tool(world.mail, defer=True)],
            store=store,
            thread_id=THREAD,
        )
        sys.stdout.write(f"{len(loop.drive())} {loop.state}\n")


if __name__ == "__main__":
    main()
