"""Cells of a SQLite file that somebody else changed: `Corrupt` names what is damaged, and no other thread suffers."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.stores.sqlite_index import first_number
from kinds import alike

pytestmark = pytest.mark.filterwarnings("ignore:not all requests are listed:holdfast.HoldfastWarning")

BAD, GOOD = "a", "b"
PLANTED_KEY = b"\0c"
BAD_ROWS = "id >> 28 = (SELECT number FROM threads WHERE thread = x'0061')"
BAD_NUMBER = "number = (SELECT number FROM threads WHERE thread = x'0061')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with two threads, one of which waits for an answer that was given."""
    with sync.open(tmp_path / "store.db") as store:
        for thread_id in (GOOD, BAD):
            for number in range(3):
                store.save(thread_id, {"n": number, "text": "x" * 50_000}, labels={"app": "demo"})
        with pytest.raises(sync.Suspended), store.run(BAD, wait=0) as run:
            run.ask("May I?", choices=["yes", "no"])
        store.answer(next(iter(store.requests())).id, "yes")
    return tmp_path / "store.db"


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(sql).rowcount > 0


def resume(store: sync.Store, thread_id: str) -> None:
    with store.run(thread_id, wait=0) as run:
        run.step("one", lambda: 1)


CALLS: list[Callable[[sync.Store], object]] = [
    lambda store: store.latest(BAD),
    lambda store: store.get(BAD, 1),
    lambda store: list(store.history(BAD)),
    lambda store: store.save(BAD, {}),
    lambda store: store.append(BAD, "letters", "a"),
    lambda store: resume(store, BAD),
    lambda store: list(store.requests(status=None)),
    lambda store: store.prune(sync.Retention(keep_last=1)),
]

CELLS = [
    f"UPDATE rows SET {column} = {value} WHERE digest <> x'' AND {BAD_ROWS}"
    for column in ("body", "header", "digest")
    for value in ("'text'", "7", "0.5", "CAST(x'ff00' AS TEXT)")
]
CELLS += [f"UPDATE rows SET back = {value} WHERE digest <> x'' AND {BAD_ROWS}" for value in ("'x'", "x'00'", "-9e99")]
CELLS += [f"UPDATE rows SET header = {value} WHERE digest = x'' AND {BAD_ROWS}" for value in ("'text'", "7")]
CELLS += [f"UPDATE blobs SET data = {value} WHERE {BAD_NUMBER}" for value in ("'text'", "7", "CAST(x'ff' AS TEXT)")]
POSTS = [f"UPDATE posts SET value = {value}" for value in ("'text'", "5", "CAST(x'ff' AS TEXT)")]
POSTS += [f"UPDATE posts SET key = {value}" for value in ("x'00'", "CAST(x'ff' AS TEXT)")]


@pytest.mark.parametrize("sql", [*alike(CELLS), *alike(POSTS)])
def test_a_cell_of_another_type_raises_only_our_errors_and_harms_no_other_thread(path: Path, sql: str) -> None:
    change(path, sql)
    refused: list[sync.Corrupt] = []
    for call in CALLS:
        with sync.open(path) as store:
            try:
                call(store)
            except sync.Corrupt as error:
                refused.append(error)
    assert refused
    assert all(error.record for error in refused)
    with sync.open(path) as store:
        assert store.latest(GOOD) is not None
        assert {info.thread_id for info in store.threads()} == {GOOD, BAD}


@pytest.mark.parametrize("sql", alike(CELLS))
def test_verify_names_the_thread_with_a_cell_of_another_type(path: Path, sql: str) -> None:
    change(path, sql)
    with sync.open(path) as store:
        assert {problem.thread_id for problem in store.verify().problems} - {""} == {BAD}
        store.delete(BAD)
        assert store.verify().ok


