"""Forks: a child has locks of its own, whatever its parent's threads were doing, and whatever the parent does next."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores import sqlite_file
from holdfast.stores.pool import Pool
from holdfast.stores.sql import migrations
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.stores.sqlite_schema import FIRST
from kinds import open_store, url_of
from patience import GIVE_UP_SECONDS
from stores.test_file_processes import run_forked

pytestmark = pytest.mark.processes

PARENT_CLOSES = """
import os, sys
from holdfast import sync

store = sync.open(sys.argv[1], durability="process")
store.save("t", {"n": 1})
closed, said = os.pipe(), os.pipe()
child = os.fork()
if not child:
    status = 1
    os.close(closed[1])
    try:
        store.save("t", {"n": 2})
        os.write(said[1], b"saved")
        os.read(closed[0], 1)
        for number in range(3, 8):
            assert store.save("t", {"n": number}).seq == number
        os.write(said[1], b"saved")
        os.read(closed[0], 1)
        status = 0
    finally:
        os._exit(status)
os.read(said[0], 5)
store.close()
os.write(closed[1], b"x")
os.read(said[0], 5)
with sync.open(sys.argv[1]) as again:
    assert [info.seq for info in again.history("t")] == [7, 6, 5, 4, 3, 2, 1]
    assert again.save("t", "the parent again").seq == 8
os.write(closed[1], b"x")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""

AMID_READS_AND_WRITES = """
import faulthandler, os, sys, threading
from holdfast import sync

store = sync.open(sys.argv[1], durability="process")
store.save("t", {"n": 0})
done = threading.Event()

def work(name):
    number = 0
    while not done.is_set():
        number += 1
        store.save(name, {"n": number, "text": "x" * 300})
        assert store.latest(name).state["n"] == number
        store.history("t")

def use():
    store.save("t", {"by": os.getpid()})
    assert store.latest("t").state == {"by": os.getpid()}
    store.close()

threads = [threading.Thread(target=work, args=(name,)) for name in ("left", "right")]
for thread in threads:
    thread.start()
statuses = set()
for _ in range(30):
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(20, exit=True)
        status = 1
        try:
            use()
            status = 0
        finally:
            os._exit(status)
    statuses.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
for thread in threads:
    thread.join()
assert statuses == {0}, statuses
assert store.thread("t").seq == 31
assert store.verify().ok
"""


AMID_A_FIRST_SAVE = """
import os, signal, sys, threading, time
from holdfast import sync

signal.alarm(60)
store = sync.open(sys.argv[1], durability="process")
store.save("t", {"n": 0})
thread = threading.Thread(target=lambda: store.save("t", {"pair": (1, 2)}))
thread.start()
time.sleep(int(sys.argv[2]) / 1000)
child = os.fork()
if not child:
    signal.alarm(30)
    status = 1
    try:
        store.save("u", {"pair": (3, 4)})
        assert store.latest("u").state == {"pair": (3, 4)}
        status = 0
    finally:
        os._exit(status)
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert store.latest("t").state == {"pair": (1, 2)}
"""


def run_script(script: str, *arguments: str) -> None:
    """In a process of its own, and without coverage: its locks outlive a fork, and its child would wait for them."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GIVE_UP_SECONDS, env=environment)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 5, 9, 14])
def test_a_child_of_a_fork_amid_the_first_save_does_not_wait_for_ever(milliseconds: int, tmp_path: Path) -> None:
    """Nothing is imported for it, so no thread that the child does not have can hold the lock of a module."""
    run_script(AMID_A_FIRST_SAVE, str(tmp_path / "store.db"), str(milliseconds))


@pytest.mark.parametrize(
    "script", [PARENT_CLOSES, AMID_READS_AND_WRITES], ids=["parent closes", "amid reads and writes"]
)
def test_what_a_forked_child_acknowledged_is_there(disk_kind: str, script: str, tmp_path: Path) -> None:
    run_script(script, url_of(disk_kind, tmp_path))


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except sync.StoreUnavailable as error:
        return "forked" in str(error)
    return False


def test_a_child_of_a_fork_in_the_midst_of_a_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would hold no lock, and could not know: also where it opens the file itself."""
    monkeypatch.setattr(sqlite_file, "REST_SECONDS", 0)
    backend = SQLiteBackend(str(tmp_path / "store.db"), Durability.PROCESS)
    backend.open()
    with caplog.at_level(logging.WARNING), backend._file.reading():
        assert run_forked(lambda: is_refused(lambda: backend.heads([b"\0t"]))) == 0
        assert run_forked(lambda: is_refused(lambda: open_store("sqlite", tmp_path).latest("t"))) == 0
    assert "the child cannot use it" in caplog.text
    assert backend.heads([b"\0t"]) == [None]
    assert run_forked(lambda: backend.heads([b"\0t"]) == [None]) == 0
    backend.close()


def test_a_child_of_a_fork_in_the_midst_of_a_write_is_refused(tmp_path: Path) -> None:
    """A signal handler could do that, on the very thread that writes."""
    backend = SQLiteBackend(str(tmp_path / "store.db"), Durability.PROCESS)
    with backend._file.writing() as connection:
        assert run_forked(lambda: is_refused(lambda: backend.heads([b"\0t"]))) == 0
        assert connection.execute("PRAGMA user_version").fetchone() == (FIRST + len(migrations("sqlite")) - 1,)
    assert backend.heads([b"\0t"]) == [None]
    backend.close()


def test_a_closed_store_does_not_hinder_a_child(tmp_path: Path) -> None:
    store = open_store("sqlite", tmp_path)
    store.save("t", 1)
    store.close()

    def child() -> bool:
        with open_store("sqlite", tmp_path) as again:
            return again.save("t", 2).seq == 2

    assert run_forked(child) == 0


def test_a_pool_at_rest_has_nothing_out_and_gives_nothing() -> None:
    pool = Pool(list[int])
    one, taken, resting = pool.take(), Event(), Event()

    def take() -> None:
        resting.wait(GIVE_UP_SECONDS)
        pool.take()
        taken.set()

    thread = Thread(target=take)
    thread.start()
    assert not pool.pause(0)
    resting.set()
    pool.give(one)
    assert pool.pause(GIVE_UP_SECONDS)
    assert not taken.is_set()
    assert pool.drain() == [one]
    pool.resume()
    thread.join(GIVE_UP_SECONDS)
    assert taken.is_set()
    assert not pool.pause(0), "the other thread has one"


def test_what_cannot_be_made_is_not_out() -> None:
    def fails() -> int:
        raise OSError("no more descriptors")

    pool = Pool(fails)
    with pytest.raises(OSError, match="no more"):
        pool.take()
    assert pool.pause(0)
