#!/usr/bin/env python3
"""A process is killed in mid-thread, and nothing that was acknowledged is lost. Run it with `make demo`.

A little research agent appends its steps to a thread in a SQLite file. It is killed with SIGKILL while it writes; then
its thread is checked, restored, continued by another process, forked, compared and verified. The file is left behind.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import holdfast.sync as holdfast

DATABASE = Path("demo/agents.db")
THREAD = "kelp"
FORK = "kelp-ask-a-diver"
KILL_AFTER = 7
LAST_STEP = 200
PLAN = ["search", "read", "compare", "write"]
NEW_PLAN = ["search", "ask a diver", "compare", "write"]


# The agent: a process of its own


def work(last_step: int, reports: Connection) -> None:
    """Append one step after the other, from where the thread stands, and report each once it is acknowledged."""
    with holdfast.open(DATABASE) as store:
        checkpoint = store.latest(THREAD)
        if checkpoint is None:
            checkpoint = store.save(THREAD, {"question": "What holds kelp in a storm?", "plan": PLAN, "steps": []})
        for number in range(len(checkpoint.state["steps"]) + 1, last_step + 1):
            store.append(THREAD, "steps", research(number))
            reports.send(number)  # the append has returned: this step is safe


def research(number: int) -> dict[str, Any]:
    """What the agent finds out in a step. The same number gives the same step, so that it can be compared later."""
    pages = range(number * 5, number * 5 + 5)
    found = [f"Page {page}: haptera of {page % 13} cm hold against {page * 7 % 90} newtons of drag." for page in pages]
    return {"step": number, "tool": PLAN[(number - 1) % len(PLAN)], "found": found}


def agent(last_step: int) -> tuple[multiprocessing.process.BaseProcess, Iterator[int]]:
    """A new process that works on the thread, and its reports as they come in, until it ends."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(last_step, sender))
    process.start()
    sender.close()  # the child has the only one now: when it dies, the reports end
    return process, reports_of(receiver)


def reports_of(receiver: Connection) -> Iterator[int]:
    """The numbers that were sent, until nobody is left to send any."""
    try:
        while True:
            yield receiver.recv()
    except (EOFError, OSError):  # OSError: killed in the middle of a report
        return


# The demo


def main() -> int:
    """Run the demo; 1 if anything that was acknowledged is missing."""
    parser = argparse.ArgumentParser(description="A writer is killed; its thread is restored, forked and compared.")
    parser.add_argument("--json", action="store_true", help="print one summary document instead")
    screen = Screen(quiet=parser.parse_args().json)
    started = time.monotonic()
    make_room()
    summary = killed(screen) | continued(screen)
    with holdfast.open(DATABASE) as store:
        summary |= forked(store, screen) | checked(store, screen)
    summary |= weighed(summary.pop("full_copies"), screen)
    summary["seconds"] = round(time.monotonic() - started, 1)
    lost = bool(summary["missing"]) or not (summary["whole"] and summary["verified"])
    if screen.quiet:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        farewell(screen, lost=lost)
    return 1 if lost else 0


def make_room() -> None:
    """Begin with an empty place."""
    DATABASE.parent.mkdir(exist_ok=True)
    for file in DATABASE.parent.glob(DATABASE.name + "*"):
        file.unlink()


def killed(screen: "Screen") -> dict[str, Any]:
    """Kill the agent while it writes, and count what is there."""
    screen.title("A process works on a thread, and is killed")
    process, reports = agent(sys.maxsize)
    acknowledged = 0
    for acknowledged in reports:
        if acknowledged <= KILL_AFTER:
            screen.line(f"step {acknowledged} acknowledged", research(acknowledged)["tool"])
        if acknowledged == KILL_AFTER:
            process.kill()
    process.join()
    if acknowledged < KILL_AFTER:
        sys.exit(f"the agent ended by itself after step {acknowledged}, with exit code {process.exitcode}")
    screen.line("SIGKILL", f"while it went on writing; it had reported {acknowledged} steps", bad=True)

    with holdfast.open(DATABASE) as store:
        newest = store.latest(THREAD)
        stored = newest.state["steps"] if newest else []
        early = store.get(THREAD, 1 + 3)  # checkpoint 1 is the empty thread, and each step is one more
    missing = [number for number in range(1, acknowledged + 1) if research(number) not in stored]
    screen.line("found in the store", f"{len(stored)} steps; missing of those reported: {missing or 'none'}")
    screen.line("restored", f"checkpoint {early.id} has {len(early.state['steps'])} steps")
    return {
        "exit_code": process.exitcode,
        "acknowledged": acknowledged,
        "stored": len(stored),
        "missing": len(missing),
    }