INDEXES = {
    "status": "UPDATE threads SET status = 'complete' WHERE thread = x'0061'",
    "a status that is none": "UPDATE threads SET status = x'ff' WHERE thread = x'0061'",
    "labels of another type": "UPDATE threads SET labels = 'txt' WHERE thread = x'0061'",
    "no labels": "UPDATE threads SET labels = x'' WHERE thread = x'0061'",
    "a lost head": f"DELETE FROM rows WHERE digest = x'' AND {BAD_ROWS}",
    "a lost thread": f"DELETE FROM rows WHERE {BAD_ROWS}",
}
PLANTED = {
    "under any number": "INSERT INTO threads VALUES (99, x'0063', x'', 'working', 99)",
    "under a number below all": "INSERT INTO threads VALUES (-1, x'0063', x'', 'working', 99)",
    "under a number that shifts to that of another": (
        "INSERT INTO threads SELECT number + (1 << 36), x'0063', labels, status, 99 FROM threads WHERE thread = x'0062'"
    ),
    "under its own number": f"INSERT INTO threads VALUES ({first_number(PLANTED_KEY)}, x'0063', x'', 'working', 99)",
}
DAMAGES = [(sql, BAD) for sql in INDEXES.values()] + [(sql, "c") for sql in PLANTED.values()]
NAMES = [*INDEXES, *PLANTED]


@pytest.mark.parametrize(("sql", "thread_id"), DAMAGES, ids=NAMES)
def test_a_thread_that_differs_from_its_index_is_listed_as_damaged_and_can_be_deleted(
    path: Path, sql: str, thread_id: str
) -> None:
    change(path, sql)
    with sync.open(path) as store:
        damaged = {info.thread_id: info.damaged for info in store.threads()}
        assert f"head of {thread_id!r}" in str(damaged[thread_id])
        assert damaged[GOOD] is None
        assert store.stats().statuses["damaged"] == 1
        assert sum(store.counts().values()) == len(damaged)
        assert list(store.requests(status=None)) is not None
        problems = store.verify().problems
        assert {problem.thread_id for problem in problems} == {"", thread_id}
        assert all(f"{thread_id!r}" in problem.message for problem in problems)
        with pytest.raises(sync.Corrupt, match=f"{thread_id!r}"):
            store.backup(path.with_suffix(".backup"))
        with sync.MemoryStore() as target:
            assert set(store.copy_to(target).damaged) <= {thread_id}
            assert target.latest(GOOD) is not None
        store.delete(thread_id)
        assert thread_id not in {info.thread_id for info in store.threads()}
        assert store.verify().ok
        store.backup(path.with_suffix(".backup"))


@pytest.mark.parametrize("sql", [sql for sql, _ in DAMAGES], ids=NAMES)
def test_a_thread_that_differs_from_its_index_keeps_no_other_from_being_pruned(path: Path, sql: str) -> None:
    change(path, sql)
    with sync.open(path) as store:
        store.prune(sync.Retention(keep_last=1))
        assert [info.seq for info in store.history(GOOD)] == [3]


@pytest.mark.parametrize(("sql", "thread_id"), DAMAGES, ids=NAMES)
def test_a_thread_deleted_for_its_index_begins_again_without_its_labels(path: Path, sql: str, thread_id: str) -> None:
    change(path, sql)
    with sync.open(path) as store:
        store.delete(thread_id)
        try:
            store.revive(thread_id)
        except sync.NotFound:
            assert sql in PLANTED.values()
        assert store.save(thread_id, {"n": 9}).seq == 1
        assert {info.thread_id for info in store.threads(labels={"app": "demo"})} == {GOOD, BAD} - {thread_id}
        assert store.verify().ok


@pytest.mark.parametrize("sql", [INDEXES["a lost head"], *PLANTED.values()])
def test_a_copy_names_a_thread_that_was_lost(path: Path, sql: str) -> None:
    change(path, sql)
    with sync.open(path) as store, sync.MemoryStore() as target:
        assert store.copy_to(target).damaged == (dict(DAMAGES)[sql],)


def test_recover_names_a_planted_thread_and_resumes_the_others(path: Path) -> None:
    change(path, PLANTED["under any number"])
    with sync.open(path) as store:
        report = store.recover(lambda run: run.complete("done"))
    assert report.damaged == ("c",)
    assert report.completed == (BAD,)


