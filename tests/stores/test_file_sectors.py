"""A disk writes sectors: a last frame that lacks any of its own is no write, and damage to it is still damage."""

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import product
from pathlib import Path
from random import Random

import pytest

from holdfast.records.errors import Corrupt
from holdfast.records.head import Head
from holdfast.records.rows import Swap
from holdfast.records.words import Durability
from holdfast.stores.file.frames import HEADER_BYTES, SECTOR, Envelope, Index, end_of_data, last_frame
from rounds import TIMES
from stores.file_scenes import THREAD, head, log_of, opened, row

OWNER = sha256(THREAD).digest()
PLAIN = len(Index(OWNER, "log").build(THREAD, Envelope(head(1)), []).data)
STARTS = [*range(1000, 1000 + SECTOR, 7), *range(1024 - 2 * HEADER_BYTES, 1030)]
"""Where a frame begins: with its header on one sector or on two, and its end anywhere."""

Content = Callable[[int], bytes]


def noise(size: int) -> bytes:
    return Random(size).randbytes(size)


def sparse(size: int) -> bytes:
    """Mostly zeros: sectors of a frame with this content are blank by themselves."""
    return bytes(700) + b"\1" + bytes(max(size - 701, 0))


def log_with(start: int, *contents: bytes) -> tuple[bytes, list[int]]:
    """A log whose second frame begins at `start`, a frame for each content; and where the frames end."""
    index, data, ends = Index(OWNER, "log"), b"", list[int]()
    for seq, content in enumerate((noise(start - PLAIN), *contents), 1):
        frame = index.build(THREAD, Envelope(head(seq)), [content])
        index.accept(frame)
        data += frame.data
        ends.append(len(data))
    assert ends[0] == start
    return data, ends


def read(data: bytes) -> Index:
    """The index of a log with zeros behind it."""
    found, data = Index(OWNER, "log"), data + bytes(2000)
    found.catch_up(lambda offset, length: data[offset : offset + length], len(data))
    return found


def without(data: bytes, start: int, sectors: set[int]) -> bytes:
    """The log as it is if these sectors were not written since it ended at `start`."""
    lost = bytearray(data)
    for sector in sectors:
        first, last = max(sector * SECTOR, start), min((sector + 1) * SECTOR, len(data))
        lost[first:last] = bytes(last - first)
    return bytes(lost)


