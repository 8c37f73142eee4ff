"""Several processes and threads on one store: locks, crashes, forks, and the pool of open files."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from holdfast.records.head import Head, decode_head
from holdfast.records.identity import thread_key
from holdfast.records.rows import Drop, Swap
from holdfast.records.words import Durability
from holdfast.stores import file_locks
from holdfast.stores.backend import Busy
from holdfast.stores.file import FileBackend, logs
from stores.file_scenes import OTHER, SPACE, THREAD, fail, head, lent, log_of, open_files, opened, row, step

pytestmark = pytest.mark.processes

APPENDER = """
import os, sys
from holdfast.records.head import Head, decode_head, encode_head
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.file import FileBackend

path, name, count, level = sys.argv[1], sys.argv[2], int(sys.argv[3]), Durability(sys.argv[4])
thread = bytes.fromhex(sys.argv[5])
store = FileBackend(path, level)
store.open()
made = 0
while made < count:
    stored = store.heads([thread])[0] or b""
    seq = decode_head(thread, stored).seq + 1 if stored else 1
    body = f"{name} {seq}".encode() * (1 + seq % 50)
    swap = Swap(thread, stored, encode_head(thread, Head(seq=seq, status="working")), Head(),
                rows=(Row(seq, 1, b"d", name.encode(), body),))
    if store.swap([swap]) == [True]:
        made += 1
        os.write(1, f"{seq}\\n".encode())
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[FileBackend]:
    yield from lent(root)


@pytest.fixture
def durable(root: Path) -> Iterator[FileBackend]:
    yield from lent(root, Durability.DURABLE)


def appender(root: Path, name: str, count: int, level: str = "process") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", APPENDER, str(root), name, str(count), level, THREAD.hex()]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def output(process: subprocess.Popen[bytes]) -> list[int]:
    data, _ = process.communicate()
    return [int(line) for line in data.split()]


def run_forked(child: Callable[[], bool]) -> int:
    process = os.fork()
    if not process:
        code = 1
        try:
            code = 0 if child() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


