"""Random kills: an agent with many threads is killed again and again, and at the end everything is counted."""

import shutil
import time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

import holdfast.sync as holdfast
from holdfast.demo.children import Child, World
from holdfast.demo.payments import read_ledger
from holdfast.demo.stage import Stage
from holdfast.demo.worker import every_thread
from holdfast.stores.locations import locate

MOST_EVENTS = 60
"""A process lives for up to this many events: a few tickets, on a slow machine as on a fast one."""
LONGEST_PAUSE = 0.01
"""And up to this many seconds more, so that it dies between events too."""
WORST_EVERY = 3
WAYS = ("recover", "again")
"""How a new process resumes: with `store.recover()`, or by running the same functions again."""

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
    """How to kill the agent."""

    count: int = 50
    seed: int = 1
    forgetful: bool = False
    """Undo the writes of each life: a disk that loses them, to see that the loss is found."""


def chaos(stage: Stage, world: World, kills: Kills) -> dict[str, Any]:
    """Kill the agent, let a last process finish, and count what was lost and what was done twice."""
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
        record.add(worker.heard)
        if snapshot is not None:
            snapshot.restore()
        stage.progress(f"{life} of {kills.count} kills")
    stage.progress("")
    record.add(world.done("finish").heard)
    world.payments.kill()  # then all its lines are there
    summary = {"kills": kills.count, "seed": kills.seed, **record.compare(world)}
    for name, fault, words in ROWS:
        amount = f"{summary[name]:,}" if name else ""
        text = f"{summary[fault]} {words}" if fault else words
        stage.row(name.replace("_", " "), amount, text, bad=bool(fault and summary[fault]))
    return summary


def _let_live(worker: Child, payments: Child, random: Random, life: int) -> None:
    """Wait for the moment of the kill."""
    if life % WORST_EVERY == 0:
        payments.catch_up()
        payments.wait_for("booked")
        return
    worker.hear(random.randrange(MOST_EVENTS))
    time.sleep(random.uniform(0, LONGEST_PAUSE))


class Record:
    """Which steps the processes began, and which were acknowledged before they were killed."""

    def __init__(self) -> None:
        self.acknowledged: set[tuple[str, str]] = set()
        self.begun: Counter[tuple[str, str]] = Counter()
        self.executed_again = 0
        """Acknowledged steps that were begun once more: what a checkpoint has to prevent."""

    def add(self, lines: list[dict[str, Any]]) -> None:
        """Take in the lines of one process."""
        for line in lines:
            if line["kind"] == "step_started":
                step = (line["thread"], line["step"])
                self.begun[step] += 1
                self.executed_again += step in self.acknowledged
            elif line["kind"] == "step_done":
                self.acknowledged.add((line["thread"], line["step"]))

    def compare(self, world: World) -> dict[str, Any]:
        """Count, against the store and against the ledger of the payment service."""
        requests = world.payments.said("booked", "known")
        booked = Counter(entry["order"] for entry in read_ledger(world.ledger))
        with holdfast.open(world.store, namespace=world.namespace) as store:
            threads = list(every_thread(store))
            newest = {info.thread_id: store.latest(info.thread_id) for info in threads}
            problems = len(store.verify().problems)
        steps = [(thread_id, step) for thread_id, end in newest.items() if end is not None for step in end.steps]
        recorded = {(thread_id, step.metadata["key"]) for thread_id, step in steps}
        refunds = Counter(thread_id for thread_id, step in steps if step.action == "refund")
        counts = {
            "threads": len(threads),
            "unfinished_threads": sum(info.status != "complete" for info in threads),
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


class Snapshot:
    """The files of a store at one moment, while no process has it open."""

    def __init__(self, url: str) -> None:
        self._place = Path(locate(url)[1])
        self._copy = TemporaryDirectory(prefix="holdfast-snapshot-")
        for path in self._files():
            _copy(path, Path(self._copy.name) / path.name)

    def _files(self) -> list[Path]:
        """List a SQLite store's files, whose names begin with its own, or a file store's directory."""
        return list(self._place.parent.glob(f"{self._place.name}*"))

    def restore(self) -> None:
        """Put the files back, as if all later writes had been lost."""
        for path in self._files():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in Path(self._copy.name).iterdir():
            _copy(path, self._place.parent / path.name)
        self._copy.cleanup()


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
