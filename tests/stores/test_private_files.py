"""What Holdfast writes to disk is for its owner alone, and nothing that others planted is followed or waited for."""

import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.records.rows import Drop
from holdfast.stores.copying import back_up
from holdfast.stores.file import FileBackend
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.sqlite import SQLiteBackend
from stores.file_scenes import THREAD, fail, head, log_of, opened, step
from stores.hooked import Hooked

KINDS = ["named pipe", "socket", "directory", "symbolic link", "dangling symbolic link"]


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """The umask of most machines: it lets everyone read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file elsewhere, that a planted link leads to."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "victim").write_bytes(b"precious")
    return place / "victim"


def modes_in(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): oct(path.lstat().st_mode & 0o777) for path in root.rglob("*")}


def plant(path: Path, kind: str, victim: Path) -> None:
    """Put something in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            here = Path.cwd()
            os.chdir(path.parent)  # the name of a socket has to be short
            listener.bind(path.name)
            os.chdir(here)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(victim if kind == "symbolic link" else victim.with_name("missing"))


def assert_untouched(victim: Path) -> None:
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]
    assert victim.read_bytes() == b"precious"


class TestModes:
    def test_all_files_of_a_sqlite_store_are_private(self, tmp_path: Path) -> None:
        with sync.open(tmp_path / "store.db") as store:
            store.save("t", {})
            names = ("store.db", "store.db-lock", "store.db-shm", "store.db-wal")
            assert modes_in(tmp_path) == dict.fromkeys(names, "0o600")

    def test_files_beside_a_database_have_its_mode(self, tmp_path: Path) -> None:
        (tmp_path / "store.db").touch()
        (tmp_path / "store.db").chmod(0o660)
        with sync.open(tmp_path / "store.db") as store:
            store.save("t", {})
            assert set(modes_in(tmp_path).values()) == {"0o660"}

    def test_who_may_only_read_a_database_cannot_lock_it(self, tmp_path: Path) -> None:
        (tmp_path / "store.db").touch(0o644)
        with sync.open(tmp_path / "store.db") as store:
            store.save("t", {})
        assert modes_in(tmp_path) == {"store.db": "0o644", "store.db-lock": "0o600"}

    def test_all_of_a_file_store_is_private(self, tmp_path: Path) -> None:
        store = opened(tmp_path / "store")
        store.swap([step(1)])
        store.close()
        log = log_of(tmp_path / "store").relative_to(tmp_path)
        private = dict.fromkeys(("store", "store/threads", str(log.parent)), "0o700")
        assert modes_in(tmp_path) == private | {"store/holdfast.json": "0o600", str(log): "0o600"}

    def test_a_log_that_is_replaced_keeps_its_mode(self, tmp_path: Path) -> None:
        store = opened(tmp_path)
        store.swap([step(1)])
        log_of(tmp_path).chmod(0o640)
        store.swap([step(2, drop=Drop(rows=((1, 2),)))])
        assert modes_in(tmp_path)[str(log_of(tmp_path).relative_to(tmp_path))] == "0o640"
        store.close()

    def test_bundles_and_backups_are_private(self, tmp_path: Path) -> None:
        with sync.MemoryStore() as store:
            store.save("t", {})
            store.export("t", tmp_path / "bundle")
            store.backup(tmp_path / "backup.db")
        assert modes_in(tmp_path) == dict.fromkeys(("bundle", "backup.db", "backup.db-lock"), "0o600")

    def test_a_bundle_that_is_replaced_keeps_its_mode(self, tmp_path: Path) -> None:
        (tmp_path / "bundle").touch(0o644)
        with sync.MemoryStore() as store:
            store.save("t", {})
            store.export("t", tmp_path / "bundle")
        assert modes_in(tmp_path) == {"bundle": "0o644"}


