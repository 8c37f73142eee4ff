"""Bundles and backups in bad company: races, full disks, and files that are something else."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.random_walk import TIGHT
from holdfast import sync
from holdfast.codec import decode, encode
from holdfast.codec.seal import Seal
from holdfast.stores import bundle, copying
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.conformance.samples import Line, head, rows
from holdfast.testing.handles import blocking_store
from stores.hooked import Hooked


class Sides:
    """A store, something that can happen between its calls, and another store on the same threads."""

    def __init__(self) -> None:
        self.memory = MemoryBackend()
        self.memory.tuning = TIGHT
        self.hooked = Hooked(self.memory)
        self.store = blocking_store(self.hooked, closes=False)
        self.other = blocking_store(self.memory, closes=False)
        for number in range(1, 16):
            self.other.save("t", state_at(number))


def state_at(number: int) -> dict[str, Any]:
    return {"n": number, "text": str(number) * 200}


@pytest.fixture
def sides() -> Sides:
    return Sides()


@pytest.mark.parametrize("call", ["heads", "index", "rows", "blobs"])
def test_an_export_during_a_prune_is_of_one_moment(sides: Sides, call: str, tmp_path: Path) -> None:
    sides.hooked.before(call, lambda: sides.other.prune(sync.Retention(keep_last=2)))
    sides.store.export("t", tmp_path / "bundle")
    with sync.MemoryStore() as store:
        store.import_(tmp_path / "bundle")
        seqs = [info.seq for info in store.history("t")]
        assert seqs in ([15, 14], list(range(15, 0, -1)))
        for seq in seqs:
            assert store.get("t", seq).state == state_at(seq)
        assert store.verify().ok


def test_an_export_of_a_damaged_thread_is_refused(sides: Sides, tmp_path: Path) -> None:
    del sides.memory._threads[b"\0t"].rows[7]
    with pytest.raises(sync.Corrupt):
        sides.store.export("t", tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_cannot_be_written_says_so(sides: Sides, tmp_path: Path) -> None:
    with pytest.raises(sync.StoreUnavailable, match="cannot write"):
        sides.store.export("t", tmp_path / "missing" / "bundle")


def test_an_export_that_fails_leaves_the_old_bundle(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bundle").write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(sync.StoreUnavailable, match="No space left"):
        sides.store.export("t", tmp_path / "bundle")
    assert (tmp_path / "bundle").read_bytes() == b"old"


def test_an_import_that_loses_a_race_is_refused(sides: Sides, tmp_path: Path) -> None:
    sides.store.export("t", tmp_path / "bundle")
    sides.hooked.before("swap", lambda: sides.other.save("copy", 1))
    with pytest.raises(sync.Conflict, match="meanwhile"):
        sides.store.import_(tmp_path / "bundle", "copy")
    assert sides.other.get("copy", 1).state == 1


def test_an_imported_thread_can_be_exported_again(sides: Sides, tmp_path: Path) -> None:
    """Also one with gaps in its log."""
    sides.store.pin(sides.store.get("t", 2).id)
    sides.store.prune(sync.Retention(keep_last=2))
    sides.store.export("t", tmp_path / "first")
    with sync.MemoryStore() as store:
        store.import_(tmp_path / "first")
        store.export("t", tmp_path / "second")
        store.import_(tmp_path / "second", "copy")
        assert [info.seq for info in store.history("copy")] == [15, 14, 2]
        assert store.get("copy", 2).state == state_at(2)
        assert store.verify().ok


def frames_of(path: Path) -> list[Any]:
    """What is in a plain bundle."""
    with path.open("rb") as file:
        file.read(len(bundle.MAGIC) + 2)
        reader = bundle._Frames(Seal())
        return list(iter(lambda: reader.read(file), None))


def write_frames(path: Path, frames: list[Any]) -> None:
    """A plain bundle with other frames, each of them sound."""
    with path.open("wb") as file:
        file.write(bundle.MAGIC)
        bundle._write_frames(file, frames, None, os.urandom)


def forgeries(frames: list[Any]) -> Iterator[list[Any]]:
    """Bundles that are sound frame by frame, and not what `export` writes."""
    yield frames[1:]
    yield frames[:-1]
    yield frames[:5] + frames[6:]
    yield [frames[0], frames[-1]]
    yield [{}, *frames[1:]]
    yield [5, *frames[1:]]
    yield [frames[0], ["row"], *frames[2:]]
    yield [frames[0], 7, *frames[2:]]
    yield [{**frames[0], "marks": None}, *frames[1:]]
    yield [{**frames[0], "labels": {"a": 5}}, *frames[1:]]
    yield [frames[0], *[["row", 1] if frame[0] == "row" else frame for frame in frames[1:-1]], frames[-1]]
    yield []
    yield [frames[0]]


def test_forged_bundles_are_refused(sides: Sides, tmp_path: Path) -> None:
    sides.store.export("t", tmp_path / "bundle")
    frames = frames_of(tmp_path / "bundle")
    assert decode(encode(frames[-1])) == ["end", 15, len([frame for frame in frames[1:] if frame[0] == "blob"])]
    with sync.MemoryStore() as store:
        for number, forged in enumerate(forgeries(frames)):
            write_frames(tmp_path / "forged", forged)
            try:
                store.import_(tmp_path / "forged", f"copy {number}")
            except (sync.Corrupt, sync.InvalidId):
                assert store.latest(f"copy {number}") is None
            else:
                raise AssertionError(f"forgery {number} was imported")


@pytest.mark.parametrize("call", ["heads", "index", "rows", "blobs"])
def test_a_backup_during_a_prune_is_whole(sides: Sides, call: str, tmp_path: Path) -> None:
    sides.hooked.before(call, lambda: sides.other.prune(sync.Retention(keep_last=2)))
    sides.store.backup(tmp_path / "backup.db")
    with sync.open(tmp_path / "backup.db") as copy:
        latest = copy.latest("t")
        assert latest is not None
        assert latest.state == state_at(15)
        assert copy.verify().ok


def test_a_backup_leaves_out_what_is_deleted_meanwhile(sides: Sides, tmp_path: Path) -> None:
    sides.other.save("u", 1)
    sides.hooked.before("heads", lambda: sides.other.delete("u"))
    sides.store.backup(tmp_path / "backup.db")
    with sync.open(tmp_path / "backup.db") as copy:
        assert [info.thread_id for info in copy.threads()] == ["t"]


def test_a_backup_takes_messages_along(tmp_path: Path) -> None:
    source, target = MemoryBackend(), MemoryBackend()
    line = Line(source)
    line.put(head(), rows(1))
    source.post(line.key, "k", b"v")
    backup_rows = source.index(line.key, None, None)
    assert backup_rows
    with pytest.raises(sync.Corrupt):
        copying.copy_thread(source, target, line.key)
    copying.copy_thread(source, target, b"\0never")
    assert target.threads(b"", (), (), None, 9).heads == []


def test_messages_of_a_thread_are_in_its_backup(sides: Sides) -> None:
    sides.memory.post(b"\0t", "k", b"v")
    target = MemoryBackend()
    copying.copy_all(sides.memory, target)
    assert target.inbox(b"\0t") == {"k": b"v"}


def test_a_backup_of_more_than_a_page_of_threads_is_whole(tmp_path: Path) -> None:
    source, target = MemoryBackend(), MemoryBackend()
    with sync.Store(source) as store:
        for number in range(1003):
            store.save(f"t{number}", number)
        copying.copy_all(source, target)
        assert store.stats().threads == 1003
    assert len(target.threads(b"", (), (), None, 5000).heads) == 1003


def test_a_thread_that_never_rests_cannot_be_backed_up(sides: Sides) -> None:
    class Restless(Hooked):
        def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Any]:
            sides.other.save("t", {"again": True})
            return super().index(thread, before, limit)

    with pytest.raises(sync.Conflict, match=r"gave up after \d+ conflicting writes to thread"):
        copying.copy_thread(Restless(sides.memory), MemoryBackend(), b"\0t")


@pytest.mark.parametrize("name", ["nul\0", "missing/backup.db"])
def test_a_backup_that_cannot_be_written_says_so(sides: Sides, name: str, tmp_path: Path) -> None:
    with pytest.raises((sync.ConfigurationError, sync.StoreUnavailable)):
        sides.store.backup(f"{tmp_path}/{name}")
