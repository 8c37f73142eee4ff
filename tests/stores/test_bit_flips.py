"""Bit flips anywhere in the files of a store: the right data or an error, never wrong data, never "not there".

One exception: listings of SQLite are made from its indexes, which only `verify` compares with the threads.
"""

from pathlib import Path
from random import Random

import pytest

from holdfast import sync
from holdfast.codec.seal import Seal
from holdfast.history.binding import Binding
from holdfast.testing.exact import assert_exact
from kinds import open_store, url_of
from rounds import rounds
from stores.damage_scenes import THREADS, answers, files_of, fill, judge, restore_files, state_at

PLACES = rounds(20, 400)

pytestmark = pytest.mark.faults


def filled(kind: str, directory: Path) -> None:
    """A store that was filled and closed properly."""
    with open_store(kind, directory) as store:
        fill(store)


def flip_bits(kind: str, directory: Path, places: int, seed: int = 11) -> int:
    """Flip one bit at a time; returns how many questions were refused in all."""
    filled(kind, directory)
    with open_store(kind, directory) as store:
        right = answers(store)
    files, random, refused = files_of(directory), Random(seed), 0
    targets = [path for path, data in files.items() if data]
    sizes = [len(files[path]) for path in targets]
    for _ in range(places):
        path = random.choices(targets, sizes)[0]
        at, bit = random.randrange(len(files[path])), 1 << random.randrange(8)
        damaged = bytearray(files[path])
        damaged[at] ^= bit
        restore_files(directory, {**files, path: bytes(damaged)})
        try:
            refused += judge(lambda: open_store(kind, directory), right, has_indexes=kind == "sqlite")
        except AssertionError as error:
            raise AssertionError(f"bit {bit} of byte {at} of {path.name}: {error}") from error
    return refused


def test_no_flipped_bit_is_returned_as_data(disk_kind: str, tmp_path: Path) -> None:
    refused = flip_bits(disk_kind, tmp_path, PLACES)
    assert refused > PLACES // 4, "many flips hit something"


def test_flipped_bits_are_found_where_digests_are_skipped(
    disk_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same test must fail with an engine that checks nothing."""
    from holdfast.history import restore
    from holdfast.history.format import decode_header

    monkeypatch.setattr(restore, "verify_row", decode_header)
    monkeypatch.setattr(Binding, "unseal_blob", lambda self, blob, stored: Seal().unseal(stored, b"", record=""))
    monkeypatch.setattr("holdfast.stores.file.frames.Index._digest_of", lambda self, data: bytes(data[-16:]))
    with pytest.raises(Exception):  # noqa: B017, PT011  wrong data, or an error that is not ours
        flip_bits(disk_kind, tmp_path, PLACES)


def test_a_store_that_was_not_closed_is_as_well_guarded(disk_kind: str, tmp_path: Path) -> None:
    """With the write-ahead log, or the last frames, still on their own."""
    (tmp_path / "live").mkdir()
    store = open_store(disk_kind, tmp_path / "live")
    fill(store)
    (tmp_path / "copy").mkdir()
    files = {
        tmp_path / "copy" / path.relative_to(tmp_path / "live"): data
        for path, data in files_of(tmp_path / "live").items()
    }
    store.close()
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    restore_files(tmp_path / "copy", files)
    with open_store(disk_kind, tmp_path / "copy") as reopened:
        right = answers(reopened)
    assert right["latest alpha"][1] == 12


def test_damage_is_named(disk_kind: str, tmp_path: Path) -> None:
    filled(disk_kind, tmp_path)
    files = files_of(tmp_path)
    path = max(files, key=lambda path: len(files[path]))
    damaged = bytearray(files[path])
    used = next(at for at in range(len(damaged) // 2, len(damaged)) if damaged[at])  # zeros may be unused space
    damaged[used] ^= 1
    restore_files(tmp_path, {**files, path: bytes(damaged)})
    with open_store(disk_kind, tmp_path) as store:
        report = store.verify()
    assert not report.ok
    assert all(problem.message for problem in report.problems)


def test_an_encrypted_store_is_as_well_guarded(disk_kind: str, tmp_path: Path) -> None:
    keys = sync.KeyRing({"k": b"k" * 32}, "k")

    def opened() -> sync.Store:
        return sync.open(url_of(disk_kind, tmp_path), durability="process", keys=keys)

    with opened() as store:
        fill(store)
        right = answers(store)
    files, random = files_of(tmp_path), Random(3)
    for _ in range(rounds(20, 100)):
        path = random.choices(list(files), [len(data) for data in files.values()])[0]
        damaged = bytearray(files[path])
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        restore_files(tmp_path, {**files, path: bytes(damaged)})
        judge(opened, right, has_indexes=disk_kind == "sqlite")


def test_a_database_cut_short_is_never_taken_for_a_shorter_one(tmp_path: Path) -> None:
    """A file store ends where its last whole frame does, and cannot tell; SQLite knows how long it should be."""
    filled("sqlite", tmp_path)
    with open_store("sqlite", tmp_path) as store:
        right = answers(store)
    files, random = files_of(tmp_path), Random(5)
    path = max(files, key=lambda path: len(files[path]))
    cuts = {random.randrange(2, len(files[path])) for _ in range(rounds(10, 40))} | {len(files[path]) - 4096, 4096, 2}
    for cut in cuts:
        restore_files(tmp_path, {**files, path: files[path][:cut]})
        assert judge(lambda: open_store("sqlite", tmp_path), right, has_indexes=True) > 0


def test_a_log_cut_short_is_its_own_past_or_damage(tmp_path: Path) -> None:
    """What is left of a file store's log is exact, up to the last frame that is whole."""
    filled("file", tmp_path)
    files, random = files_of(tmp_path), Random(6)
    logs = [path for path in files if path.suffix == ".log"]
    for _ in range(rounds(20, 60)):
        path = random.choice(logs)
        restore_files(tmp_path, {**files, path: files[path][: random.randrange(len(files[path]))]})
        with open_store("file", tmp_path) as store:
            for thread_id in THREADS:
                latest = store.latest(thread_id)
                if latest is not None:
                    assert_exact(state_at(thread_id, latest.seq), latest.state)
