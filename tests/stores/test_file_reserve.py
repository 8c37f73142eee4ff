"""Zeros ahead of a log that is written often: who writes them, over them, and who takes them away."""

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.records.identity import thread_key
from holdfast.records.rows import Drop
from holdfast.records.words import Durability
from holdfast.stores.file import FileBackend, logs
from holdfast.stores.file.logs import RESERVE, RESERVE_AFTER
from stores.file_scenes import (
    OTHER,
    SPACE,
    THREAD,
    fail,
    frames_of,
    head,
    lent,
    log_of,
    opened,
    recorded,
    rewrite,
    step,
)

OFTEN = RESERVE_AFTER + 1
"""So many appends bring the zeros."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def durable(root: Path) -> Iterator[FileBackend]:
    yield from lent(root, Durability.DURABLE)


def write(store: FileBackend, first: int, last: int, thread: bytes = THREAD) -> None:
    for seq in range(first, last + 1):
        assert store.swap([step(seq, thread)]) == [True]


def seqs(store: FileBackend) -> list[int]:
    return [found.seq for found in store.index(THREAD, None, None)][::-1]


def reserved(root: Path, thread: bytes = THREAD) -> int:
    """How many zeros lie behind a log."""
    data = log_of(root, thread).read_bytes()
    return len(data) - len(data.rstrip(b"\0"))


class TestReserve:
    def test_after_some_appends_a_durable_log_has_zeros_ahead_that_the_next_are_written_over(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(durable, 1, RESERVE_AFTER)
        assert reserved(root) < 16
        calls, log = recorded(monkeypatch), log_of(root)
        write(durable, OFTEN, OFTEN)
        assert calls == [("pwrite", log.name), ("pwrite", log.name), ("fdatasync", log.name)]
        size = log.stat().st_size
        assert reserved(root) > len(RESERVE) - 1000
        calls.clear()
        write(durable, OFTEN + 1, OFTEN + 100)
        assert calls == [("pwrite", log.name), ("fdatasync", log.name)] * 100
        assert log.stat().st_size == size
        assert seqs(durable) == list(range(1, OFTEN + 101))

    def test_zeros_are_written_anew_when_they_are_used_up(self, durable: FileBackend, root: Path) -> None:
        write(durable, 1, OFTEN)
        size = log_of(root).stat().st_size
        last = OFTEN
        while log_of(root).stat().st_size == size:
            last += 1
            assert durable.swap([step(last, blobs={b"%d" % last: os.urandom(9000)})]) == [True]
        assert log_of(root).stat().st_size >= size + len(RESERVE) - 10_000
        assert durable.swap([step(last + 1, blobs={b"large": os.urandom(3 * len(RESERVE))})]) == [True]
        assert reserved(root) < 16
        durable._pool.drop()
        assert seqs(durable) == list(range(1, last + 2))

    def test_the_level_process_reserves_nothing_but_writes_over_what_is_there(
        self, durable: FileBackend, root: Path
    ) -> None:
        store = opened(root)
        write(store, 1, 3 * OFTEN)
        assert reserved(root) < 16
        write(durable, 3 * OFTEN + 1, 4 * OFTEN)
        write(store, 4 * OFTEN + 1, 4 * OFTEN + 1)
        write(durable, 4 * OFTEN + 2, 4 * OFTEN + 2)
        size = log_of(root).stat().st_size
        assert reserved(root)
        write(store, 4 * OFTEN + 3, 5 * OFTEN)
        assert log_of(root).stat().st_size == size
        store.close()
        assert seqs(durable) == list(range(1, 5 * OFTEN + 1))

    def test_a_store_that_is_closed_leaves_no_zeros(self, durable: FileBackend, root: Path) -> None:
        write(durable, 1, OFTEN + 5)
        write(durable, 1, OFTEN + 5, OTHER)
        durable.close()
        assert sum(map(len, frames_of(log_of(root)))) == log_of(root).stat().st_size
        assert len(frames_of(log_of(root, OTHER))) == OFTEN + 5

    @pytest.mark.parametrize("bound", ["MAX_OPEN", "MAX_LOGS"])
    def test_a_log_that_is_put_away_has_no_zeros(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch, bound: str
    ) -> None:
        write(durable, 1, OFTEN)
        assert reserved(root)
        monkeypatch.setattr(logs, bound, 1)
        monkeypatch.setattr(logs, "TRIM_EVERY", 1)
        write(durable, 1, 1, OTHER)
        write(durable, 2, 2, OTHER)
        assert len(frames_of(log_of(root))) == OFTEN
        write(durable, OFTEN + 1, OFTEN + 1)
        assert seqs(durable) == list(range(1, OFTEN + 2))

    def test_a_replaced_log_begins_without_zeros(self, durable: FileBackend, root: Path) -> None:
        write(durable, 1, OFTEN)
        durable.swap([step(OFTEN + 1, drop=Drop(rows=((1, OFTEN),)))])
        assert len(frames_of(log_of(root))) == 2
        write(durable, OFTEN + 2, OFTEN + 2)
        assert len(frames_of(log_of(root))) == 3

    def test_no_room_for_zeros_is_no_reason_to_fail(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(durable, 1, RESERVE_AFTER)
        real = os.pwrite

        def pwrite(fd: int, data: bytes, offset: int) -> int:
            if len(data) == len(RESERVE):
                real(fd, data[:100], offset)
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            write(durable, OFTEN, OFTEN + 3)
        durable._pool.drop()
        assert seqs(durable) == list(range(1, OFTEN + 4))

    def test_a_write_that_failed_takes_the_zeros_with_it(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(durable, 1, OFTEN)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail(OSError(errno.EIO, "Input/output error")))
            with pytest.raises(Exception, match="may be lost"):
                durable.swap([step(OFTEN + 1)])
        assert len(frames_of(log_of(root))) == OFTEN
        write(durable, OFTEN + 1, OFTEN + 2)


class TestOthers:
    def test_readers_and_writers_elsewhere_find_the_end_that_the_size_does_not_tell(
        self, durable: FileBackend, root: Path
    ) -> None:
        other = opened(root, Durability.DURABLE)
        write(durable, 1, OFTEN)
        for seq in range(OFTEN + 1, OFTEN + 40, 2):
            size = log_of(root).stat().st_size
            write(durable, seq, seq)
            assert other.heads([THREAD]) == [head(seq)]
            assert other.threads(b"", (), (), None, 9).heads == [(THREAD, head(seq))]
            write(other, seq + 1, seq + 1)
            assert durable.heads([THREAD]) == [head(seq + 1)]
            assert seq == OFTEN + 1 or log_of(root).stat().st_size == size
        other.close()
        assert seqs(durable) == list(range(1, OFTEN + 41))

    def test_a_reader_that_catches_up_reads_little(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = opened(root)
        write(durable, 1, 200)
        assert other.heads([THREAD]) == [head(200)]
        real, lengths = os.pread, list[int]()

        def pread(fd: int, length: int, offset: int) -> bytes:
            lengths.append(length)
            return real(fd, length, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", pread)
            assert other.heads([THREAD]) == [head(200)]
            assert lengths == [40]
        write(durable, 201, 201)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", pread)
            assert other.heads([THREAD]) == [head(201)]
        assert sum(lengths) <= len(RESERVE) + 200
        other.close()

    def test_what_a_killed_writer_left_is_used_by_the_next_and_cut_off_when_that_is_done(self, root: Path) -> None:
        process = os.fork()
        if not process:
            write(opened(root, Durability.DURABLE), 1, OFTEN)
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
        assert reserved(root)
        store = opened(root)
        assert store.heads([THREAD]) == [head(OFTEN)]
        assert store.check() == []
        size = log_of(root).stat().st_size
        write(store, OFTEN + 1, OFTEN + 1)
        assert log_of(root).stat().st_size == size
        store.close()
        assert len(frames_of(log_of(root))) == OFTEN + 1

    def test_zeros_stay_where_another_writer_is_at_work(self, durable: FileBackend, root: Path) -> None:
        write(durable, 1, OFTEN)
        with log_of(root).open("rb") as other:
            fcntl.flock(other.fileno(), fcntl.LOCK_EX)
            durable.close()
        assert reserved(root)

    def test_frames_that_another_wrote_are_not_cut_off_with_the_zeros(self, durable: FileBackend, root: Path) -> None:
        other = opened(root)
        write(durable, 1, OFTEN)
        write(other, OFTEN + 1, OFTEN + 1)
        write(durable, OFTEN + 2, OFTEN + 2)
        write(other, OFTEN + 3, OFTEN + 4)
        durable.close()
        assert other.heads([THREAD]) == [head(OFTEN + 4)]
        write(other, OFTEN + 5, OFTEN + 5)
        other.close()
        assert len(frames_of(log_of(root))) == OFTEN + 5

    @pytest.mark.parametrize("fate", ["replaced", "removed", "damaged"])
    def test_a_file_that_is_no_longer_the_log_is_left_alone(self, durable: FileBackend, root: Path, fate: str) -> None:
        other = opened(root)
        write(durable, 1, OFTEN)
        if fate == "replaced":
            other.swap([step(OFTEN + 1, drop=Drop(rows=((1, 2),)))])
        elif fate == "removed":
            log_of(root).unlink()
        else:
            data = log_of(root).read_bytes()
            rewrite(other, log_of(root), data[: -reserved(root) - 1] + b"x" + bytes(reserved(root)))
        before = log_of(root).read_bytes() if fate != "removed" else b""
        durable.close()
        assert fate == "removed" or log_of(root).read_bytes() == before
        assert fate != "removed" or not log_of(root).exists()
        other.close()

    def test_a_forked_child_does_not_cut_the_log_of_its_parent(self, durable: FileBackend, root: Path) -> None:
        write(durable, 1, OFTEN)
        before = reserved(root)
        process = os.fork()
        if not process:
            durable.close()
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
        assert reserved(root) == before
        write(durable, OFTEN + 1, OFTEN + 1)

    def test_where_no_name_of_an_open_file_is_told_its_status_is_asked_for(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "readlink", fail(FileNotFoundError()))
        other = opened(root)
        write(durable, 1, OFTEN)
        assert other.heads([THREAD]) == [head(OFTEN)]
        other.swap([step(OFTEN + 1, drop=Drop(rows=((1, OFTEN),)))])
        write(durable, OFTEN + 2, OFTEN + 2)
        assert seqs(other) == [OFTEN, OFTEN + 1, OFTEN + 2]
        other.close()

    def test_many_threads_in_few_files_keep_their_rows(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.stores.file.backend.RESERVE_AFTER", 1)
        monkeypatch.setattr(logs, "MAX_OPEN", 2)
        threads = [thread_key(SPACE, str(at)) for at in range(4)]
        for seq in range(1, 9, 2):
            for thread in threads:
                write(durable, seq, seq + 1, thread)
        assert durable.heads(threads) == [head(8, thread) for thread in threads]
        durable.close()
        assert [len(frames_of(log_of(root, thread))) for thread in threads] == [8] * 4