class TestBundles:
    def test_an_export_follows_no_link(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / "bundle.part").symlink_to(victim)
        (tmp_path / "bundle").symlink_to(victim)
        with sync.MemoryStore() as store:
            store.save("t", {})
            store.export("t", tmp_path / "bundle")
        assert_untouched(victim)
        assert not (tmp_path / "bundle").is_symlink()
        assert (tmp_path / "bundle.part").is_symlink()

    def test_an_export_that_fails_leaves_nothing_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with sync.MemoryStore() as store:
            store.save("t", {})
            monkeypatch.setattr(os, "fsync", fail(OSError("disk is full")))
            with pytest.raises(sync.StoreUnavailable, match="disk is full"):
                store.export("t", tmp_path / "bundle")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("kind", ["named pipe", "socket", "directory"])
    def test_what_is_no_file_is_neither_replaced_nor_read(self, kind: str, tmp_path: Path, victim: Path) -> None:
        plant(tmp_path / "bundle", kind, victim)
        before = (tmp_path / "bundle").lstat()
        with sync.MemoryStore() as store:
            store.save("t", {})
            with pytest.raises(sync.StoreUnavailable, match=f"a {kind} is in the place"):
                store.export("t", tmp_path / "bundle")
            with pytest.raises(sync.NotFound):
                store.import_(tmp_path / "bundle")
        assert (tmp_path / "bundle").lstat() == before

    def test_a_device_is_not_read_as_a_bundle(self) -> None:
        with sync.MemoryStore() as store, pytest.raises(sync.NotFound, match="a device is in the place"):
            store.import_("/dev/zero")

    def test_a_backup_follows_no_link(self, tmp_path: Path, victim: Path) -> None:
        """Also if it is planted after the name was looked at."""
        backend = Hooked(MemoryBackend())
        backend.before("check", lambda: (tmp_path / "backup.db").symlink_to(victim.with_name("missing")))
        with pytest.raises(sync.Conflict, match="exists already"):
            back_up(backend, str(tmp_path / "backup.db"))
        assert_untouched(victim)


class TestSQLite:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("suffix", ["-lock", "-wal", "-shm", "-journal"])
    def test_what_is_planted_beside_a_database_is_refused_at_once(
        self, kind: str, suffix: str, tmp_path: Path, victim: Path
    ) -> None:
        path = tmp_path / "store.db"
        with sync.open(path) as store:
            store.save("t", 1)
        plant(Path(f"{path}{suffix}"), kind, victim)
        with pytest.raises(sync.StoreUnavailable, match=f"{kind.removeprefix('dangling ')} is in the place") as caught:
            sync.open(path).save("t", 2)
        assert f"{path}{suffix}" in str(caught.value)
        assert_untouched(victim)

    @pytest.mark.parametrize("kind", ["named pipe", "socket"])
    def test_what_is_no_file_is_no_database(self, kind: str, tmp_path: Path, victim: Path) -> None:
        plant(tmp_path / "store.db", kind, victim)
        with pytest.raises(sync.StoreUnavailable, match=f"a {kind} is in the place of a regular file"):
            sync.open(tmp_path / "store.db").save("t", 1)
        assert [path.name for path in tmp_path.glob("store*")] == ["store.db"]

    def test_a_device_is_no_database(self) -> None:
        with pytest.raises(sync.StoreUnavailable, match="a device is in the place of a regular file"):
            sync.open("/dev/null").save("t", 1)

    def test_a_second_handle_leaves_the_locks_of_the_first(self, tmp_path: Path) -> None:
        """Without them another process would take the write-ahead log away, and what is written to it be lost."""
        path = tmp_path / "store.db"
        first, second = SQLiteBackend(str(path)), SQLiteBackend(str(path))
        first.open()
        held = locks_on(path)
        second.open()
        assert held
        assert locks_on(path) == held
        second.close()
        first.close()


def locks_on(path: Path) -> list[str]:
    """The locks of all processes on a file, as Linux lists them."""
    inode = f":{path.stat().st_ino}"
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return [" ".join(fields[1:]) for fields in lines if any(field.endswith(inode) for field in fields)]


