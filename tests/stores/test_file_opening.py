"""Which directories a file store takes, how it marks them, and when it can be used."""

import errno
import fcntl
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    StoreClosed,
    StoreUnavailable,
)
from holdfast.records.words import Durability
from holdfast.stores.file import FileBackend
from stores.file_scenes import THREAD, fail, head, names_in, open_files, opened, recorded, step

BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


class TestOpening:
    def test_a_store_is_made_with_all_directories_above_it_and_found_again(self, tmp_path: Path) -> None:
        place = tmp_path / "one" / "two" / "three"
        first = opened(place, Durability.DURABLE)
        first.open()
        first.swap([step(1)])
        first.close()
        again = opened(place, Durability.DURABLE)
        assert again.heads([THREAD]) == [head(1)]
        again.close()
        assert json.loads((place / "holdfast.json").read_bytes()) == {"store": "holdfast", "format": 1}

    def test_every_new_directory_is_synced_into_its_parent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = recorded(monkeypatch)
        opened(tmp_path / "one" / "two", Durability.DURABLE).close()
        names = [name for call, name in calls if call == "fsync"]
        assert names == [tmp_path.name, "one", "holdfast.new", "two"]

    def test_a_directory_with_foreign_files_is_refused_and_left_alone(self, root: Path) -> None:
        root.mkdir()
        (root / "thesis.txt").write_text("mine")
        with pytest.raises(ConfigurationError, match=re.escape("thesis.txt")):
            opened(root)
        assert names_in(root) == ["thesis.txt"]

    def test_a_directory_whose_marker_was_never_finished_is_taken(self, root: Path) -> None:
        root.mkdir()
        (root / "holdfast.new").write_bytes(b"{")
        opened(root).close()
        assert names_in(root) == ["holdfast.json", "threads"]

    @pytest.mark.parametrize("below", ["", "below"])
    def test_a_file_is_no_store(self, tmp_path: Path, below: str) -> None:
        (tmp_path / "file").write_text("mine")
        with pytest.raises(ConfigurationError, match="not a directory"):
            opened(tmp_path / "file" / below)

    def test_a_newer_format_is_refused(self, root: Path) -> None:
        opened(root).close()
        (root / "holdfast.json").write_text('{"store": "holdfast", "format": 2}')
        with pytest.raises(IncompatibleCheckpoint, match="upgrade"):
            opened(root)

    @pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "x"}', "\ufffd"])
    def test_a_damaged_marker_is_reported(self, root: Path, content: str) -> None:
        opened(root).close()
        (root / "holdfast.json").write_text(content)
        with pytest.raises(Corrupt) as caught:
            opened(root)
        assert caught.value.record == "holdfast.json"

    def test_a_file_system_without_locks_is_refused(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fcntl, "flock", fail(OSError(errno.ENOLCK, "No locks available")))
        with pytest.raises(ConfigurationError, match="local"):
            opened(root)

    def test_a_place_that_cannot_be_written_is_unavailable(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "fsync", fail(BROKEN))
        with pytest.raises(StoreUnavailable):
            opened(root)

    def test_nothing_works_before_open_or_after_close(self, root: Path) -> None:
        store = FileBackend(str(root))
        with pytest.raises(StoreClosed, match="not open yet"):
            store.heads([THREAD])
        store.open()
        store.swap([step(1)])
        before = open_files(root)
        store.close()
        store.close()
        assert open_files(root) == before - 1
        calls: list[Callable[[], object]] = [
            store.open,
            lambda: store.heads([THREAD]),
            lambda: store.swap([step(2)]),
            lambda: store.threads(b"", (), (), None, 9),
            lambda: store.post(THREAD, "key", b""),
        ]
        for call in calls:
            with pytest.raises(StoreClosed, match="was closed"):
                call()
