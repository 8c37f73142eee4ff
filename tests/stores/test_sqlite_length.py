"""A SQLite file that was cut short is refused, and one that only looks so is not: its log has the rest."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.stores.sqlite_pages import LOCK_BYTE, is_cut_short, logged_pages
from holdfast.testing.crash_engine import sampled
from kinds import open_store
from rounds import points
from stores.damage_scenes import answers, files_of, fill, judge, restore_files

pytestmark = pytest.mark.faults

PAGE = 4096


def sample(lengths: range) -> list[int]:
    """Some of the lengths in an ordinary run, the first and the last among them."""
    return [lengths[number - 1] for number in sampled(len(lengths), points(8))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def closed(directory: Path) -> None:
    """A store that is all in its file."""
    with open_store("sqlite", directory) as store:
        fill(store)


def crashed(directory: Path) -> dict[Path, bytes]:
    """The files of a store that had three threads in its file, and grew in its log until it was killed."""
    closed(directory)
    store = open_store("sqlite", directory)
    for number in range(20):
        store.save("delta", {"n": number, "text": f"{number} says " * 500})
    files = files_of(directory)
    store.close()
    restore_files(directory, files)
    return files


def log_of(frames: Iterable[tuple[int, bytes]]) -> bytes:
    """A write-ahead log with frames of these pages, each with the salt of the use that it was written in."""
    header = b"\x37\x7f\x06\x82" + (3007000).to_bytes(4) + PAGE.to_bytes(4) + bytes(4) + b"new salt" + bytes(8)
    return header + b"".join(page.to_bytes(4) + bytes(4) + salt + bytes(8 + PAGE) for page, salt in frames)


@pytest.mark.parametrize("left", [1, 15, 100, PAGE - 1, PAGE, PAGE + 1, -PAGE, -1])
def test_a_file_cut_short_is_refused_at_open(left: int, path: Path) -> None:
    closed(path.parent)
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    for _ in range(2):
        with pytest.raises(sync.Corrupt, match="restore a backup"), sync.open(path) as store:
            store.latest("alpha")
        assert path.read_bytes() == whole[:left], "what is left is not touched"


def test_a_file_whose_last_pages_are_in_the_log_is_whole(path: Path) -> None:
    files = crashed(path.parent)
    assert max(logged_pages(str(path))) > len(files[path]) // PAGE
    with open_store("sqlite", path.parent) as store:
        latest = store.latest("delta")
        assert latest is not None
        assert latest.state["n"] == 19
        assert store.verify().ok
    assert path.stat().st_size > len(files[path])


def test_a_store_that_was_never_closed_is_whole_without_a_file_to_speak_of(path: Path) -> None:
    store = open_store("sqlite", path.parent)
    store.save("t", {"n": 1})
    files = files_of(path.parent)
    store.close()
    assert len(files[path]) <= PAGE
    restore_files(path.parent, files)
    with open_store("sqlite", path.parent) as store:
        assert store.get("t", 1).state == {"n": 1}


def test_a_file_cut_short_beside_its_log_is_right_or_refused(path: Path) -> None:
    files = crashed(path.parent)
    with open_store("sqlite", path.parent) as store:
        right = answers(store)
    refused = {}
    for cut in sample(range(len(files[path]) - 1, 0, -PAGE // 2)):
        restore_files(path.parent, {**files, path: files[path][:cut]})
        refused[cut] = judge(lambda: open_store("sqlite", path.parent), right)
    assert any(refused.values())
    assert refused[min(refused)] == len(right)


def test_a_checkpoint_that_was_cut_off_anywhere_is_not_missed(path: Path) -> None:
    """It writes the pages of the log into the file one by one, the first of which tells the new length at once."""
    files = crashed(path.parent)
    with open_store("sqlite", path.parent) as store:
        right = answers(store)
    moved = path.read_bytes()
    assert len(moved) > len(files[path]) + PAGE
    for end in sample(range(len(files[path]), len(moved), PAGE // 2)):
        restore_files(path.parent, {**files, path: moved[:end]})
        assert judge(lambda: open_store("sqlite", path.parent), right) == 0, end


def test_an_emptied_file_beside_its_log_is_refused(path: Path) -> None:
    files = crashed(path.parent)
    restore_files(path.parent, {**files, path: b""})
    with pytest.raises(sync.Corrupt, match="emptied"), open_store("sqlite", path.parent) as store:
        store.latest("alpha")
    assert Path(f"{path}-wal").read_bytes() == files[Path(f"{path}-wal")]


def test_a_file_cut_short_while_it_is_open_is_found_by_verify(path: Path) -> None:
    closed(path.parent)
    with open_store("sqlite", path.parent) as store:
        store.save("t", {"n": 1})
        assert store.verify().ok
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 10)
        report = store.verify()
    assert not report.ok
    assert any("cut short" in problem.message for problem in report.problems)


def test_the_page_of_the_locks_is_never_written(tmp_path: Path) -> None:
    path, page = str(tmp_path / "large.db"), LOCK_BYTE // PAGE + 1
    with Path(path).open("wb") as file:
        file.truncate(LOCK_BYTE)  # with nothing in it, it takes no room
    Path(f"{path}-wal").write_bytes(log_of([(page + 1, b"new salt")]))
    assert not is_cut_short(path, page + 1, PAGE)
    assert is_cut_short(path, page + 2, PAGE)


def test_frames_that_an_earlier_use_of_the_log_left_do_not_count(path: Path) -> None:
    path.write_bytes(bytes(PAGE))
    Path(f"{path}-wal").write_bytes(log_of([(2, b"new salt"), (3, b"new salt"), (4, b"old salt")]))
    assert [*logged_pages(str(path))] == [2, 3]
    assert not is_cut_short(str(path), 3, PAGE)
    assert is_cut_short(str(path), 4, PAGE)