Use = Callable[[FileBackend], object]
USES: dict[str, Use] = {
    "read": lambda store: store.heads([THREAD]),
    "write": lambda store: store.swap([step(2)]),
    "list": lambda store: store.threads(b"", (), (), None, 9),
    "check": lambda store: store.check(),
    "post": lambda store: store.post(THREAD, "key", b"message"),
}


class TestFileStore:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        store = opened(tmp_path / "store")
        store.swap([step(1)])
        store.close()
        return tmp_path / "store"

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("use", USES)
    def test_what_is_planted_in_the_place_of_a_log_is_refused_at_once(
        self, kind: str, use: str, root: Path, victim: Path
    ) -> None:
        plant(log_of(root), kind, victim)
        store = opened(root)
        if use in {"list", "check"}:
            assert USES[use](store)  # tests/stores/test_damaged_logs.py says what
        else:
            with pytest.raises(sync.Corrupt, match="is in the place of a regular file"):
                USES[use](store)
        store.close()
        assert_untouched(victim)

    @pytest.mark.parametrize("name", ["threads", "shard"])
    @pytest.mark.parametrize("use", USES)
    def test_no_link_leads_out_of_the_root(self, name: str, use: str, root: Path, tmp_path: Path) -> None:
        """Not even to a directory that looks right."""
        store = opened(root)
        place = root / "threads" if name == "threads" else log_of(root).parent
        outside = place.rename(tmp_path / "outside")
        place.symlink_to(outside)
        before = {path: path.read_bytes() for path in outside.rglob("*.log")}
        with pytest.raises(sync.StoreUnavailable, match="a symbolic link is in the place of a directory"):
            USES[use](store)
        store.close()
        assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before

    def test_a_link_in_the_place_of_all_threads_is_refused_at_open(self, root: Path, tmp_path: Path) -> None:
        (root / "threads").rename(tmp_path / "outside")
        (root / "threads").symlink_to(tmp_path / "outside")
        with pytest.raises(sync.StoreUnavailable, match="a symbolic link is in the place of a directory"):
            opened(root)

    def test_a_new_log_is_not_made_through_a_link(self, root: Path, victim: Path) -> None:
        log_of(root).unlink()
        log_of(root).parent.rmdir()
        log_of(root).parent.symlink_to(victim.parent)
        store = opened(root)
        with pytest.raises(sync.StoreUnavailable, match="a symbolic link is in the place of a directory"):
            store.swap([step(1)])
        store.close()
        assert_untouched(victim)

    @pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "directory"])
    def test_a_drop_writes_through_nothing_that_was_planted(self, kind: str, root: Path, victim: Path) -> None:
        store = opened(root)
        store.swap([step(2)])
        plant(log_of(root).with_suffix(".new"), kind, victim)
        assert store.swap([step(3, drop=Drop(rows=((1, 2),)))]) == [True]
        assert store.heads([THREAD]) == [head(3)]
        store.close()
        assert_untouched(victim)
        assert stat.S_ISREG(log_of(root).lstat().st_mode)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_planted_marker_is_refused_at_once(self, kind: str, root: Path, victim: Path) -> None:
        plant(root / "holdfast.json", kind, victim)
        with pytest.raises(sync.StoreUnavailable, match="is in the place of a regular file"):
            opened(root)
        assert_untouched(victim)

    def test_the_marker_is_not_written_through_a_link(self, tmp_path: Path, victim: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "holdfast.new").symlink_to(victim)
        opened(tmp_path / "new").close()
        assert_untouched(victim)

    def test_the_root_itself_may_be_a_link(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(root)
        store = opened(tmp_path / "link")
        assert store.heads([THREAD]) == [head(1)]
        store.close()


def test_an_error_names_the_whole_path(tmp_path: Path, victim: Path) -> None:
    opened(tmp_path / "store").close()
    log_of(tmp_path / "store").parent.mkdir()
    plant(log_of(tmp_path / "store"), "named pipe", victim)
    store = opened(tmp_path / "store")
    with pytest.raises(sync.Corrupt, match=re.escape(str(log_of(tmp_path / "store")))):
        store.heads([THREAD])
    store.close()