def sectors_of(start: int, end: int) -> list[int]:
    return list(range(start // SECTOR, (end - 1) // SECTOR + 1))


def subsets(sectors: list[int]) -> Iterator[set[int]]:
    for choice in product((False, True), repeat=len(sectors)):
        yield {sector for sector, is_lost in zip(sectors, choice, strict=True) if is_lost}


STRIDE = 5 if TIMES == 1 else 1
"""Of the bytes that are damaged: each fifth in an ordinary run."""


class TestSectors:
    @pytest.mark.parametrize("content", [noise, sparse])
    @pytest.mark.parametrize("size", [20, 500, 1800])
    def test_a_last_frame_that_lacks_any_of_its_sectors_is_no_write(self, size: int, content: Content) -> None:
        for start in STARTS:
            data, (_, end) = log_with(start, content(size))
            for sectors in subsets(sectors_of(start, end)):
                lost = without(data, start, sectors)
                found = read(lost)
                assert (found.end, found.head) == ((end, head(2)) if lost == data else (start, head(1)))

    @pytest.mark.parametrize("content", [noise, sparse])
    @pytest.mark.parametrize("size", [20, 500, 1800])
    @pytest.mark.faults
    def test_no_damage_to_a_byte_of_a_last_frame_makes_it_no_write(self, size: int, content: Content) -> None:
        for start in (1000, 1024 - HEADER_BYTES - 5, 1024 - HEADER_BYTES, 1024 - 5, 1024):
            data, (_, end) = log_with(start, content(size))
            states = {without(data, start, sectors) for sectors in subsets(sectors_of(start, end))}
            for at in range(start, end, STRIDE):
                for changed in {data[at] ^ 1 << at % 8, data[at] ^ 0xFF, 0} - {data[at]}:
                    damaged = data[:at] + bytes([changed]) + data[at + 1 :]
                    if damaged in states:  # that is what a write that was cut short leaves: nothing can tell
                        continue
                    with pytest.raises(Corrupt):
                        read(damaged)

    def test_a_frame_with_others_behind_it_that_lacks_a_sector_is_damage(self) -> None:
        for start in STARTS:
            data, ends = log_with(start, noise(600), noise(600), noise(600))
            for sector in sectors_of(start, ends[1]):
                with pytest.raises(Corrupt):
                    read(without(data, start, {sector}))

    def test_bytes_behind_a_missing_header_are_searched_for_a_frame_to_their_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.stores.file.frames.SCAN_AHEAD", 100)
        for size in range(300, 420):
            data, _ = log_with(1024, noise(size), b"HFLG" * 9, noise(9))
            with pytest.raises(Corrupt, match="no frame"):
                read(without(data, 1024, {2}))
        data, _ = log_with(1024, noise(size) + b"HFLG" * 100)
        assert read(without(data, 1024, {2})).head == head(1)

    def test_a_digest_that_ends_with_zeros_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Index, "_digest_of", lambda _, data: sha256(data).digest()[:12] + bytes(4))
        data, (start, end) = log_with(1024, noise(SECTOR * 2 + 4 - PLAIN + len(THREAD)))
        assert end % SECTOR == 4
        assert read(data).head == head(2)
        assert read(without(data, start, {3})).head == head(1)
        with pytest.raises(Corrupt, match="digest"):
            read(data[:1200] + bytes([data[1200] ^ 1]) + data[1201:])

    def test_the_last_frame_is_found_in_front_of_zeros_without_reading_the_others(self) -> None:
        data, ends = log_with(300_000, noise(600), noise(601))
        data, reads = data + bytes(200_000), list[int]()

        def reader(offset: int, length: int) -> bytes:
            reads.append(length)
            return data[offset : offset + length]

        found = Index(OWNER, "log")
        assert not last_frame(found, reader, len(data))
        assert last_frame(found, reader, end_of_data(reader, len(data)))
        assert (found.head, found.end) == (head(3), ends[-1])
        assert sum(reads) < 300_000
        assert end_of_data(lambda _, length: bytes(length), 200_000) == 0


class TestPowerLoss:
    """Of all that was not synced the disk has written any sectors, in any order, and one of the two sizes."""

    @pytest.mark.faults
    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
    def test_what_was_acknowledged_is_there_and_the_rest_wholly_or_not_at_all(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
    ) -> None:
        monkeypatch.setattr("holdfast.stores.file.backend.RESERVE_AFTER", 3)
        random, log = Random(seed), log_of(tmp_path / "live")
        durable, copy = opened(tmp_path / "live", Durability.DURABLE), opened(tmp_path / "copy")
        log_of(tmp_path / "copy").parent.mkdir()
        synced, images, heads = b"", list[bytes](), list[bytes | None]([None])

        def fdatasync(_: int) -> None:
            nonlocal synced
            written = log.read_bytes()
            images.extend(_struck(synced, written, random) for _ in range(15))
            synced = written

        monkeypatch.setattr(os, "fdatasync", fdatasync)
        for seq in range(1, 40):
            body = random.choice((noise, sparse))(random.randrange(3000))
            heads.append(head(seq))
            assert durable.swap([Swap(THREAD, heads[-2] or b"", head(seq), Head(), rows=(row(seq, body),))]) == [True]
            for image in images:
                copy._pool.drop()
                log_of(tmp_path / "copy").write_bytes(image)
                (found,) = copy.heads([THREAD])
                assert found in heads[-2:]
                assert copy.swap([Swap(THREAD, found or b"", head(99), Head(), rows=(row(99),))]) == [True]
                last = seq if found == heads[-1] else seq - 1
                assert [at.seq for at in copy.index(THREAD, None, None)] == [99, *range(last, 0, -1)]
            images.clear()
        durable.close()
        copy.close()


def _struck(old: bytes, new: bytes, random: Random) -> bytes:
    size, share = random.choice((len(old), len(new))), random.random()
    sectors = (
        (new if random.random() < share else old)[at : at + SECTOR].ljust(SECTOR, b"\0")
        for at in range(0, size, SECTOR)
    )
    return b"".join(sectors)[:size]