def test_a_second_entry_of_a_thread_is_deleted_without_it_or_after_it(path: Path) -> None:
    change(path, "INSERT INTO threads VALUES (99, x'0062', x'', 'working', 99)")
    with sync.open(path) as store:
        assert [info.damaged is None for info in store.threads() if info.thread_id == GOOD] == [False, True]
        store.delete(GOOD)
        store.delete(GOOD)
        assert [info.thread_id for info in store.threads()] == [BAD]
        assert store.verify().ok


def test_what_is_planted_for_a_thread_is_dropped_with_it(path: Path) -> None:
    change(path, PLANTED["under any number"])
    change(path, f"INSERT INTO rows VALUES ({99 << 28 | 1}, 1, x'', x'00', x'')")
    change(path, "INSERT INTO blobs VALUES (99, x'00', x'00')")
    change(path, "INSERT INTO labels VALUES (x'00', 99)")
    with sync.open(path) as store:
        store.delete("c")
    with closing(sqlite3.connect(path)) as connection:
        for sql in ("rows WHERE id >> 28 = 99", "blobs WHERE number = 99", "labels WHERE number = 99"):
            assert connection.execute(f"SELECT count(*) FROM {sql}").fetchone() == (0,)


@pytest.mark.parametrize("key", ["x'00ff'", "x''", "x'ff'", "'text'", "7"])
def test_a_key_that_is_none_is_named_by_verify(path: Path, key: str) -> None:
    change(path, f"UPDATE threads SET thread = {key} WHERE thread = x'0061'")
    with sync.open(path) as store:
        assert not store.verify().ok
        assert GOOD in {info.thread_id for info in store.threads() if info.damaged is None}
        with pytest.raises(sync.Corrupt):
            store.latest(BAD)
        with sync.MemoryStore() as target:
            assert store.copy_to(target).threads == 1


def test_a_key_that_is_not_utf_8_is_named_also_under_its_own_number(path: Path) -> None:
    from holdfast.records.head import Head, encode_head
    from holdfast.records.rows import Swap

    key = b"\0\xff"
    head = Head(incarnation=b"i" * 16, status="idle")
    with closing(SQLiteBackend(str(path))) as backend:
        assert backend.swap([Swap(key, b"", encode_head(key, head), head)]) == [True]
    with sync.open(path) as store:
        assert {info.thread_id for info in store.threads() if info.damaged} == {"\ufffd"}
        assert {problem.thread_id for problem in store.verify().problems} == {"\ufffd"}


BIRTHS = ["'text'", "x'00'", "4611686018427387904", "9223372036854775807", "0.5", "1e300", "CAST(x'ff' AS TEXT)"]


@pytest.mark.parametrize("birth", BIRTHS)
def test_no_value_of_a_birth_hides_a_thread_or_stops_new_ones(path: Path, birth: str) -> None:
    change(path, f"UPDATE threads SET birth = {birth} WHERE thread = x'0061'")
    with sync.open(path) as store:
        for thread_id in ("c", "d", "e"):
            store.save(thread_id, 1)
        page: sync.Page[sync.ThreadInfo] | None = store.threads(limit=1)
        found = list[sync.ThreadInfo]()
        while page is not None:
            found += page
            page = page.next_page()
        assert {info.thread_id: info.damaged is None for info in found} == {
            BAD: False,
            **dict.fromkeys((GOOD, "c", "d", "e"), True),
        }
        assert len(found) == 5
        assert not store.verify().ok
        assert store.get(BAD, 1).state["n"] == 0
        store.delete(BAD)
        assert {info.thread_id for info in store.threads()} == {GOOD, "c", "d", "e"}
        assert store.verify().ok


@pytest.mark.parametrize("cursor", ["x", "text:x", "real:x", "other:00", ":", "9" * 30])
def test_a_cursor_that_is_none_is_refused(path: Path, cursor: str) -> None:
    with sync.open(path) as store:
        if cursor.isdigit():
            assert len(store.threads(cursor=cursor)) == 2
        else:
            with pytest.raises(sync.ConfigurationError, match="cursor"):
                store.threads(cursor=cursor)
