"""Values of a thread's journal are bounded one by one. What reads many of them holds one, or counts them first."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Limits, sync
from holdfast.codec import encode
from holdfast.history.entries import Answered, Asked
from holdfast.ports import run_blocking
from holdfast.records.errors import LimitExceeded
from holdfast.stores.writer import Intent
from patience import GIVE_UP_SECONDS

pytestmark = pytest.mark.large

COUNT = 6
LARGE: list[Any] = [{"a": 1}] * 300_000
"""Decoded, it takes 70 MB and more, within the limit for one value; its encoding takes 1 MB."""
START = """
import os, resource, sys
from holdfast import sync
from holdfast.cli import main
from holdfast.records.errors import LimitExceeded

path, bundle = sys.argv[1:]
store = sync.open(path)
store.save("warm", {"up": (1, 2)})
store.latest("warm").state
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGESIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20, used + 300 * 2**20))

def refused(read):
    try:
        read()
    except LimitExceeded as error:
        print(error)
"""
STEPS = """
newest = store.latest("t")
assert newest.state == {"small": 1}
assert newest.pending == []
assert len(newest.lazy_steps) == 6
assert len(newest.lazy_steps[1:][2].tool_output) == 300_000
refused(lambda: newest.steps)
with store.run("t", reopen=True) as run:
    for number in range(6):
        assert run.step(f"s{number}", lambda: "executed again") != "executed again"
assert store.verify().ok
store.export("t", bundle)
store.import_(bundle, "copy")
main(["--store", path, "show", "copy"], standalone_mode=False)
main(["--store", path, "diff", "copy@1", "copy@2"], standalone_mode=False)
"""
REQUESTS = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert list(store.requests(status=None)) == []
print(*(each.message for each in caught))
assert [request.name for request in store.requests()] == ["last"]
assert [request.name for request in store.latest("t").pending] == ["last"]
"""
TURNS = """
with store.session("t") as session:
    for number in range(6):
        assert len(session.run_turn(lambda: 0, idempotency_key=f"k{number}").value) == 300_000
    refused(lambda: session.turns)
    assert session.summary().turn_count == 6
"""


def printed_within_bounds(folder: Path, script: str) -> str:
    """What a process prints that may take 300 MB more; all values together would take 420."""
    command = [sys.executable, "-c", START + script, str(folder / "a.db"), str(folder / "bundle")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_thread_of_many_large_results_is_opened_resumed_shown_and_imported_in_the_memory_of_one(
    tmp_path: Path,
) -> None:
    with sync.open(tmp_path / "a.db") as store, store.run("t") as run:
        for number in range(COUNT):
            run.step(f"s{number}", lambda: LARGE)
        run.checkpoint({"small": 1})
    printed = printed_within_bounds(tmp_path, STEPS)
    assert "the list of all 6 steps of the thread would take more memory" in printed


def ask_much(store: sync.Store) -> None:
    payload, nothing = encode(LARGE), encode(None)
    asked = [Asked(str(number), b"", str(number), payload, (), 0, b"", 1) for number in range(COUNT)]
    answered = [Answered(number, None, nothing, "me", "", 1) for number in range(1, COUNT + 1)]
    with store.run("t") as run:
        run_blocking(run._run._ledger.commit(run._run._ports, Intent(journal=True), *asked, *answered))
        run.checkpoint({})
        run.ask("last")


def test_many_large_requests_are_listed_only_if_they_are_asked_for(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db") as store, pytest.raises(sync.Suspended):
        ask_much(store)
    printed = printed_within_bounds(tmp_path, REQUESTS)
    assert "the list of 7 requests of 't' would take more memory" in printed


def test_many_large_turns_are_replayed_one_by_one(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db") as store, store.session("t") as session:
        for number in range(COUNT):
            session.run_turn(lambda: LARGE, idempotency_key=f"k{number}")
    assert "the list of all 6 turns of the thread would take more memory" in printed_within_bounds(tmp_path, TURNS)


def test_higher_limits_list_all_steps() -> None:
    with sync.open("memory:", limits=Limits(memory=2**30)) as store, store.run("t") as run:
        for number in range(COUNT):
            run.step(f"s{number}", lambda: LARGE)
        assert len(run.steps) == COUNT


def test_lower_limits_of_the_state_do_not_hide_steps() -> None:
    with sync.open("memory:", limits=Limits(memory=20_000)) as store, store.run("t") as run:
        run.step("s", lambda: list(range(10_000)))
        assert len(run.steps[0].tool_output) == 10_000
        assert run.steps == list(store.latest("t").lazy_steps)  # type: ignore[union-attr]
        with pytest.raises(LimitExceeded):
            run.checkpoint({"rows": list(range(10_000))})
