"""kill -9 of a writing process, at any moment: every acknowledged save is there, and at most one more."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import children
from children import state_at
from holdfast import sync
from holdfast.testing.exact import assert_exact
from kinds import open_store, url_of
from rounds import rounds

ROUNDS = rounds(20, 50)

pytestmark = pytest.mark.faults


class Victim:
    """Writers on one store, killed one after the other."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, children.__file__, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def killed(self, writer: str, thread_id: str, after: int, spin: int) -> int:
        """Let a writer save to a thread, kill it after some acknowledgements; returns how many there were ."""
        assert self._process.stdin
        self._process.stdin.write(f"{writer} {thread_id}\n")
        self._process.stdin.flush()
        child, saved = 0, 0
        for word, number in self._lines():
            if word == "dead":
                return saved
            if word == "child":
                child = number
            else:
                saved = number
            if child and saved >= after:
                for _ in range(spin):
                    pass
                os.kill(child, signal.SIGKILL)
                after = sys.maxsize
        raise AssertionError("the writers' parent died")

    def _lines(self) -> Iterator[tuple[str, int]]:
        assert self._process.stdout
        for line in self._process.stdout:
            word, _, number = line.partition(" ")
            yield word.strip(), int(number or 0)

    def close(self) -> None:
        self._process.communicate()


def run_rounds(kind: str, directory: Path, writer: str, rounds: int) -> int:
    """Kill a writer again and again on a store in that directory."""
    return kill_repeatedly(url_of(kind, directory), lambda: open_store(kind, directory), writer, rounds)


def kill_repeatedly(
    url: str, opened: Callable[[], sync.Store], writer: str, rounds: int, most_saves: int = 25, most_spins: int = 30_000
) -> int:
    """Kill a writer again and again on one store; raises if a promise was broken. Returns the number of saves seen."""
    random, victim, total = Random(7), Victim(url), 0
    try:
        for number in range(rounds):
            thread_id = f"round {number}"
            saved = victim.killed(writer, thread_id, random.randrange(most_saves), random.randrange(most_spins))
            with opened() as store:
                _is_all_there(store, thread_id, saved, kept=saved if writer != "pruning" else 1)
                if number % 10 == 9:
                    report = store.verify()
                    assert report.ok, report.problems
            total += saved
    finally:
        victim.close()
    return total


def _is_all_there(store: sync.Store, thread_id: str, saved: int, kept: int) -> None:
    latest = store.latest(thread_id)
    newest = latest.seq if latest else 0
    assert saved <= newest <= saved + 1, f"{saved} were acknowledged, {newest} are there"
    for seq in range(newest - kept + 1, newest + 1):
        if seq > 0:
            assert_exact(state_at(seq), store.get(thread_id, seq).state, f"checkpoint {seq}")
    if newest:
        # What a client sent before it died may still be made by its server, but only once.
        assert newest + 1 <= store.append(thread_id, "log", "after the crash").seq <= saved + 2


def test_every_acknowledged_save_survives_kill_9(disk_kind: str, tmp_path: Path) -> None:
    assert run_rounds(disk_kind, tmp_path, "honest", ROUNDS) > ROUNDS


def test_kill_9_in_the_midst_of_a_prune_leaves_a_sound_store(disk_kind: str, tmp_path: Path) -> None:
    assert run_rounds(disk_kind, tmp_path, "pruning", rounds(8, 20)) > 8


def test_a_writer_that_acknowledges_before_it_saves_is_found_out(disk_kind: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="were acknowledged"):
        run_rounds(disk_kind, tmp_path, "boasting", 50)
