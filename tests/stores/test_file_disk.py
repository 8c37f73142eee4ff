"""What reaches the disk and in which order, and what a full or failing disk leaves behind."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.records.errors import (
    ConfigurationError,
    OutcomeUnknown,
    StoreUnavailable,
)
from holdfast.records.rows import Drop
from holdfast.records.words import Durability
from holdfast.stores.backend import Busy
from holdfast.stores.file import FileBackend
from holdfast.stores.file.frames import HEADER_BYTES
from stores.file_scenes import OTHER, THREAD, everything, fail, fill, head, lent, log_of, names_in, recorded, row, step

FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[FileBackend]:
    yield from lent(root)


@pytest.fixture
def durable(root: Path) -> Iterator[FileBackend]:
    yield from lent(root, Durability.DURABLE)


class TestDisk:
    def test_a_new_log_has_its_name_on_disk_before_its_first_frame(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls, log = recorded(monkeypatch), log_of(root)
        durable.swap([step(1)])
        names = [("fsync", log.parent.name), ("fsync", "threads")]
        assert calls == [*names, ("pwrite", log.name), ("fdatasync", log.name)]
        calls.clear()
        durable.swap([step(2)])
        assert calls == [("pwrite", log.name), ("fdatasync", log.name)]

    def test_a_replaced_log_is_synced_before_and_after_it_gets_its_name(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        durable.swap([step(1)])
        calls, log = recorded(monkeypatch), log_of(root)
        durable.swap([step(2, drop=Drop(rows=((1, 2),)))])
        new = log.with_suffix(".new").name
        assert calls == [("pwrite", new), ("fsync", new), ("fsync", log.parent.name)]

    def test_nobody_appends_to_a_replaced_log_before_its_name_is_on_disk(
        self, durable: FileBackend, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        durable.swap([step(1)])
        real, refused = os.fsync, list[bool]()

        def fsync(fd: int) -> None:
            if store.heads([THREAD]) == [head(2)]:
                with pytest.raises(Busy):
                    store.swap([step(3)], wait=False)
                refused.append(True)
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        durable.swap([step(2, drop=Drop(rows=((1, 2),)))])
        assert refused
        assert store.swap([step(3)], wait=False) == [True]

    def test_the_level_process_syncs_no_append_and_a_durable_writer_catches_up(
        self, store: FileBackend, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls, log = recorded(monkeypatch), log_of(root)
        store.swap([step(1)])
        store.swap([step(2)])
        assert calls == [("pwrite", log.name)] * 2
        calls.clear()
        durable.swap([step(3)])
        assert [call for call, _ in calls] == ["fsync", "fsync", "pwrite", "fdatasync"]
        store.swap([step(4)])
        calls.clear()
        durable.swap([step(5)])
        assert [call for call, _ in calls] == ["pwrite", "fdatasync"]

    def test_the_levels_are_reported(self, store: FileBackend, durable: FileBackend) -> None:
        assert store.guarantee().level == Durability.PROCESS
        assert store.guarantee().details == {"sync": "none", "lock": "flock"}
        assert durable.guarantee().level == Durability.DURABLE
        assert durable.guarantee().details == {"sync": "fdatasync", "lock": "flock"}

    @pytest.mark.parametrize("level", ["none", "replicated"])
    def test_other_levels_are_refused_with_what_to_do(self, root: Path, level: str) -> None:
        with pytest.raises(ConfigurationError, match="durable"):
            FileBackend(str(root), Durability(level))

    @pytest.mark.parametrize("written", [-1, 0, 1, HEADER_BYTES, 60])
    def test_a_full_disk_leaves_nothing_behind(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch, written: int
    ) -> None:
        durable.swap([step(1)])
        before = log_of(root).read_bytes()
        real = os.pwrite

        def write(fd: int, data: bytes, offset: int) -> int:
            monkeypatch.setattr(os, "pwrite", fail(FULL) if written else lambda _, __, ___: 0)
            if written < 0:
                raise FULL
            return real(fd, data[:written], offset)

        with monkeypatch.context():
            monkeypatch.setattr(os, "pwrite", write)
            with pytest.raises(StoreUnavailable) as caught:
                durable.swap([step(2)])
        monkeypatch.undo()
        assert isinstance(caught.value.__cause__, OSError)
        assert log_of(root).read_bytes() == before
        assert durable.heads([THREAD]) == [head(1)]
        assert durable.swap([step(2)]) == [True]

    def test_a_write_in_two_parts_is_one_frame(self, durable: FileBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.pwrite
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:50], offset))
            durable.swap([step(1)])
        durable._pool.drop()
        assert durable.rows(THREAD, 1) == [row(1)]

    def test_a_read_in_many_parts_is_whole(self, store: FileBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(store)
        truth, real = everything(store), os.pread
        store._pool.drop()
        monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 70), offset))
        assert everything(store) == truth

    def test_a_failed_sync_is_of_unknown_outcome_and_can_be_repeated(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        durable.swap([step(1)])
        before = log_of(root).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail(BROKEN))
            with pytest.raises(OutcomeUnknown):
                durable.swap([step(2)])
            with pytest.raises(OutcomeUnknown):
                durable.post(THREAD, "key", b"value")
        assert log_of(root).read_bytes() == before
        assert durable.heads([THREAD]) == [head(1)]
        assert durable.inbox(THREAD) == {}
        assert durable.swap([step(2)]) == [True]

    def test_a_write_that_cannot_be_undone_is_of_unknown_outcome(
        self, durable: FileBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        durable.swap([step(1)])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail(BROKEN))
            patch.setattr(os, "ftruncate", fail(BROKEN))
            with pytest.raises(OutcomeUnknown, match="undone"):
                durable.swap([step(2)])
        assert durable.heads([THREAD]) == [head(2)]
        assert durable.swap([step(3)]) == [True]

    def test_an_error_after_one_swap_of_a_batch_was_made_is_of_unknown_outcome(
        self, durable: FileBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        durable.swap([step(1), step(1, OTHER)])
        real, written = os.pwrite, list[int]()

        def write(fd: int, data: bytes, offset: int) -> int:
            if written:
                raise FULL
            written.append(fd)
            return real(fd, data, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", write)
            with pytest.raises(OutcomeUnknown):
                durable.swap([step(2), step(2, OTHER)])
        assert durable.heads([THREAD, OTHER]) == [head(2), head(1, OTHER)]

    @pytest.mark.parametrize("call", ["pwrite", "fsync", "rename"])
    def test_a_drop_that_fails_changes_nothing(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        durable.swap([step(1)])
        before = log_of(root).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail(FULL))
            with pytest.raises(StoreUnavailable):
                durable.swap([step(2, drop=Drop(rows=((1, 2),)))])
        assert names_in(log_of(root).parent) == [log_of(root).name]
        assert log_of(root).read_bytes() == before
        assert durable.swap([step(2, drop=Drop(rows=((1, 2),)))]) == [True]
        assert [found.seq for found in durable.index(THREAD, None, None)] == [2]

    def test_a_replaced_log_whose_name_cannot_be_synced_is_of_unknown_outcome(
        self, durable: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        durable.swap([step(1)])
        real, synced = os.fsync, list[int]()

        def fsync(fd: int) -> None:
            if synced:
                raise BROKEN
            synced.append(fd)
            real(fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            with pytest.raises(OutcomeUnknown, match="directory"):
                durable.swap([step(2, drop=Drop(rows=((1, 2),)))])
        assert durable.heads([THREAD]) == [head(2)]
        calls = recorded(monkeypatch)
        durable.swap([step(3)])
        assert calls[0] == ("fsync", log_of(root).parent.name)

    def test_errors_of_a_reader_are_translated(self, store: FileBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(store)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", fail(BROKEN))
            with pytest.raises(StoreUnavailable):
                store.rows(THREAD, 3)
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", fail(PermissionError("no")))
            with pytest.raises(StoreUnavailable):
                store.threads(b"", (), (), None, 9)
            with pytest.raises(StoreUnavailable):
                store.check()
        assert store.rows(THREAD, 3)

    def test_a_store_whose_directory_vanished_is_unavailable(self, store: FileBackend, root: Path) -> None:
        shutil.rmtree(root)
        with pytest.raises(StoreUnavailable):
            store.swap([step(1)])
        assert not root.exists()
