"""SQLite files whose schema somebody else made: refused at open, before anything in them is run."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.stores.sqlite_schema import FIRST

TAKEN = "ALTER TABLE threads RENAME TO taken; "
COLUMNS = "number, thread, labels, status, birth"
ALTERED = {
    "a view over the table": f"{TAKEN} CREATE VIEW threads AS SELECT {COLUMNS} FROM taken",
    "a view that never ends": (
        f"{TAKEN} CREATE VIEW threads AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT i AS number, x'0074' AS thread, x'' AS labels, 'idle' AS status, i AS birth FROM n"
    ),
    "a virtual table": f"{TAKEN} CREATE VIRTUAL TABLE threads USING fts5({COLUMNS})",
    "a trigger on writes": "CREATE TRIGGER more AFTER INSERT ON rows BEGIN DELETE FROM threads; END",
    "another view of that name": (
        "DROP VIEW heads; CREATE VIEW heads AS SELECT number, thread, status, labels, birth, 1 AS head_id, x'' AS head"
        " FROM threads"
    ),
    "a missing table": "DROP TABLE posts",
    "a column of another name, as one bit makes it": (
        "PRAGMA writable_schema = ON;"
        " UPDATE sqlite_master SET sql = replace(sql, 'digest', 'digesu') WHERE name = 'rows'"
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with sync.open(tmp_path / "store.db") as store:
        store.save("t", {"n": 1})
    return tmp_path / "store.db"


def alter(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.executescript(sql)


@pytest.mark.parametrize("sql", ALTERED.values(), ids=ALTERED)
def test_a_file_with_an_altered_schema_is_refused_at_open(path: Path, sql: str) -> None:
    alter(path, sql)
    with pytest.raises(sync.Corrupt, match="was changed"), sync.open(path) as store:
        store.threads()


def test_the_error_names_what_was_altered(path: Path) -> None:
    alter(path, ALTERED["a column of another name, as one bit makes it"])
    with pytest.raises(sync.Corrupt, match="'rows' is an altered table; restore a backup"), sync.open(path) as store:
        store.threads()


def test_statistics_and_indexes_of_the_user_are_no_alteration(path: Path) -> None:
    alter(path, "CREATE INDEX by_birth ON threads (birth); ANALYZE")
    with sync.open(path) as store:
        assert store.save("t", {"n": 2}).seq == 2
        assert store.verify().ok


@pytest.mark.parametrize("version", [-1, 0, 1, 5])
def test_a_file_that_says_it_is_older_than_it_is_is_refused_and_left_as_it_was(path: Path, version: int) -> None:
    alter(path, f"PRAGMA user_version = {version}")
    with pytest.raises(sync.Corrupt, match="schema"), sync.open(path) as store:
        store.latest("t")
    alter(path, f"PRAGMA user_version = {FIRST}")
    with sync.open(path) as store:
        assert store.save("t", {"n": 2}).seq == 2
        assert store.verify().ok
