"""What is particular to SQLite: schema, pragmas, refusals, and what remains in the file."""

import errno
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores import sqlite_file
from holdfast.stores.sql import migrations, statements
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.stores.sqlite_file import APPLICATION_ID, migrate
from holdfast.stores.sqlite_schema import FIRST
from holdfast.testing.conformance.samples import Line, head, rows
from stores.file_scenes import open_files

CANARY = b"canary-2718281"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def schema_of(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    return sorted(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def test_migrations_are_numbered_without_a_gap() -> None:
    from importlib.resources import files

    names = sorted(entry.name for entry in files("holdfast.stores.sql").iterdir() if entry.name.startswith("sqlite_"))
    assert names == [f"sqlite_{number:03}.sql" for number in range(FIRST, FIRST + len(names))]
    assert len(migrations("sqlite")) == len(names)


def test_a_migrated_database_equals_a_fresh_one() -> None:
    """Whichever version it began with."""
    scripts = [*migrations("sqlite"), "CREATE VIEW later AS SELECT 1 AS one;"]
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    migrate(fresh, scripts, "fresh")
    for count in range(1, len(scripts) + 1):
        old = sqlite3.connect(":memory:", isolation_level=None)
        migrate(old, scripts[:count], "old")
        assert old.execute("PRAGMA user_version").fetchone() == (FIRST + count - 1,)
        migrate(old, scripts, "old")
        migrate(old, scripts, "old")
        assert schema_of(old) == schema_of(fresh)
        assert old.execute("PRAGMA user_version").fetchone() == fresh.execute("PRAGMA user_version").fetchone()
        old.close()
    fresh.close()


def test_a_migration_that_fails_changes_nothing() -> None:
    scripts = migrations("sqlite")
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, scripts, "file")
    before = schema_of(connection)
    with pytest.raises(sqlite3.Error):
        migrate(connection, [*scripts, "CREATE TABLE half (a); CREATE TABLE half (a);"], "file")
    if connection.in_transaction:
        connection.rollback()
    assert schema_of(connection) == before
    assert connection.execute("PRAGMA user_version").fetchone() == (FIRST + len(scripts) - 1,)
    connection.close()


def test_every_statement_is_sound() -> None:
    """Each of them compiles against the schema."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, migrations("sqlite"), "memory")
    for sql in statements("sqlite").values():
        marks = re.findall(r"\?(\d*)", sql)
        connection.execute(f"EXPLAIN {sql}", [None] * max((int(mark) for mark in marks if mark), default=len(marks)))
    connection.close()


def test_a_newer_schema_is_refused_clearly(path: Path) -> None:
    sync.open(path).close()
    with sync.open(path) as store:
        store.save("t", 1)
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {FIRST + len(migrations('sqlite'))}")
    raw.commit()
    raw.close()
    with pytest.raises(sync.IncompatibleCheckpoint, match=r"newer Holdfast.*upgrade"), sync.open(path) as store:
        store.latest("t")


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE precious (a)")
    raw.commit()
    raw.close()
    before = path.read_bytes()
    with pytest.raises(sync.ConfigurationError, match="another program"), sync.open(path) as store:
        store.save("t", 1)
    raw = sqlite3.connect(path)
    assert schema_of(raw) == [("table", "precious", "CREATE TABLE precious (a)")]
    raw.close()
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a database, and longer than a header of one " * 20)
    with pytest.raises(sync.Corrupt, match="not a SQLite file"), sync.open(path) as store:
        store.latest("t")
    assert path.read_bytes().startswith(b"this is not")
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with sync.open(path) as store:
        assert store.save("t", 1).seq == 1


@pytest.mark.parametrize(("level", "synchronous", "word"), [("durable", 2, "full"), ("process", 1, "normal")])
def test_pragmas_are_set_and_reported(path: Path, level: str, synchronous: int, word: str) -> None:
    backend = SQLiteBackend(str(path), Durability(level))
    backend.open()
    with backend._file.writing() as connection:
        for pragma, value in {"journal_mode": "wal", "synchronous": synchronous, "wal_autocheckpoint": 0}.items():
            assert connection.execute(f"PRAGMA {pragma}").fetchone()[0] == value
        assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    guarantee = backend.guarantee()
    assert (guarantee.level, guarantee.store) == (Durability(level), "sqlite")
    assert guarantee.details["journal_mode"] == "wal"
    assert guarantee.details["synchronous"] == word
    assert guarantee.details["sqlite"] == sqlite3.sqlite_version
    backend.close()


def test_the_default_is_durable(path: Path) -> None:
    with sync.open(path) as store:
        assert store.guarantee().level == Durability.DURABLE
    with sync.SQLiteStore(":memory:") as store:
        assert store.guarantee().level == Durability.NONE


@pytest.mark.parametrize("level", ["replicated", "none"])
def test_a_level_that_cannot_be_given_is_refused(path: Path, level: str) -> None:
    with pytest.raises(sync.ConfigurationError):
        sync.open(path, durability=level)
    with pytest.raises(sync.ConfigurationError):
        sync.SQLiteStore(":memory:", durability="durable")
    assert not path.exists()


def test_pragmas_that_do_not_hold_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sqlite_file.SYNCHRONOUS, Durability.DURABLE, 7)
    with pytest.raises(sync.ConfigurationError, match="synchronous"), sync.open(path) as store:
        store.save("t", 1)


def test_a_file_that_may_not_be_written_is_a_clear_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk says no at the lock, which is the first file that is opened."""
    real = os.open

    def refuse(target: Any, *args: Any, **kwargs: Any) -> int:
        if str(target).endswith("-lock"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        return real(target, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(sync.StoreUnavailable, match="Permission denied"), sync.open(path) as store:
        store.save("t", 1)


def test_a_full_disk_is_unavailable_and_nothing_is_lost(path: Path) -> None:
    """As many pages as there are now, and no more: SQLite says that the database or disk is full."""
    backend = SQLiteBackend(str(path), Durability.PROCESS)
    backend.open()
    store = sync.Store(backend)
    store.save("t", {"n": 1, "text": "x" * 1000})
    with backend._file.writing() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    saved = 1

    def save_until_it_fails() -> None:
        nonlocal saved
        while True:
            store.save("t", {"n": saved + 1, "text": os.urandom(9000).hex()})
            saved += 1

    with pytest.raises(sync.StoreUnavailable, match="full"):
        save_until_it_fails()
    assert [info.seq for info in store.history("t")] == list(range(saved, 0, -1))
    with backend._file.writing() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    assert store.save("t", {"n": saved + 1}).seq == saved + 1
    assert store.verify().ok
    store.close()


def test_an_error_of_the_disk_leaves_the_outcome_unknown() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    assert isinstance(sqlite_file.translated(error, writing=True), sync.OutcomeUnknown)
    assert isinstance(sqlite_file.translated(error), sync.StoreUnavailable)
    assert isinstance(sqlite_file.translated(sqlite3.DatabaseError("malformed")), sync.Corrupt)


def bytes_of(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.iterdir())


@pytest.mark.parametrize("size", [100, 20_000], ids=["in a row", "in a blob"])
def test_an_erased_past_leaves_no_byte(path: Path, size: int) -> None:
    """Neither in the database nor in its write-ahead log, while the store is open and after."""
    secret = (CANARY.decode() + " ") * (size // len(CANARY))
    with sync.open(path, compress=False, durability="process") as store:
        store.save("t", {"secret": secret, "kept": 1})
        store.save("other", {"secret": "nothing"})
        for number in range(30):
            store.save("t", {"kept": number})
        assert CANARY in bytes_of(path.parent)
        store.erase("t")
        assert CANARY not in bytes_of(path.parent)
        latest = store.latest("t")
        assert latest is not None
        assert latest.state == {"kept": 29}
        assert store.verify().ok
    assert CANARY not in bytes_of(path.parent)


def test_a_prune_gives_space_back(path: Path) -> None:
    with sync.open(path, durability="process") as store:
        for number in range(150):
            store.save("t", {"n": number, "text": os.urandom(8000).hex()})
    full = path.stat().st_size
    with sync.open(path, durability="process") as store:
        store.prune(sync.Retention(keep_last=2))
    assert path.stat().st_size < full / 5


def test_a_deleted_thread_gives_space_back(path: Path) -> None:
    with sync.open(path, durability="process") as store:
        for number in range(50):
            store.save("t", {"n": number, "text": os.urandom(8000).hex()})
    full = path.stat().st_size
    with sync.open(path, durability="process") as store:
        store.delete("t")
    assert path.stat().st_size < full / 5


def test_the_write_ahead_log_does_not_grow_for_ever(path: Path) -> None:
    log = Path(f"{path}-wal")
    with sync.open(path, durability="process") as store:
        for number in range(600):
            store.save("t", {"n": number, "text": os.urandom(9000).hex()})
            assert log.stat().st_size < 40 << 20
    assert not log.exists() or log.stat().st_size == 0


def test_threads_whose_numbers_collide_are_kept_apart(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to sixteen on one number; then the file says that it is full of them."""
    for module in ("sqlite", "sqlite_index"):
        monkeypatch.setattr(f"holdfast.stores.{module}.first_number", lambda thread: 77)
    backend = SQLiteBackend(str(path), Durability.PROCESS)
    backend.open()
    lines = [Line(backend, b"\0%d" % number) for number in range(16)]
    for number, line in enumerate(lines):
        line.put(head(1, token=number), rows(1))
    for number, line in enumerate(lines):
        assert line.head.token == number
        assert line.seqs == [1]
    with pytest.raises(sync.StoreError, match="too many"):
        Line(backend, b"\0more").put(head(1))
    backend.close()


def test_who_only_reads_writes_nothing(path: Path) -> None:
    """A write by a reader would pass by the gate."""
    with sync.open(path) as store:
        store.save("t", 1)
    before = path.read_bytes()
    with sync.open(path) as store:
        assert store.latest("t") is not None
        assert [info.seq for info in store.history("t")] == [1]
        assert not Path(f"{path}-wal").stat().st_size
    assert path.read_bytes() == before


def test_a_refused_open_leaves_nothing_open(path: Path) -> None:
    path.write_bytes(b"this is not a database, and longer than a header of one " * 20)
    backend = SQLiteBackend(str(path))
    before = open_files(path.parent)
    for _ in range(3):
        with pytest.raises(sync.Corrupt):
            backend.open()
    assert open_files(path.parent) == before


def test_a_reader_in_another_process_does_not_stop_a_checkpoint(path: Path) -> None:
    """A reader that is in the middle of something sees its snapshot; writers go on."""
    with sync.open(path, durability="process") as store:
        store.save("t", {"n": 0})
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute("BEGIN")
        seen = raw.execute("SELECT count(*) FROM rows").fetchone()
        for number in range(1, 300):
            store.save("t", {"n": number, "text": os.urandom(4000).hex()})
        assert raw.execute("SELECT count(*) FROM rows").fetchone() == seen
        raw.close()
        assert store.get("t", 300).state["n"] == 299


def test_a_path_where_no_database_can_be_is_refused_and_nothing_is_made_there(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    for place, what in (
        ("directory", "is a directory; name a file"),
        ("missing/store.db", "missing does not exist; create it"),
    ):
        with pytest.raises(sync.ConfigurationError, match=what):
            sync.open(tmp_path / place).save("t", {})
    assert [found.name for found in tmp_path.iterdir()] == ["directory"]


def test_a_store_that_could_not_be_opened_leaves_nothing_open(tmp_path: Path) -> None:
    directory = tmp_path / "later"
    with pytest.raises(sync.ConfigurationError, match="does not exist"), sync.open(directory / "store.db"):
        pass
    directory.mkdir()
    with sync.open(directory / "store.db") as store:
        store.save("t", 1)
    assert open_files(directory) == 0