def continued(screen: "Screen") -> dict[str, Any]:
    """Let another process go on where the first one stopped."""
    screen.title("Another process continues the thread")
    process, reports = agent(LAST_STEP)
    steps = list(reports)
    process.join()
    if not steps or steps[-1] != LAST_STEP:
        sys.exit(f"the second agent ended early, with exit code {process.exitcode}")
    with holdfast.open(DATABASE) as store:
        newest = store.latest(THREAD)
    is_whole = newest is not None and newest.state["steps"] == [research(number + 1) for number in range(LAST_STEP)]
    screen.line(f"steps {steps[0]} to {LAST_STEP}", "every step there once, in order" if is_whole else "NOT WHOLE")
    return {"continued_at": steps[0], "steps": LAST_STEP, "whole": is_whole}


def forked(store: holdfast.Store, screen: "Screen") -> dict[str, Any]:
    """Go back to step 3, change the plan, and see what differs."""
    screen.title("Back to step 3, with another plan")
    early = store.get(THREAD, 1 + 3)
    fork = store.fork(early.id, to=FORK, state={**early.state, "plan": NEW_PLAN})
    checkpoint = store.append(fork, "steps", {"step": 4, "tool": "ask a diver", "found": "It is the grip."})
    screen.line("forked", f"{early.id} -> thread {fork}")
    changes = store.diff(early.id, checkpoint.id)
    for change in changes:
        path = "".join(f"[{key!r}]" for key in change.path)
        screen.line(change.kind, f"state{path}: {short(change.old)} -> {short(change.new)}")
    return {"fork": fork, "changes": [list(change.path) for change in changes]}


def checked(store: holdfast.Store, screen: "Screen") -> dict[str, Any]:
    """Read and verify everything, and restore every checkpoint there is."""
    screen.title("The store is verified, and every checkpoint is complete")
    report = store.verify()
    screen.line("verified", f"{report.checked} records, {len(report.problems)} problems")
    copies = [holdfast.codec.encode(store.get(THREAD, seq).state) for seq in range(1, LAST_STEP + 2)]
    screen.line("restored", f"all {len(copies)} checkpoints of {THREAD}")
    return {"verified": report.ok, "records": report.checked, "full_copies": sum(map(len, copies))}


def weighed(full_copies: int, screen: "Screen") -> dict[str, Any]:
    """Compare the file with what full copies of every checkpoint would take."""
    on_disk = sum(file.stat().st_size for file in DATABASE.parent.glob(DATABASE.name + "*"))
    screen.line("on disk", f"{on_disk / 1e3:,.0f} KB; full copies of every checkpoint: {full_copies / 1e3:,.0f} KB")
    return {"bytes_on_disk": on_disk, "bytes_of_full_copies": full_copies}


def farewell(screen: "Screen", *, lost: bool) -> None:
    """Say how it went, and what to try next."""
    if lost:
        screen.line("LOST", "something that was acknowledged is missing or damaged: this is a bug", bad=True)
        return
    screen.title(f"Yours to look at: {DATABASE}")
    screen.text(
        f"""
  import holdfast.sync as holdfast

  store = holdfast.open({str(DATABASE)!r})
  print([thread.thread_id for thread in store.threads()])
  print([info.id for info in store.history({THREAD!r}, limit=3)])
  print(store.latest({FORK!r}).state["plan"])

  Without holdfast:  {os.path.relpath(sys.executable)} docs/examples/read_store.py {DATABASE} {THREAD}
"""
    )


# The terminal


class Screen:
    """Compact lines, in colour on a terminal only."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._count = 0

    def title(self, text: str) -> None:
        """A numbered heading."""
        self._count += 1
        self.text(f"\n{self._paint('1', f'{self._count}. {text}')}\n")

    def line(self, label: str, text: str, *, bad: bool = False) -> None:
        """A label and what there is to say."""
        self.text(f"   {self._paint('31' if bad else '32', f'{label:<21}')} {text}\n")

    def text(self, text: str) -> None:
        """Anything."""
        if not self.quiet:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _paint(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._colour else text


def short(value: object) -> str:
    """A value in a few words."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 48 else f"{text[:45]}..."


if __name__ == "__main__":
    sys.exit(main())
