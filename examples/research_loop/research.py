"""Research a question offline: plan, search in parallel, plan again, write a report, and send it last.

    python research.py                      # runs to its end; run it again, and nothing is done twice
    python research.py --crash "search"     # is killed in the first search; run it again without --crash

Everything that the outside sees is a line in outside.log: the model calls, the searches and the report that is sent.
"""

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import holdfast.sync as holdfast

LIBRARY = {
    "kelp growth": "Giant kelp grows up to 60 cm a day.",
    "kelp habitat": "Kelp forests need cold, clear water and rock to hold on to.",
    "kelp holdfast": "A holdfast is the part that anchors kelp to the rock.",
    "kelp storms": "In storms the holdfast decides whether the kelp survives.",
}
CRASH_AT = ""


def outside(line: str) -> None:
    """Act on the world: write a line that survives this process, and die there if asked to."""
    with Path("outside.log").open("a") as log:
        log.write(line + "\n")
    if CRASH_AT and line.startswith(CRASH_AT):
        os.kill(os.getpid(), signal.SIGKILL)


def plan(loop: holdfast.Loop) -> list[Any]:
    """Plan: a real one would ask a model. With findings at hand the second plan is to go deeper and write."""
    outside(f"plan after {len(loop.results)} results")
    if not loop.results:
        return [["kelp growth", "kelp habitat", "kelp holdfast"]]  # a list: searched in parallel
    return ["kelp storms", "write"]


def execute(loop: holdfast.Loop, step: str) -> str:
    """Do one step. Searches may run twice after a crash; the report is only put into the outbox here."""
    if step == "write":
        report = " ".join(text for found in loop.results for text in found)
        loop.call("send_report", "ana@example.org", report)
        return report
    return str(loop.call("search", step))


def observe(_loop: holdfast.Loop, step: Any, result: Any) -> list[str]:
    """Keep what was found as a list, whether one search found it or several."""
    return result if isinstance(step, list) else [result]


def reflect(loop: holdfast.Loop) -> holdfast.LoopState | None:
    """Plan again after the first searches; then follow the plan."""
    outside(f"reflect on {len(loop.results)} results")
    return holdfast.LoopState.PLANNING if len(loop.results) == 1 else None


def search(topic: str) -> str:
    """Search the library: a plain tool, which may be called again."""
    outside(f"search {topic}")
    return LIBRARY[topic]


def send_report(to: str, report: str, idempotency_key: str) -> str:
    """Send the report: deferred, so it happens after every decision, and with a key that a mail service can check."""
    outside(f"send to {to} with key {idempotency_key}: {len(report)} characters")
    return "sent"


TOOLS = [search, holdfast.tool(send_report, defer=True)]


def main() -> None:
    """Drive the loop: a new one, or the one that an earlier process left."""
    global CRASH_AT  # noqa: PLW0603  a switch of this program
    parser = argparse.ArgumentParser(description="Research a question with a loop that survives kill -9.")
    parser.add_argument("--crash", default="", metavar="TEXT", help="die at the first line that starts with TEXT")
    parser.add_argument("--store", default="research.db", help="where the loop is kept")
    given = parser.parse_args()
    CRASH_AT = given.crash
    with holdfast.open(given.store) as store:
        loop = holdfast.Loop(
            "What decides whether kelp survives?",
            plan=plan,
            execute=execute,
            observe=observe,
            reflect=reflect,
            tools=TOOLS,
            store=store,
            thread_id="kelp",
        )
        report = loop.drive()[-1][0]
    print(f"{loop.state}: {report}")


if __name__ == "__main__":
    main()
