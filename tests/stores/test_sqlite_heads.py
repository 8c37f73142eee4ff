"""Where SQLite keeps the head of a thread: behind its last row, so that the two can only be lost together."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

import holdfast
from holdfast import sync
from holdfast.records.errors import StoreError
from holdfast.records.rows import Swap
from holdfast.stores.sql import migrations
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.stores.sqlite_index import listing_query
from holdfast.testing.conformance.samples import Line, head, key, rows
from kinds import open_store
from rounds import rounds
from stores.damage_scenes import answers, files_of, fill, judge, restore_files

LAST_SEQ = 268435455
PAGE_BYTES = 4096
LEAF, INTERIOR = 13, 5
CELL_START = 14
"""As much of a cell as says how long it is, which row it has, and how long its columns are."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def ask(path: Path, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, parameters).fetchall()


def fill_in_many_ways(path: Path) -> None:
    """Saves, a run, turns, a fork, a pruned past, a deleted thread, and one that has nothing but a message."""
    with sync.open(path) as store:
        for number in range(9):
            store.save("pruned", number)
        store.prune(sync.Retention(keep_last=2))
        fill(store)
        with store.run("run") as run:
            run.step("one", lambda: 1)
        with sync.Orchestrator("writer", "draft", store).session("talk") as session:
            session.run_turn(lambda: "said", idempotency_key="first")
        store.fork(store.get("alpha", 5).id, "forked")
        store.save("gone", 1)
        store.delete("gone")
    with closing(SQLiteBackend(str(path))) as backend:
        backend.post(b"\0asked", "cancel", b"x")


def heads_of(path: Path) -> dict[bytes, tuple[int, int]]:
    """The seq of the last row of each thread, and that of its head."""
    last = f"SELECT coalesce(max(id & {LAST_SEQ}), 0) FROM rows WHERE id >> 28 = number AND digest"
    sql = f"SELECT thread, ({last} <> x''), ({last} = x'') FROM threads"
    return {thread: (last, head) for thread, last, head in ask(path, sql)}  # type: ignore[misc]


def test_the_head_is_behind_the_last_row_whatever_was_done(path: Path) -> None:
    fill_in_many_ways(path)
    found = heads_of(path)
    assert len(found) == 9
    assert all(head == last + 1 for last, head in found.values()), found
    assert found[b"\0gone"] == found[b"\0asked"] == (0, 1)
    assert ask(path, "SELECT count(*) FROM rows WHERE digest = x''") == [(9,)]


def test_a_row_that_hides_with_the_head_is_damage(path: Path) -> None:
    """Whatever is last must be a head: an older row is never taken for the newest."""
    with sync.open(path) as store:
        for number in range(5):
            store.save("t", number)
    for count in range(1, 6):
        ask(path, "DELETE FROM rows WHERE id = (SELECT max(id) FROM rows)")
        with sync.open(path) as store:
            assert not store.verify().ok, count
            with pytest.raises(sync.Corrupt):
                store.latest("t")
            with pytest.raises(sync.Corrupt):
                store.save("t", "more")
            assert [info.damaged is not None for info in store.threads()] == [True]


@pytest.mark.parametrize("change", ["id = id + 1", "back = back + 1", "digest = x'00'"])
def test_a_head_at_another_place_is_damage(path: Path, change: str) -> None:
    with sync.open(path) as store:
        store.save("t", 1)
    ask(path, f"UPDATE rows SET {change} WHERE digest = x''")
    with sync.open(path) as store:
        with pytest.raises(sync.Corrupt, match="has no head"):
            store.latest("t")
        with pytest.raises(sync.Corrupt, match="has no head"):
            store.save("t", 2)


def test_the_head_is_no_row(path: Path) -> None:
    with sync.open(path) as store:
        store.save("t", 1)
    with closing(SQLiteBackend(str(path))) as backend:
        thread = b"\0t"
        assert [row.seq for row in backend.rows(thread, 1)] == [1]
        assert backend.rows(thread, 2) == []
        assert [row.seq for row in backend.index(thread, None, None)] == [1]
        assert [row.seq for row in backend.index(thread, 99, None)] == [1]


