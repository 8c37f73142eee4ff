"""A foreign process that locks a file of ours stops a store for a bounded time only, and is named."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.stores import file_locks
from holdfast.stores.file_locks import lock_file
from holdfast.stores.sqlite import SQLiteBackend
from kinds import url_of
from patience import GIVE_UP_SECONDS
from stores.file_scenes import THREAD, frames_of, head, log_of, opened, rewrite, step

HOLDER = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_SH if sys.argv[2] == "shared" else fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path, kind: str = "exclusive") -> Iterator[int]:
    """The id of a process that has the lock on a file."""
    command = [sys.executable, "-c", HOLDER, str(path), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"locked\n"
        yield process.pid


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_locks, "LOCK_SECONDS", 0.05)


def test_a_foreign_reader_does_not_stop_saves_and_reads_of_sqlite_for_good(tmp_path: Path) -> None:
    path, gate = tmp_path / "store.db", tmp_path / "store.db-lock"
    with sync.open(path) as store:
        store.save("t", 1)
        with held(gate, "shared") as pid:
            with pytest.raises(sync.StoreUnavailable, match=rf"{gate} was locked by process {pid} \(python"):
                store.save("t", 2)
            assert [info.seq for info in store.history("t")] == [1]
        assert store.save("t", 3).seq == 2


def test_a_sqlite_store_that_cannot_be_locked_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    sync.open(path).close()
    (tmp_path / "store.db-lock").touch()
    with held(tmp_path / "store.db-lock") as pid, pytest.raises(sync.StoreUnavailable, match=f"process {pid}"):
        sync.open(path).latest("t")
    with sync.open(path) as store:
        assert store.save("t", 1).seq == 1


def test_a_sqlite_store_that_cannot_be_locked_is_closed_later(tmp_path: Path) -> None:
    backend = SQLiteBackend(str(tmp_path / "store.db"))
    backend.open()
    with held(tmp_path / "store.db-lock"), pytest.raises(sync.StoreUnavailable):
        backend.close()
    assert (tmp_path / "store.db-wal").exists()
    backend.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.db", "store.db-lock"]


def test_a_foreign_lock_on_a_log_does_not_stop_saves_for_good(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.swap([step(1)])
    with held(log_of(tmp_path), "shared") as pid:
        with pytest.raises(sync.StoreUnavailable, match=rf"{log_of(tmp_path)} was locked by process {pid}"):
            store.swap([step(2)])
        with pytest.raises(sync.StoreUnavailable, match=f"process {pid}"):
            store.post(THREAD, "key", b"message")
        assert store.heads([THREAD]) == [head(1)]
    assert store.swap([step(2)]) == [True]
    store.close()


def test_a_foreign_lock_on_a_log_does_not_stop_reads_for_good(tmp_path: Path) -> None:
    """Damage is believed only under the lock, since a writer may be at work."""
    store = opened(tmp_path)
    store.swap([step(1)])
    store.swap([step(2)])
    first, second = frames_of(log_of(tmp_path))
    rewrite(store, log_of(tmp_path), first[:-1] + b"x" + second)
    with held(log_of(tmp_path)) as pid, pytest.raises(sync.StoreUnavailable, match=f"process {pid}"):
        store.heads([THREAD])
    with pytest.raises(sync.Corrupt):
        store.heads([THREAD])
    store.close()


def test_a_foreign_lock_on_a_file_store_does_not_stop_its_opening_for_good(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with held(tmp_path) as pid, pytest.raises(sync.StoreUnavailable, match=rf"{tmp_path} was locked by process {pid}"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_a_lock_that_is_released_in_time_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    fd = os.open(tmp_path / "file", os.O_RDWR)
    with held(tmp_path / "file") as pid:
        monkeypatch.setattr(file_locks, "LOCK_SECONDS", GIVE_UP_SECONDS)
        monkeypatch.setattr(file_locks, "sleep", lambda _: os.kill(pid, signal.SIGKILL))
        lock_file(fd, "file")
    os.close(fd)


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_holder_that_the_system_does_not_name_is_another_process(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_locks, "_LOCKS", str(tmp_path / "missing"))
    with sync.open(url_of(kind, tmp_path)) as store:
        store.save("t", 1)
        (path,) = [*tmp_path.rglob("*-lock"), *tmp_path.rglob("*.log")]
        with held(path), pytest.raises(sync.StoreUnavailable, match="locked by another process"):
            store.save("t", 2)
