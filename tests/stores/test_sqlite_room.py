"""Room ahead in SQLite's log: commits lie on zeros, and nobody's frames are ever written over."""

import errno
import os
import sqlite3
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from time import monotonic

import pytest

from holdfast import sync
from holdfast.stores import sqlite_room
from holdfast.stores.sqlite_room import LogRoom

ITEM = {"text": "x" * 400}
FRAME_BYTES = 24 + 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def sizes_while_appending(path: Path, durability: str, count: int) -> list[int]:
    store = sync.open(str(path), durability=durability)
    sizes = []
    for _ in range(count):
        store.append("t", "steps", ITEM)
        sizes.append(log_of(path).stat().st_size)
    store.close()
    return sizes


def test_most_commits_leave_the_log_as_long_as_it_was(path: Path) -> None:
    sizes = sizes_while_appending(path, "durable", 60)
    assert len(set(sizes)) < 10


def test_without_an_fsync_per_commit_the_log_grows_by_itself(path: Path) -> None:
    sizes = sizes_while_appending(path, "process", 60)
    assert len(set(sizes)) > 40


def test_a_log_is_lengthened_by_a_step_at_most(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_room, "STEP_BYTES", 8192)
    connection, room = written_by_hand(path), LogRoom(str(path), 4096)
    sizes = [room_after_a_row(room, connection, path) for _ in range(40)]
    assert {later - earlier for earlier, later in pairwise(sizes)} <= {0, *range(8192, 8192 + 4 * FRAME_BYTES)}
    assert len(set(sizes)) < 25
    room.close()
    connection.close()


def test_a_log_that_is_long_enough_grows_by_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, room = written_by_hand(path), LogRoom(str(path), 4096)
    monkeypatch.setattr(sqlite_room, "MOST_BYTES", log_of(path).stat().st_size)
    for _ in range(10):
        assert (room_after_a_row(room, connection, path) - 32) % FRAME_BYTES == 0
    room.close()
    connection.close()


def written_by_hand(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
    return connection


def room_after_a_row(room: LogRoom, connection: sqlite3.Connection, path: Path) -> int:
    connection.execute("INSERT INTO t (body) VALUES (zeroblob(500))")
    room.keep(connection)
    return log_of(path).stat().st_size


def test_several_that_keep_room_in_one_log_lengthen_it_once(path: Path) -> None:
    connection = written_by_hand(path)
    first, second = LogRoom(str(path), 4096), LogRoom(str(path), 4096)
    size = room_after_a_row(first, connection, path)
    for room in (second, first, second):
        room.keep(connection)
        assert log_of(path).stat().st_size == size
    for each in (first, second, connection):
        each.close()


def test_no_step_ends_where_a_frame_could() -> None:
    ends = [32 + FRAME_BYTES * count for count in range(1, sqlite_room.MOST_BYTES // FRAME_BYTES)]
    lengthened = [end + min(end, sqlite_room.STEP_BYTES) for end in ends]
    assert all(end % FRAME_BYTES != 32 for end in lengthened)


def test_while_another_program_writes_the_log_is_left_alone(path: Path) -> None:
    connection, other = written_by_hand(path), sqlite3.connect(path, isolation_level=None)
    before = log_of(path).stat().st_size
    other.execute("BEGIN IMMEDIATE")
    room = LogRoom(str(path), 4096)
    begun = monotonic()
    room.keep(connection)
    assert monotonic() - begun < 10, "nobody waits for that"
    assert connection.execute("PRAGMA busy_timeout").fetchone() == (30_000,)
    assert log_of(path).stat().st_size == before
    other.execute("ROLLBACK")
    assert not connection.in_transaction
    assert room_after_a_row(room, connection, path) > before + FRAME_BYTES
    for each in (room, connection, other):
        each.close()


def test_a_disk_that_is_full_is_nobodys_concern(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def full(*_: object) -> int:
        tried.append(None)
        raise OSError(errno.ENOSPC, "no space left")

    store = sync.open(str(path))
    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(5):
        store.append("t", "steps", ITEM)
    assert tried
    latest = store.latest("t")
    assert latest is not None
    assert len(latest.state["steps"]) == 5
    store.close()


def test_a_killed_process_leaves_a_log_that_reads_as_if_it_had_no_room(path: Path) -> None:
    context = get_context("fork")
    child = context.Process(target=append_and_die, args=(path,))
    child.start()
    child.join()
    data = log_of(path).read_bytes()
    assert not data[-4096:].strip(b"\0")
    store = sync.open(str(path))
    latest = store.latest("t")
    assert latest is not None
    assert len(latest.state["steps"]) == 30
    assert not store.verify().problems
    store.close()


def test_a_log_that_was_made_anew_has_room_again_and_the_old_one_is_let_go(path: Path) -> None:
    store = sync.open(str(path))
    for _ in range(20):
        store.append("t", "steps", ITEM)
    child = os.fork()  # before it every connection is closed, and SQLite removes the log
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    sizes = set()
    for _ in range(20):
        store.append("t", "steps", ITEM)
        sizes.add(log_of(path).stat().st_size)
    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [place for place in held if str(path) in place and "deleted" in place]
    assert len(sizes) < 10
    store.close()


def append_and_die(path: Path) -> None:
    store = sync.open(str(path))
    for _ in range(30):
        store.append("t", "steps", ITEM)
    os._exit(9)


def test_what_other_programs_write_meanwhile_is_kept(path: Path) -> None:
    """Zeros at a place that was the end a moment ago would tear the log of whoever wrote there since."""
    store = sync.open(str(path))
    store.append("t", "steps", ITEM)
    context = get_context("spawn")
    others = [context.Process(target=write_beside, args=(path, number)) for number in range(2)]
    for other in others:
        other.start()
    count = 1
    while any(other.is_alive() for other in others):
        store.append("t", "steps", ITEM)
        count += 1
    assert [other.exitcode for other in others] == [0, 0]
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = connection.execute("SELECT writer, count(*) FROM beside GROUP BY writer").fetchall()
    assert found == [(0, 40), (1, 40)]
    connection.close()
    latest = sync.open(str(path)).latest("t")
    assert latest is not None
    assert len(latest.state["steps"]) == count


def write_beside(path: Path, number: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE IF NOT EXISTS beside (id INTEGER PRIMARY KEY, writer INTEGER, body BLOB)")
    for _ in range(40):
        connection.execute("INSERT INTO beside (writer, body) VALUES (?, zeroblob(3000))", (number,))
    os._exit(0)