def test_most_commits_write_one_page(path: Path) -> None:
    """A thread grows at its end, page after page; rows put between others make SQLite share out several pages."""
    with sync.open(path, durability="process") as store, store.run("t") as run:
        run.step("first", lambda: 0)
        before = Path(f"{path}-wal").stat().st_size
        for number in range(100):
            run.step(f"step {number}", lambda: "x" * 400)
        frames = (Path(f"{path}-wal").stat().st_size - before) / (PAGE_BYTES + 24)
    assert frames < 200, frames


@pytest.mark.parametrize("length", [62, 64, 126, 128, 254, 256])
def test_a_head_that_one_bit_makes_nothing_is_damage(path: Path, length: int) -> None:
    """Of some lengths one bit makes an empty blob, of others the number 0: that is no thread without a head."""
    content = b"\xdc" * length
    with closing(SQLiteBackend(str(path))) as backend:
        assert backend.swap([Swap(key(), b"", content, head(), rows(1))]) == [True]
    nothing, data = 0, path.read_bytes()
    at = data.index(content)
    for place in range(at - 5, at):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with suppress(sqlite3.Error):
                nothing += ask(path, "SELECT header FROM rows WHERE id & 268435455 = 2")[0][0] in {b"", 0}
            with closing(SQLiteBackend(str(path))) as backend, suppress(sync.Corrupt):
                assert backend.heads([key()])[0], (place - at, bit)
    assert nothing


@pytest.mark.parametrize("table", ["threads", "threads_by_birth"])
def test_a_thread_that_one_bit_hides_from_listings_is_missed_by_verify_and_backup(path: Path, table: str) -> None:
    with sync.open(path) as store:
        for name in "abcd":
            store.save(name, 1)
    root = ask(path, "SELECT rootpage FROM sqlite_master WHERE name = ?", table)[0][0]
    assert isinstance(root, int)
    data = bytearray(path.read_bytes())
    data[(root - 1) * PAGE_BYTES + 4] ^= 4  # four cells become none
    path.write_bytes(data)
    with sync.open(path) as store:
        assert not store.verify().ok
        with pytest.raises(sync.Corrupt, match="damaged"):
            store.backup(path.with_suffix(".backup"))
        assert not path.with_suffix(".backup").exists()


@pytest.mark.parametrize(
    "damage", ["UPDATE labels SET token = x'00'", "UPDATE labels SET number = number + 1", "DELETE FROM labels"]
)
def test_a_thread_that_a_listing_by_label_misses_is_found_by_verify(path: Path, damage: str) -> None:
    with sync.open(path) as store:
        store.save("t", 1, labels={"user": "ana"})
        store.save("other", 1)
        assert store.verify().ok
    ask(path, damage)
    with sync.open(path) as store:
        assert not [*store.threads(labels={"user": "ana"})]
        assert [problem.message for problem in store.verify().problems if "labels" in problem.message]


def test_a_thread_whose_key_was_lost_is_reported_and_not_raised(path: Path) -> None:
    with sync.open(path) as store:
        store.save("t", 1)
    ask(path, "UPDATE threads SET thread = x''")
    with sync.open(path) as store:
        assert not store.verify().ok


