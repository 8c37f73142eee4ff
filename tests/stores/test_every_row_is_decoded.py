"""Import and verify decode what every row holds, also what later rows replaced."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from holdfast import sync
from holdfast.codec.seal import RAW
from holdfast.history.format import APPEND_FLAGS, DELTA_FLAGS
from holdfast.records.errors import Corrupt, LimitExceeded
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.handles import blocking_store
from stores.test_bundles import frames_of, write_frames

NO_VALUE = b"\xc1"
Rows = dict[int, list[Any]]
"""The frames of rows by their seq; the body is the last item."""


def rows_of(frames: list[Any]) -> Rows:
    return {frame[2]: frame for frame in frames if isinstance(frame, list) and frame[0] == "row"}


def save_some(store: sync.Store) -> None:
    """Rows 1-3 change a value, 4 and 5 append, 6 replaces all of it."""
    for number in range(3):
        store.save("t", {"n": str(number), "items": ["first"]})
    store.append("t", "items", "second")
    store.append("t", "items", "third")
    store.save("t", {"n": "the end", "items": ["other"]})


def change_value(rows: Rows) -> None:
    paths, [[index, kind, count, _]], sizes = msgpack.decode(rows[2][7])
    rows[2][7] = msgpack.encode([paths, [[index, kind, count, NO_VALUE]], sizes])


def change_first_item(rows: Rows) -> None:
    rows[4][1], rows[4][7] = DELTA_FLAGS, msgpack.encode([None, [[1, 1, 2, None, NO_VALUE]], []])


def change_second_item(rows: Rows) -> None:
    assert rows[5][1] == APPEND_FLAGS
    rows[5][7] = rows[5][7][:1] + NO_VALUE


def lay_a_cell_within_another(rows: Rows) -> None:
    paths = [["state", "n"], ["state", "items"]]
    rows[2][7] = msgpack.encode([[*paths, ["state", "n", "inner"]], [[2, 0, 0, b"\xc0"]], []])
    rows[3][7] = msgpack.encode([paths, [], []])


def list_a_path_twice(rows: Rows) -> None:
    rows[2][7] = msgpack.encode([[["state", "n"], ["state", "n"], ["state", "items"]], [], []])


@pytest.mark.parametrize(
    "change", [change_value, change_first_item, change_second_item, lay_a_cell_within_another, list_a_path_twice]
)
def test_a_bundle_with_one_row_that_cannot_be_decoded_is_not_imported(
    change: Callable[[Rows], None], tmp_path: Path
) -> None:
    path = tmp_path / "bundle"
    with sync.MemoryStore() as store:
        save_some(store)
        store.export("t", path)
        frames = frames_of(path)
        change(rows_of(frames))
        write_frames(path, frames)
        with pytest.raises(Corrupt, match="nothing was imported"):
            store.import_(path, "copy")
        assert [info.thread_id for info in store.threads()] == ["t"]


def test_a_middle_row_beyond_the_limits_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    with sync.MemoryStore() as store:
        for count in (0, 5000, 0):
            store.save("t", {"rows": [[]] * count})
        store.export("t", path)
    with sync.open("memory:", limits=sync.Limits(memory=100_000)) as small, pytest.raises(LimitExceeded):
        small.import_(path)


def test_an_entry_that_cannot_be_decoded_is_found_though_the_journal_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    with sync.MemoryStore() as store:
        with store.run("t") as run:
            for number in range(4):
                run.step(f"s{number}", lambda: "result")
            run.checkpoint({})
        store.export("t", path)
        frames = frames_of(path)
        rows, good = rows_of(frames), encoded_entry(b"\xc0")
        append = rows[3][7][:1]
        rows[3][7] = append + encoded_entry(NO_VALUE)
        place = append[0]
        rows[4][1:8] = [rows[5][1] & ~1, *rows[4][2:7], msgpack.encode([None, [[place, 1, 1, good]], []])]
        write_frames(path, frames)
        with pytest.raises(Corrupt, match="nothing was imported: not a Holdfast encoding"):
            store.import_(path, "copy")


def encoded_entry(value: bytes) -> bytes:
    return msgpack.encode(["done", "s", b"", "s", value, 1, 1])


def test_verify_reads_the_answers_that_wait() -> None:
    backend = MemoryBackend()
    with blocking_store(backend) as store:
        with pytest.raises(sync.Suspended), store.run("t") as run:
            run.ask("may I?")
        assert store.verify().ok
        assert backend.post(b"\0t", "answer:1", RAW + NO_VALUE)
        [problem] = store.verify().problems
        assert problem.record == "answer 1 of 't'"
