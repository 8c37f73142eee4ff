"""Several processes on one store: every acknowledged save is there, and the log of each thread has no gap."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import children
from kinds import open_store, url_of
from patience import GIVE_UP_SECONDS

pytestmark = pytest.mark.processes

PROCESSES = 3
TURNS = 30


def run_together(url: str, kind: str, threads: list[str]) -> dict[int, list[int]]:
    """Start one process for each thread id, all at once; returns what each was acknowledged, by process id."""
    processes = [
        subprocess.Popen(
            [sys.executable, children.__file__, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in threads
    ]
    for process, thread_id in zip(processes, threads, strict=True):
        assert process.stdin
        process.stdin.write(f"{kind} {thread_id}\n")
        process.stdin.close()
        process.stdin = None
    return dict(_acknowledged(process) for process in processes)


def _acknowledged(process: "subprocess.Popen[str]") -> tuple[int, list[int]]:
    output, _ = process.communicate()
    child, seqs, exits = 0, [], []
    for line in output.splitlines():
        word, _, number = line.partition(" ")
        if word == "child":
            child = int(number)
        elif word == "saved":
            seqs.append(int(number))
        else:
            exits.append(int(number))
    assert exits == [0], "a writer failed"
    return child, seqs


def test_processes_that_save_to_one_thread_take_turns(disk_kind: str, tmp_path: Path) -> None:
    acknowledged = run_together(url_of(disk_kind, tmp_path), "contending", ["t"] * PROCESSES)
    assert sorted(seq for seqs in acknowledged.values() for seq in seqs) == list(range(1, PROCESSES * TURNS + 1))
    with open_store(disk_kind, tmp_path) as store:
        assert [info.seq for info in store.history("t", limit=1000)] == list(range(PROCESSES * TURNS, 0, -1))
        for process, seqs in acknowledged.items():
            assert seqs == sorted(seqs)
            for turn, seq in enumerate(seqs):
                state = store.get("t", seq).state
                assert (state["by"], state["turn"]) == (process, turn)
        assert store.verify().ok


def test_processes_that_append_to_one_list_lose_nothing(disk_kind: str, tmp_path: Path) -> None:
    acknowledged = run_together(url_of(disk_kind, tmp_path), "appending", ["t"] * PROCESSES)
    with open_store(disk_kind, tmp_path) as store:
        latest = store.latest("t")
    assert latest is not None
    items: list[Any] = latest.state["list"]
    assert len(items) == PROCESSES * TURNS
    for process in acknowledged:
        assert [turn for by, turn in items if by == process] == list(range(TURNS))


def test_processes_with_threads_of_their_own_do_not_hinder_each_other(disk_kind: str, tmp_path: Path) -> None:
    threads = [f"thread {number}" for number in range(PROCESSES)]
    acknowledged = run_together(url_of(disk_kind, tmp_path), "contending", threads)
    assert all(seqs == list(range(1, TURNS + 1)) for seqs in acknowledged.values())
    with open_store(disk_kind, tmp_path) as store:
        for thread_id in threads:
            assert {store.get(thread_id, seq).state["turn"] for seq in range(1, TURNS + 1)} == set(range(TURNS))
        assert sorted(info.thread_id for info in store.threads()) == threads


FORKING = """
import os, sys
from holdfast import sync

store = sync.open(sys.argv[1], durability="process")
store.save("t", {"by": "parent"})
read, write = os.pipe()
child = os.fork()
if not child:
    try:
        store.save("t", {"by": "child"})
        store.save("of the child", 1)
        assert store.latest("t").state == {"by": "child"}
    finally:
        os._exit(0)
os.waitpid(child, 0)
assert store.latest("t").state == {"by": "child"}, store.latest("t").state
store.save("t", {"by": "parent again"})
assert [store.get("t", seq).state["by"] for seq in (1, 2, 3)] == ["parent", "child", "parent again"]
assert store.latest("of the child").state == 1
assert store.verify().ok
store.close()
"""

FORKING_AWAITABLE = """
import asyncio, os, sys
import holdfast

store = holdfast.open(sys.argv[1], durability="process", inline=False)

async def save(by):
    await asyncio.gather(*(store.save(f"t{n}", {"by": by}) for n in range(8)))

asyncio.run(save("parent"))
child = os.fork()
if not child:
    status = 1
    try:
        asyncio.run(save("child"))
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

async def check():
    await save("parent again")
    for n in range(8):
        assert [(await store.get(f"t{n}", seq)).state["by"] for seq in (1, 2, 3)] == ["parent", "child", "parent again"]
    await store.close()

asyncio.run(check())
"""


@pytest.mark.parametrize("script", [FORKING, FORKING_AWAITABLE], ids=["blocking", "awaitable"])
def test_a_forked_child_can_use_its_parents_store(disk_kind: str, script: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, url_of(disk_kind, tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=GIVE_UP_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
