"""Torn tails are no write, everything else that is wrong with a log is damage, and no damage goes unnoticed."""

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import permutations
from pathlib import Path

import pytest

from holdfast.records.errors import (
    Corrupt,
    IncompatibleCheckpoint,
    StoreUnavailable,
)
from holdfast.records.head import LOST_HEAD
from holdfast.stores.backend import Listing
from holdfast.stores.file import FileBackend, frames
from holdfast.stores.file.frames import DIGEST_BYTES, SECTOR, Envelope, Index, last_frame
from holdfast.stores.file.listing import placeholder_key
from rounds import TIMES
from stores.file_scenes import OTHER, THREAD, everything, fill, frames_of, head, lent, log_of, rewrite, step


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[FileBackend]:
    yield from lent(root)


def is_trusted(data: bytes) -> bool:
    """True if a listing is content with the last frame of this log."""
    index = Index(sha256(THREAD).digest(), "log")
    return last_frame(index, lambda offset, length: data[offset : offset + length], len(data))


class TestTornTail:
    def test_a_tail_cut_at_any_byte_is_the_old_head_and_the_next_writer_goes_on(
        self, store: FileBackend, root: Path
    ) -> None:
        store.swap([step(1)])
        old = log_of(root).read_bytes()
        store.swap([step(2, blobs={b"two": b"blob"})])
        new = log_of(root).read_bytes()
        for cut in range(len(old), len(new)):
            rewrite(store, log_of(root), new[:cut])
            assert store.heads([THREAD]) == [head(1)]
            assert store.threads(b"", (), (), None, 9).heads == [(THREAD, head(1))]
            assert [found.seq for found in store.index(THREAD, None, None)] == [1]
            assert store.swap([step(2)]) == [True]
            store._pool.drop()
            assert store.heads([THREAD]) == [head(2)]
        rewrite(store, log_of(root), new)
        assert store.heads([THREAD]) == [head(2)]

    def test_a_first_frame_cut_at_any_byte_is_no_thread_yet(self, store: FileBackend, root: Path) -> None:
        store.swap([step(1)])
        new = log_of(root).read_bytes()
        for cut in range(len(new)):
            rewrite(store, log_of(root), new[:cut])
            assert everything(store) == [[None], [], {}, [], {}, Listing([], None)]
            assert store.swap([step(1)]) == [True]
            assert store.heads([THREAD]) == [head(1)]

    @pytest.mark.parametrize("extra", [0, 1, 5000])
    def test_zeros_from_any_sector_on_are_a_torn_tail(self, store: FileBackend, root: Path, extra: int) -> None:
        store.swap([step(1)])
        old = log_of(root).read_bytes()
        store.swap([step(2, blobs={b"two": os.urandom(2000)})])
        new = log_of(root).read_bytes()
        for cut in (len(old), *range(SECTOR, len(new), SECTOR)):
            rewrite(store, log_of(root), new[:cut] + bytes(len(new) - cut + extra))
            assert store.heads([THREAD]) == [head(1)]
        assert store.swap([step(2)]) == [True]
        assert frames_of(log_of(root))[:-1] == [old]

    def test_zeros_behind_a_whole_log_are_cut_off(self, store: FileBackend, root: Path) -> None:
        store.swap([step(1)])
        rewrite(store, log_of(root), log_of(root).read_bytes() + bytes(3_000_000))
        assert store.heads([THREAD]) == [head(1)]
        assert store.swap([step(2)]) == [True]
        assert log_of(root).stat().st_size < 3000

    def test_bytes_behind_zeros_are_what_is_left_of_a_write_unless_there_is_a_frame(
        self, store: FileBackend, root: Path
    ) -> None:
        store.swap([step(1)])
        store.swap([step(2)])
        first, second = frames_of(log_of(root))
        rewrite(store, log_of(root), first + bytes(4000) + b"x")
        assert store.heads([THREAD]) == [head(1)]
        rewrite(store, log_of(root), first + bytes(4000) + first[-DIGEST_BYTES:] + second)
        with pytest.raises(Corrupt, match="no frame"):
            store.heads([THREAD])

    @pytest.mark.parametrize("garbage", [b"x", b"HFLX", b"garbage of some length, more than any header has"])
    def test_garbage_at_the_end_is_damage(self, store: FileBackend, root: Path, garbage: bytes) -> None:
        store.swap([step(1)])
        rewrite(store, log_of(root), log_of(root).read_bytes() + garbage)
        assert everything(store) == [Corrupt] * 6
        with pytest.raises(Corrupt):
            store.swap([step(2)])


