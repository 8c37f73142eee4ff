"""Random kills: an agent with many threads is killed again and again, and at the end everything is counted."""

import time
from collections import Counter
from random import Random
from typing import Any

import msgspec

import holdfast.sync as holdfast
from holdfast.demo.children import Child, World
from holdfast.demo.payments import read_ledger
from holdfast.demo.sabotage import Snapshot
from holdfast.demo.stage import Stage, counted

MOST_EVENTS = 60
"""A process lives for at most so many events: a few tickets, on a slow machine as on a fast one."""
LONGEST_PAUSE = 0.01
"""And so many seconds more, so that it dies between events too."""
WORST_EVERY = 3
WAYS = ("recover", "again")
"""How a new process goes on: with `store.recover()`, or by just running the same functions again."""

ROWS = (
    ("threads", "unfinished_threads", "unfinished"),
    ("steps_acknowledged", "lost_steps", "lost steps"),
    ("steps_begun_again", "", "they were under way when a process died"),
    ("refund_requests", "changed_keys", "with another key than before"),
    ("refunds", "repeated_effects", "repeated effects"),
    ("", "effects_without_record", "that only the ledger or only the store knows"),
    ("", "problems_in_the_store", "problems found in the store"),
)
"""What is counted, and beside it the number that has to be 0."""


class Kills(msgspec.Struct, frozen=True):
    """How to torture it."""

    count: int = 50
    seed: int = 1
    forgetful: bool = False
    """Put the store back to what it was before each life: a disk that lies, to see that the loss is found."""


def chaos(stage: Stage, world: World, kills: Kills) -> dict[str, Any]:
    """Kill it, count times; let a last process finish; count what was lost and what was done twice."""
    stage.say(f"An agent with many threads is killed {kills.count} times: at random moments (seed {kills.seed}),")
    stage.say("and every third time at the worst, right after a payment.")
    stage.say()
    record = Record()
    random = Random(kills.seed)  # noqa: S311  a schedule that can be repeated, not a secret
    for life in range(1, kills.count + 1):
        snapshot = Snapshot(world.store) if kills.forgetful else None
        with world.worker("chaos", WAYS[life % 2], str(life)) as worker:
            worker.wait_for("ready")
            _let_live(worker, world.payments, random, life)
            worker.kill_at_work()
        record.hear(worker.heard)
        if snapshot is not None:
            snapshot.put_back()
        stage.progress(f"{life} of {counted(kills.count, 'kill')}")
    stage.progress("")
    record.hear(world.done("finish").heard)
    world.payments.kill()  # then all that it said is heard
    summary = {"kills": kills.count, "seed": kills.seed, **record.compare(world)}
    _show(stage, summary)
    return summary


def _let_live(worker: Child, payments: Child, random: Random, life: int) -> None:
    """Wait for the moment of its death."""
    if life % WORST_EVERY == 0:
        payments.catch_up()
        payments.wait_for("booked")
        return
    worker.hear(random.randrange(MOST_EVENTS))
    time.sleep(random.uniform(0, LONGEST_PAUSE))


class Record:
    """What the processes said before they were killed: which steps were acknowledged, and which were begun."""

    def __init__(self) -> None:
        self.acknowledged: set[tuple[str, str]] = set()
        self.begun: Counter[tuple[str, str]] = Counter()
        self.executed_again = 0
        """Acknowledged steps that were begun once more: what a checkpoint has to prevent."""

    def hear(self, lines: list[dict[str, Any]]) -> None:
        """Take in what one process said."""
        for line in lines:
            if line["kind"] == "step_started":
                step = (line["thread"], line["step"])
                self.begun[step] += 1
                self.executed_again += step in self.acknowledged
            elif line["kind"] == "step_done":
                self.acknowledged.add((line["thread"], line["step"]))

    def compare(self, world: World) -> dict[str, Any]:
        """The count: against the store, and against the ledger of the payment service."""
        requests = world.payments.told("booked", "known")
        booked = Counter(entry["order"] for entry in read_ledger(world.ledger))
        with holdfast.open(world.store, namespace=world.namespace) as store:
            threads = _threads(store)
            kept = {thread_id: _steps(store, thread_id) for thread_id in threads}
            problems = len(store.verify().problems)
        recorded = {(thread_id, step.metadata["key"]) for thread_id, steps in kept.items() for step in steps}
        refunds = Counter(thread_id for thread_id, steps in kept.items() for each in steps if each.action == "refund")
        counts = {
            "threads": len(threads),
            "unfinished_threads": sum(info.status != "complete" for info in threads.values()),
            "steps_acknowledged": len(self.acknowledged),
            "lost_steps": len(self.acknowledged - recorded) + self.executed_again,
            "steps_begun_again": sum(count - 1 for count in self.begun.values()),
            "refund_requests": len(requests),
            "changed_keys": len({(line["order"], line["key"]) for line in requests}) - len(booked),
            "refunds": booked.total(),
            "repeated_effects": booked.total() - len(booked) + refunds.total() - len(refunds),
            "effects_without_record": len(booked.keys() ^ refunds.keys()),
            "problems_in_the_store": problems,
        }
        return {**counts, "ok": not any(counts[fault] for _, fault, _ in ROWS if fault)}


def _threads(store: holdfast.Store) -> dict[str, holdfast.ThreadInfo]:
    found: dict[str, holdfast.ThreadInfo] = {}
    page: holdfast.Page[holdfast.ThreadInfo] | None = store.threads(limit=500)
    while page is not None:
        found |= {info.thread_id: info for info in page}
        page = page.next_page()
    return found


def _steps(store: holdfast.Store, thread_id: str) -> list[holdfast.Step]:
    newest = store.latest(thread_id)
    return newest.steps if newest is not None else []


def _show(stage: Stage, summary: dict[str, Any]) -> None:
    for name, fault, words in ROWS:
        bad = bool(fault and summary[fault])
        amount = f"{summary[name]:,}" if name else ""
        stage.row(name.replace("_", " "), amount, f"{summary[fault]} {words}" if fault else words, bad=bad)
