"""What is special about threads in files: replaced logs, posts as frames, names, listings by key."""

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.records.head import LOST_HEAD, Head
from holdfast.records.identity import namespace_prefix, thread_key
from holdfast.records.rows import KEEP_ALL, Drop, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Listing
from holdfast.stores.file import FileBackend
from holdfast.stores.memory import MemoryBackend
from stores.file_scenes import (
    OTHER,
    SPACE,
    THREAD,
    everything,
    fail,
    fill,
    frames_of,
    head,
    lent,
    log_of,
    names_in,
    opened,
    recorded,
    rewrite,
    row,
    step,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[FileBackend]:
    yield from lent(root)


@pytest.fixture
def durable(root: Path) -> Iterator[FileBackend]:
    yield from lent(root, Durability.DURABLE)


class TestReplacing:
    def test_a_drop_leaves_what_the_memory_store_leaves(self, store: FileBackend, root: Path) -> None:
        model = MemoryBackend()
        drops = [
            Drop(rows=((1, 2), (4, 900))),
            Drop(rows=((0, 1),), blobs=(b"no such",)),
            Drop(blobs=(b"blob 5", b"blob 7")),
            Drop(rows=((5, 9),), blobs=(b"blob 9",)),
            Drop(everything=True),
            Drop(rows=((1, 5),)),
            Drop(everything=True),
        ]
        for seq, drop in enumerate([KEEP_ALL] * 4 + drops, 1):
            swap = step(seq, drop=drop, blobs={b"blob %d" % seq: b"data %d" % seq}, consumed=(f"key {seq - 1}",))
            assert store.swap([swap]) == model.swap([swap]) == [True]
            for backend in (store, model):
                backend.post(THREAD, f"key {seq}", b"post %d" % seq)
            ids = [b"blob %d" % at for at in range(20)]
            for again in range(2):
                assert store.heads([THREAD]) == model.heads([THREAD])
                assert store.rows(THREAD, seq) == model.rows(THREAD, seq)
                assert store.index(THREAD, None, None) == model.index(THREAD, None, None)
                assert store.index(THREAD, seq, 2) == model.index(THREAD, seq, 2)
                assert store.blobs(THREAD, ids) == model.blobs(THREAD, ids)
                assert list(store.inbox(THREAD).items()) == list(model.inbox(THREAD).items())
                if not again:
                    store._pool.drop()
        assert b"data 2" not in log_of(root).read_bytes()

    def test_dropping_everything_leaves_no_byte_of_it(self, store: FileBackend, root: Path) -> None:
        store.swap([step(1, blobs={b"one": b"secret blob"})])
        store.post(THREAD, "key", b"secret post")
        gone = Swap(THREAD, head(1), head(1, deleted=True), Head(), drop=Drop(everything=True))
        assert store.swap([gone]) == [True]
        assert everything(store) == [[head(1, deleted=True)], [], {}, [], {}, Listing([], None)]
        data = log_of(root).read_bytes()
        assert b"secret" not in data
        assert b"body" not in data
        assert len(frames_of(log_of(root))) == 1

    def test_dropping_everything_removes_what_was_consumed_as_well(self, store: FileBackend, root: Path) -> None:
        store.post(THREAD, "key", b"secret post")
        store.swap([Swap(THREAD, b"", head(1), Head(), consumed=("key",))])
        store.swap([Swap(THREAD, head(1), head(1, deleted=True), Head(), drop=Drop(everything=True))])
        assert b"secret" not in log_of(root).read_bytes()

    def test_large_logs_are_carried_over_in_frames_of_bounded_size(self, store: FileBackend, root: Path) -> None:
        blobs = {b"%d" % at: os.urandom(700_000) for at in range(6)}
        store.swap([step(1, blobs=blobs)])
        store.swap([step(2, drop=Drop(blobs=(b"0",)))])
        assert [len(frame) // 1_000_000 for frame in frames_of(log_of(root))] == [1, 1, 0, 0]
        store._pool.drop()
        del blobs[b"0"]
        assert store.blobs(THREAD, list(blobs)) == blobs

    def test_a_backend_with_the_old_file_open_notices_the_new_one(self, store: FileBackend, root: Path) -> None:
        other = opened(root)
        for seq in (1, 2, 3):
            store.swap([step(seq)])
        assert other.heads([THREAD]) == [head(3)]
        store.swap([step(4, drop=Drop(rows=((1, 3),)))])
        assert [found.seq for found in other.index(THREAD, None, None)] == [4, 3]
        store.swap([step(5, drop=Drop(rows=((3, 4),)))])
        assert other.swap([step(6)]) == [True]
        assert [found.seq for found in store.rows(THREAD, 6)] == [4, 5, 6]
        other.close()

    def test_a_writer_that_locked_the_old_file_goes_to_the_new_one(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = opened(root)
        store.swap([step(1)])
        store.swap([step(2)])
        assert other.heads([THREAD]) == [head(2)]
        real = fcntl.flock

        def flock(fd: int, operation: int) -> None:
            monkeypatch.undo()
            store.swap([step(3, drop=Drop(rows=((1, 2),)))])
            real(fd, operation)

        monkeypatch.setattr(fcntl, "flock", flock)
        assert other.swap([step(4)]) == [True]
        assert [found.seq for found in store.rows(THREAD, 4)] == [2, 3, 4]
        other.close()

    def test_what_a_dead_writer_left_is_removed_by_the_next(self, store: FileBackend, root: Path) -> None:
        store.swap([step(1)])
        left = log_of(root).with_suffix(".new")
        left.write_bytes(b"half a log")
        store._pool.drop()
        assert store.threads(b"", (), (), None, 9).heads == [(THREAD, head(1))]
        assert store.swap([step(2)]) == [True]
        assert not left.exists()

    def test_an_interrupted_drop_changes_nothing(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.swap([step(1)])
        before = log_of(root).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", fail(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                store.swap([step(2, drop=Drop(rows=((1, 2),)))])
        assert log_of(root).read_bytes() == before
        assert names_in(log_of(root).parent) == [log_of(root).name]
        assert store.swap([step(2)]) == [True]

    def test_a_log_that_was_removed_is_gone(self, store: FileBackend, root: Path) -> None:
        store.swap([step(1)])
        log_of(root).unlink()
        assert store.heads([THREAD]) == [None]
        assert store.swap([step(2)]) == [False]
        assert store.swap([step(1)]) == [True]

    def test_a_refused_swap_makes_no_file(self, store: FileBackend, root: Path) -> None:
        assert store.swap([step(2)]) == [False]
        assert list((root / "threads").iterdir()) == []

    def test_a_frame_that_another_writer_took_back_is_forgotten(self, store: FileBackend, root: Path) -> None:
        """A writer whose sync failed cuts its frame off; a frame of the same size may take its place."""
        store.swap([step(1)])
        before = log_of(root).read_bytes()
        store.swap([Swap(THREAD, head(1), head(2), Head(), rows=(row(2, b"first"),))])
        other = opened(root)
        assert other.rows(THREAD, 2)[1].body == b"first"
        rewrite(store, log_of(root), before)
        store.swap([Swap(THREAD, head(1), head(2), Head(), rows=(row(2, b"other"),))])
        assert other.rows(THREAD, 2)[1].body == b"other"
        assert other.swap([step(3)]) == [True]
        assert store.heads([THREAD]) == [head(3)]
        rewrite(store, log_of(root), before)
        assert other.heads([THREAD]) == [head(1)]
        other.close()


class TestPosts:
    def test_posts_need_no_head_and_are_taken_once_per_key(self, store: FileBackend) -> None:
        assert store.post(THREAD, "b", b"2")
        assert store.post(THREAD, "a", b"1")
        assert not store.post(THREAD, "b", b"other")
        assert list(store.inbox(THREAD).items()) == [("a", b"1"), ("b", b"2")]
        assert store.heads([THREAD]) == [None]
        assert store.threads(b"", (), (), None, 9).heads == []
        assert store.swap([step(1, consumed=("a", "unknown"))]) == [True]
        assert store.inbox(THREAD) == {"b": b"2"}
        assert store.post(THREAD, "a", b"again")
        assert store.heads([THREAD]) == [head(1)]

    def test_a_post_that_is_there_already_is_made_durable(
        self, store: FileBackend, durable: FileBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.post(THREAD, "a", b"1")
        calls = recorded(monkeypatch)
        assert not durable.post(THREAD, "a", b"1")
        assert [call for call, _ in calls] == ["fsync", "fsync", "fdatasync"]


class TestIds:
    @pytest.mark.parametrize(
        "name", ["../../escape", "/etc/passwd", "a/b", ".", "..", "nul\0", "con", "\n", "é", "x" * 512, "%2e%2e", "~"]
    )
    def test_no_id_reaches_a_path(self, tmp_path: Path, name: str) -> None:
        store = opened(tmp_path / "store")
        thread = thread_key(SPACE, name)
        store.post(thread, name, b"message")
        store.swap([step(1, thread)])
        store.swap([Swap(thread, head(1, thread), head(2, thread), Head(), drop=Drop(rows=((1, 2),)))])
        store.close()
        assert {entry.name for entry in tmp_path.iterdir()} == {"store"}
        found = sorted(str(path.relative_to(tmp_path / "store")) for path in (tmp_path / "store").rglob("*.*"))
        assert len(found) == 2
        assert found[0] == "holdfast.json"
        assert re.fullmatch("threads/[0-9a-f]{2}/[0-9a-f]{64}[.]log", found[1])

    def test_ids_that_differ_in_case_or_form_are_different_threads(self, store: FileBackend) -> None:
        threads = [thread_key(SPACE, name) for name in ("a", "A", "\u00e9", "e\u0301", "a ", " a")]
        for thread in threads:
            assert store.swap([step(1, thread)]) == [True]
        assert store.heads(threads) == [head(1, thread) for thread in threads]


class TestListing:
    def test_threads_are_listed_by_key_in_pages(self, store: FileBackend) -> None:
        keys = sorted(thread_key(namespace_prefix(space), str(at)) for space in ("", "x") for at in range(5))
        for key in reversed(keys):
            store.swap([step(1, key)])
        store.swap([Swap(keys[2], head(1, keys[2]), head(1, keys[2], "idle"), Head())])
        store.swap([Swap(keys[3], head(1, keys[3]), head(1, keys[3], deleted=True), Head())])
        first = store.threads(SPACE, (), (), None, 2)
        assert [thread for thread, _ in first.heads] == keys[:2]
        second = store.threads(SPACE, (), (), first.next, 2)
        assert [thread for thread, _ in second.heads] == [keys[2], keys[4]]
        assert second.next is None
        assert [thread for thread, _ in store.threads(SPACE, ("idle",), (), None, 9).heads] == [keys[2]]
        assert len(store.threads(b"", (), (), None, 99).heads) == 9

    def test_a_listing_reads_the_key_of_a_long_log_and_passes_over_foreign_files(
        self, store: FileBackend, root: Path
    ) -> None:
        fill(store)
        (root / "threads" / "notes.log").write_text("mine")
        log_of(root).with_suffix(".new").write_bytes(b"half a log")
        assert store.threads(b"", (), (), None, 9).heads == [(THREAD, head(3))]

    def test_a_damaged_log_is_not_left_out_of_a_listing(self, store: FileBackend, root: Path) -> None:
        store.swap([step(1), step(1, OTHER)])
        rewrite(store, log_of(root), b"garbage")
        listed = dict(store.threads(b"", (), (), None, 9).heads)
        assert listed == {OTHER: head(1, OTHER), b"\0" + log_of(root).name.encode(): LOST_HEAD}