class TestDamage:
    @pytest.mark.faults
    def test_no_flipped_bit_goes_unnoticed(self, store: FileBackend, root: Path) -> None:
        fill(store)
        sound = log_of(root).read_bytes()
        truth = everything(store)
        for at in range(0, len(sound), 1 if TIMES > 1 else 5):
            for mask in (1 << (at % 8), 0x80, 0xFF):
                rewrite(store, log_of(root), sound[:at] + bytes([sound[at] ^ mask]) + sound[at + 1 :])
                found = everything(store)
                assert found[:5] == [Corrupt] * 5
                assert found[5] is Corrupt or found[5] == truth[5]

    def test_damage_found_by_a_writer_is_not_written_over(self, store: FileBackend, root: Path) -> None:
        fill(store)
        sound = log_of(root).read_bytes()
        damaged = sound[:-5] + bytes([sound[-5] ^ 1]) + sound[-4:]
        rewrite(store, log_of(root), damaged)
        with pytest.raises(Corrupt):
            store.swap([step(4)])
        with pytest.raises(Corrupt):
            store.post(THREAD, "new", b"")
        assert log_of(root).read_bytes() == damaged

    def test_a_check_reads_every_frame_of_every_log(self, store: FileBackend, root: Path) -> None:
        for thread in (THREAD, OTHER):
            store.swap([step(1, thread)])
            store.swap([step(2, thread)])
        assert store.check() == []
        data = log_of(root).read_bytes()
        rewrite(store, log_of(root), data.replace(b"body 1", b"baddy1"))
        assert len(store.threads(b"", (), (), None, 9).heads) == 2
        (problem,) = store.check()
        assert log_of(root).name in problem
        rewrite(store, log_of(root), data + b"HFLG torn")
        assert store.check() == []

    def test_a_log_damaged_behind_its_first_frame_is_listed_as_lost_beside_the_others(
        self, store: FileBackend, root: Path
    ) -> None:
        for thread in (THREAD, OTHER):
            store.swap([step(1, thread)])
            store.swap([step(2, thread)])
        data = log_of(root).read_bytes()
        rewrite(store, log_of(root), data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
        listed = dict(store.threads(b"", (), (), None, 9).heads)
        assert listed.keys() == {THREAD, OTHER}
        assert listed[THREAD] == LOST_HEAD
        assert store.counts(b"")["damaged"] == 1

    def test_frames_in_any_other_order_are_damage(self, store: FileBackend, root: Path) -> None:
        for seq in range(1, 5):
            store.swap([step(seq)])
        frames = frames_of(log_of(root))
        for order in permutations(frames):
            rewrite(store, log_of(root), b"".join(order))
            found = everything(store)[0]
            assert found == ([head(4)] if list(order) == frames else Corrupt)

    def test_a_removed_or_doubled_frame_is_damage(self, store: FileBackend, root: Path) -> None:
        for seq in range(1, 5):
            store.swap([step(seq)])
        frames = frames_of(log_of(root))
        for at in range(4):
            doubled = [*frames[: at + 1], *frames[at:]]
            removed = [*frames[:at], *frames[at + 1 :]] if at < 3 else [*frames[:2], frames[3], frames[2]]
            for changed in (doubled, removed):
                rewrite(store, log_of(root), b"".join(changed))
                assert everything(store)[:5] == [Corrupt] * 5

    def test_frames_and_logs_of_another_thread_are_damage(self, store: FileBackend, root: Path) -> None:
        for thread in (THREAD, OTHER):
            store.swap([step(1, thread)])
            store.swap([step(2, thread)])
        mine, others = frames_of(log_of(root)), frames_of(log_of(root, OTHER))
        rewrite(store, log_of(root), mine[0] + others[1])
        assert everything(store) == [Corrupt] * 6
        rewrite(store, log_of(root), b"".join(others))
        assert everything(store) == [Corrupt] * 6

    def test_a_frame_elsewhere_is_damage_even_if_its_header_fits(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(frames, "crc32", lambda _: 0)
        for seq in range(1, 4):
            store.swap([step(seq)])
        first, second, third = frames_of(log_of(root))
        for order in ((first, third, second), (first, third), (first, second, second), (second, third)):
            rewrite(store, log_of(root), b"".join(order))
            with pytest.raises(Corrupt, match="digest"):
                store.heads([THREAD])

    def test_the_last_frame_alone_is_not_trusted_if_it_or_the_key_is_of_another_thread(
        self, store: FileBackend, root: Path
    ) -> None:
        for thread in (THREAD, OTHER):
            store.swap([step(1, thread)])
            store.swap([step(2, thread)])
        mine, others = log_of(root).read_bytes(), log_of(root, OTHER).read_bytes()
        assert is_trusted(mine)
        assert not any(is_trusted(data) for data in (others, mine + others, mine.replace(THREAD, OTHER, 1)))

    def test_a_log_that_names_another_thread_is_damage_even_if_its_digests_are_right(
        self, store: FileBackend, root: Path
    ) -> None:
        owner = sha256(THREAD).digest()
        path = log_of(root)
        path.parent.mkdir()
        frame = Index(owner, "log").build(OTHER, Envelope(head(1)), [])
        path.write_bytes(frame.data)
        with pytest.raises(Corrupt, match="another thread"):
            store.heads([THREAD])
        assert store.threads(b"", (), (), None, 9).heads == [(placeholder_key(owner, b""), LOST_HEAD)]

    def test_an_envelope_that_cannot_be_decoded_is_damage(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = log_of(root)
        path.parent.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(frames, "_encode", lambda _: b"\xc1")
            path.write_bytes(Index(sha256(THREAD).digest(), "log").build(THREAD, Envelope(head(1)), []).data)
        assert everything(store) == [Corrupt] * 6

    def test_a_frame_of_a_newer_format_is_refused(
        self, store: FileBackend, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(frames, "FORMAT", 2)
            store.swap([step(1)])
        store._pool.drop()
        with pytest.raises(IncompatibleCheckpoint, match=re.escape("newer Holdfast (format 2)")):
            store.heads([THREAD])

    def test_damage_behind_the_index_is_noticed_when_it_is_read(self, store: FileBackend, root: Path) -> None:
        fill(store)
        with log_of(root).open("r+b") as file:
            file.seek(log_of(root).read_bytes().rindex(b"header 3") - 8)
            file.write(b"\xc1" * 8)
        with pytest.raises(Corrupt, match="at byte"):
            store.rows(THREAD, 3)

    def test_a_file_that_ends_before_an_indexed_row_is_damage(
        self, store: FileBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store)
        with store._pool.take(THREAD) as log:
            index = log.for_reading()
            with pytest.raises(Corrupt, match="ends too early"):
                index.read(log.read, [(index.end - 4, 10)])

    def test_one_damaged_log_of_a_batch_leaves_the_others_to_be_tried_alone(
        self, store: FileBackend, root: Path
    ) -> None:
        store.swap([step(1), step(1, OTHER)])
        rewrite(store, log_of(root), b"garbage")
        with pytest.raises(StoreUnavailable) as caught:
            store.swap([step(2), step(2, OTHER)])
        assert isinstance(caught.value.__cause__, Corrupt)
        assert store.swap([step(2, OTHER)]) == [True]
        with pytest.raises(Corrupt):
            store.swap([step(2)])

    def test_a_reading_across_a_writer_is_repeated_under_the_lock(
        self, store: FileBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(store)
        store._pool.drop()
        real, spoiled = os.pread, list[int]()

        def pread(fd: int, length: int, offset: int) -> bytes:
            data = real(fd, length, offset)
            if not spoiled:
                spoiled.append(offset)
                return data[:100] + b"mixed" + data[105:]
            return data

        monkeypatch.setattr(os, "pread", pread)
        assert store.heads([THREAD]) == [head(3)]
        assert spoiled