def test_a_page_of_a_listing_reads_no_more_heads_than_it_has() -> None:
    """Whatever it is asked for: threads are chosen before their heads are looked up."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in migrations("sqlite"):
            connection.executescript(script)
        for statuses, labels in (("working",), []), (("working", "idle"), []), ((), [(b"x",)]), ((), []):
            sql, parameters = listing_query(b"", statuses, labels, None, 20)
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
            assert plan[0] == "SEARCH threads USING INTEGER PRIMARY KEY (rowid=?)", plan


def test_the_last_row_leaves_room_for_the_head(path: Path) -> None:
    with closing(SQLiteBackend(str(path))) as backend:
        line = Line(backend)
        line.put(head(LAST_SEQ - 2), rows(LAST_SEQ - 2, base=LAST_SEQ - 2))
        line.put(head(LAST_SEQ - 1), rows(LAST_SEQ - 1, base=LAST_SEQ - 2))
        with pytest.raises(StoreError, match="at most"):
            backend.swap([line.swap(head(LAST_SEQ), rows(LAST_SEQ, base=LAST_SEQ - 2))])
        assert line.head.seq == LAST_SEQ - 1
        assert line.seqs == [LAST_SEQ - 1, LAST_SEQ - 2]


def test_a_row_hidden_behind_the_head_is_not_overwritten(path: Path) -> None:
    with sync.open(path) as store:
        store.append("t", "letters", "a")
        store.append("t", "letters", "b")
        ask(path, "INSERT INTO rows SELECT id + 1, back + 1, x'01', x'02', x'03' FROM rows ORDER BY id DESC LIMIT 1")
        with pytest.raises(sync.Corrupt):
            store.append("t", "letters", "c")
    assert ask(path, "SELECT header FROM rows ORDER BY id DESC LIMIT 1") == [(b"\x02",)]


@pytest.mark.parametrize("thread", ["gone", "asked"])
def test_a_lost_head_of_a_thread_that_is_not_listed_is_found(path: Path, thread: str) -> None:
    fill_in_many_ways(path)
    number = ask(path, "SELECT number FROM threads WHERE thread = ?", b"\0" + thread.encode())[0][0]
    ask(path, "DELETE FROM rows WHERE id >> 28 = ?", number)
    with sync.open(path) as store:
        assert not store.verify().ok


def structure_of(data: bytes, page: int) -> Iterator[int]:
    """The places of all bytes by which SQLite finds rows: headers of pages, pointers to cells, and how cells begin."""
    start = (page - 1) * PAGE_BYTES
    pointers = start + (8 if data[start] == LEAF else 12)
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    yield from range(start, pointers + 2 * count)
    for at in range(pointers, pointers + 2 * count, 2):
        cell = start + int.from_bytes(data[at : at + 2], "big")
        yield from range(cell, cell + CELL_START)
        if data[start] == INTERIOR:
            yield from structure_of(data, int.from_bytes(data[cell : cell + 4], "big"))
    if data[start] == INTERIOR:
        yield from structure_of(data, int.from_bytes(data[start + 8 : start + 12], "big"))


@pytest.mark.faults
def test_no_flipped_bit_in_sqlites_own_structure_hides_a_row(tmp_path: Path) -> None:
    with open_store("sqlite", tmp_path) as store:
        fill(store)
        right = answers(store)
    files, refused = files_of(tmp_path), 0
    database = max(files, key=lambda path: len(files[path]))
    root = ask(database, "SELECT rootpage FROM sqlite_master WHERE name = 'rows'")[0][0]
    flips = [(at, bit) for at in structure_of(files[database], root) for bit in range(8)]  # type: ignore[arg-type]
    chosen = Random(7).sample(flips, min(rounds(30, 400), len(flips)))
    for at, bit in chosen:
        damaged = bytearray(files[database])
        damaged[at] ^= 1 << bit
        restore_files(tmp_path, {**files, database: bytes(damaged)})
        try:
            refused += judge(lambda: open_store("sqlite", tmp_path), right) > 0
        except AssertionError as error:
            raise AssertionError(f"bit {bit} of byte {at}: {error}") from error
    assert refused > len(chosen) // 2


@pytest.mark.parametrize(
    "loss", ["UPDATE rows SET header = x'' WHERE digest = x''", "DELETE FROM rows WHERE digest = x''"]
)
def test_a_thread_whose_head_was_lost_can_be_deleted_and_begun_again(path: Path, loss: str) -> None:
    with sync.open(path) as store:
        for number in range(3):
            store.save("t", {"n": number})
    ask(path, loss)
    with sync.open(path) as store:
        with pytest.raises(sync.Corrupt):
            store.save("t", 1)
        store.delete("t")
        assert [*store.threads()] == []
        store.revive("t")
        assert store.save("t", {"n": 9}).seq == 1
        assert store.verify().ok


def test_a_lost_head_does_not_fail_the_other_writes_of_its_batch(path: Path) -> None:
    async def scene() -> list[holdfast.Checkpoint | BaseException]:
        async with holdfast.open(path) as store:
            await asyncio.gather(*(store.save(name, 1) for name in ("good", "lost")))
            ask(path, "DELETE FROM rows WHERE id = (SELECT head_id FROM heads WHERE thread = ?)", b"\0lost")
            return await asyncio.gather(*(store.save(name, 2) for name in ("good", "lost")), return_exceptions=True)

    good, lost = asyncio.run(scene())
    assert isinstance(lost, holdfast.Corrupt)
    assert isinstance(good, holdfast.Checkpoint)
    assert good.seq == 2