class TestProcesses:
    def test_two_processes_append_to_one_thread_and_nothing_acknowledged_is_lost(
        self, store: FileBackend, root: Path
    ) -> None:
        writers = {name: appender(root, name, 150) for name in ("left", "right")}
        acknowledged = {name: output(process) for name, process in writers.items()}
        assert sorted(acknowledged["left"] + acknowledged["right"]) == list(range(1, 301))
        rows = {found.seq: found for found in store.rows(THREAD, 300)}
        assert all(rows[seq].header.decode() == name for name, seqs in acknowledged.items() for seq in seqs)

    def test_a_killed_writer_leaves_all_it_acknowledged_and_at_most_one_more(
        self, durable: FileBackend, root: Path
    ) -> None:
        for count in (1, 7, 30, 60, 100):
            process = appender(root, "victim", 1_000_000, "durable")
            assert process.stdout
            acknowledged = [int(process.stdout.readline()) for _ in range(count)]
            process.send_signal(signal.SIGKILL)
            acknowledged += output(process)
            (stored,) = durable.heads([THREAD])
            assert stored
            seq = decode_head(THREAD, stored).seq
            assert seq - acknowledged[-1] in {0, 1}
            assert [found.seq for found in durable.rows(THREAD, seq)] == list(range(1, seq + 1))

    def test_a_lock_held_elsewhere_is_busy_or_waited_for_while_readers_go_on(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.swap([step(1), step(1, OTHER)])
        waiting = Event()
        monkeypatch.setattr(file_locks, "sleep", lambda _: waiting.set())
        outcomes: list[list[bool]] = []
        with log_of(root, OTHER).open("rb") as other:
            fcntl.flock(other.fileno(), fcntl.LOCK_EX)
            with pytest.raises(Busy):
                store.swap([step(2, OTHER)], wait=False)
            # The second of a batch is waited for, since the first is made.
            batch = [step(2), step(2, OTHER)]
            writer = Thread(target=lambda: outcomes.append(store.swap(batch, wait=False)))
            writer.start()
            waiting.wait()
            assert store.heads([THREAD, OTHER]) == [head(2), head(1, OTHER)]
        writer.join()
        assert outcomes == [[True, True]]
        assert store.heads([OTHER]) == [head(2, OTHER)]

    def test_a_wait_that_is_interrupted_leaves_the_log_usable(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.swap([step(1)])
        with log_of(root).open("rb") as other, monkeypatch.context() as patch:
            fcntl.flock(other.fileno(), fcntl.LOCK_EX)
            patch.setattr(file_locks, "sleep", fail(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                store.swap([step(2)])
        assert store.swap([step(2)]) == [True]

    def test_a_log_in_use_by_another_thread_of_this_process_is_busy(self, store: FileBackend) -> None:
        with store._pool.take(THREAD), pytest.raises(Busy):
            store.swap([step(1)], wait=False)
        assert store.swap([step(1)], wait=False) == [True]

    def test_threads_of_one_process_share_a_store(self, durable: FileBackend) -> None:
        def count_up(name: bytes) -> None:
            made = 0
            while made < 40:
                stored = durable.heads([THREAD])[0] or b""
                seq = decode_head(THREAD, stored).seq + 1 if stored else 1
                made += durable.swap([Swap(THREAD, stored, head(seq), Head(), rows=(row(seq, name),))])[0]

        workers = [Thread(target=count_up, args=(name,)) for name in (b"one", b"two", b"three")]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        bodies = [found.body for found in durable.rows(THREAD, 120)]
        assert sorted(bodies) == [b"one"] * 40 + [b"three"] * 40 + [b"two"] * 40

    def test_a_forked_child_opens_its_own_files(self, store: FileBackend) -> None:
        store.swap([step(1), step(1, OTHER)])

        def child() -> bool:
            try:
                store.swap([step(2)], wait=False)
            except Busy:
                return store.swap([step(2, OTHER)]) == [True] and store.heads([THREAD]) == [head(1)]
            return False

        with store._pool.take(THREAD) as log:
            log.for_writing(wait=True, create=False)  # the child shall not get through with our lock
            assert run_forked(child) == 0
            assert log.index.head == head(1)
        assert store.swap([step(2)]) == [True]
        assert store.heads([THREAD, OTHER]) == [head(2), head(2, OTHER)]


class TestPool:
    def test_few_files_stay_open_and_few_indexes_are_kept(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logs, "MAX_OPEN", 3)
        monkeypatch.setattr(logs, "MAX_LOGS", 5)
        monkeypatch.setattr(logs, "TRIM_EVERY", 1)
        threads = [thread_key(SPACE, str(at)) for at in range(10)]
        before = open_files(root)
        for seq in (1, 2, 3):
            for thread in threads:
                assert store.swap([step(seq, thread)]) == [True]
                assert open_files(root) <= before + 3
                assert len(store._pool._logs) <= 5
        assert store.heads(threads) == [head(3, thread) for thread in threads]

    def test_logs_in_use_and_the_last_are_kept_whatever_their_size(
        self, store: FileBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logs, "MAX_OPEN", 1)
        monkeypatch.setattr(logs, "MAX_INDEXED", 1)
        monkeypatch.setattr(logs, "TRIM_EVERY", 1)
        with store._pool.take(OTHER) as log:
            log.for_writing(wait=True, create=True)
            store.swap([step(1)])
            store.swap([step(2)])
            assert list(store._pool._logs) == [OTHER, THREAD]
            assert log.fd >= 0
        store.swap([step(3)])
        assert list(store._pool._logs) == [THREAD]

    def test_an_index_outlives_its_file_and_is_checked_when_that_is_opened_again(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logs, "MAX_OPEN", 1)
        other = opened(root)
        for seq in (1, 2, 3):
            store.swap([step(seq)])
        store.heads([OTHER])
        store.swap([step(1, OTHER)])
        assert store._pool._logs[THREAD].fd == -1
        other.swap([step(4)])
        assert [found.seq for found in store.rows(THREAD, 4)] == [1, 2, 3, 4]
        store.swap([step(2, OTHER)])
        other.swap([step(5, drop=Drop(rows=((1, 4),)))])
        assert [found.seq for found in store.rows(THREAD, 5)] == [4, 5]
        other.close()
