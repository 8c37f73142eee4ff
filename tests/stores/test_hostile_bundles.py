"""Bundles that are sound frame by frame, and wrong in one field: refused before anything is stored."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import sync
from holdfast.history.entries import Answered, Asked, Recorded, encode_entry
from kinds import ON_SERVERS, alike, open_store, shared_kinds
from stores.test_bundles import frames_of, write_frames

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**28, 2**31, 2**40, 2**63, 2**64 - 1, 2**70, 1.5, float("nan")),
    *("", "x", "9" * 20, "\ud800", b"", b"x", b"\xff" * 16, [], {}, (), [5], [b"x"], [None], {"a": 5}, {5: "a"}),
)
META_VALUES: tuple[Any, ...] = (None, True, -(2**62), 2**62, 2**63, 1.5, "x", b"x", [], {})
PATHS: tuple[Any, ...] = ([["state"]], [["state", "a"], ["state", "a", "b"]], [[]], [[5]], 5)
FIRST = {
    "thread_id",
    "incarnation",
    "seq",
    "base",
    "checkpoint",
    "status",
    "created_at",
    "updated_at",
    "function",
    "version",
    "queue",
    "priority",
}
FIRST |= {"marks", "labels", "error", "requests"}
FLAGS, SEQ, BASE, CHECKPOINT, BLOBS, META, BODY = range(1, 8)


def filled(store: sync.Store) -> None:
    """A thread with blobs, a pin, labels, a question and a pruned past."""
    for number in range(6):
        store.save("t", {"n": number, "text": os.urandom(4000).hex()}, labels={"app": "demo"}, metadata={"n": number})
    store.pin(store.get("t", 2).id)
    store.prune(sync.Retention(keep_last=3))

    def asks(run: sync.Run) -> None:
        run.record(sync.Step(action="search", tool_output=[1]))
        run.ask("refund", {"amount": 40})

    with pytest.raises(sync.Suspended), store.run("t") as run:
        asks(run)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    path = tmp_path_factory.mktemp("bundles") / "bundle"
    with sync.MemoryStore() as store:
        filled(store)
        store.export("t", path)
    return frames_of(path)


def is_refused_or_harmless(store: sync.Store, path: Path, frames: list[Any], to: str | None = "copy") -> bool:
    """True if the import was refused, and left nothing. What was imported can be used by all, and deleted."""
    write_frames(path, frames)
    try:
        thread_id = store.import_(path, to)
    except (sync.Corrupt, sync.InvalidId, sync.IncompatibleCheckpoint, sync.LimitExceeded):
        assert [info.thread_id for info in store.threads()] == []
        return True
    assert [(info.thread_id, info.damaged) for info in store.threads()] == [(thread_id, None)]
    assert store.verify().ok
    store.thread(thread_id)
    checkpoint = store.latest(thread_id)
    assert checkpoint is None or repr((checkpoint.state, checkpoint.steps, checkpoint.pending, checkpoint.metadata))
    for info in store.history(thread_id):
        with suppress(sync.Corrupt):  # of a past state only its rows are checked, as by verify
            assert repr(store.load(info.id).state)
    list(store.history(thread_id, journal=True))
    list(store.requests(status=None))
    store.stats()
    store.prune(sync.Retention(keep_last=1, max_age=1))
    store.export(thread_id, path.with_suffix(".again"))
    store.delete(thread_id)
    store.revive(thread_id)
    return False


def with_first(frames: list[Any], field: str, value: Any) -> list[Any]:
    return [{**frames[0], field: value}, *frames[1:]]


def with_row(frames: list[Any], number: int, field: int, value: Any) -> list[Any]:
    """The bundle with one field of its row `number`, counted from the end, replaced."""
    at = [place for place, frame in enumerate(frames) if isinstance(frame, list) and frame[0] == "row"][-1 - number]
    row = [*frames[at]]
    row[field] = value
    return [*frames[:at], row, *frames[at + 1 :]]


def test_the_bundle_itself_can_be_imported(frames: list[Any], tmp_path: Path) -> None:
    with sync.MemoryStore() as store:
        assert not is_refused_or_harmless(store, tmp_path / "b", frames)


@pytest.mark.parametrize("field", alike(sorted(FIRST)))
def test_no_wrong_value_in_the_first_frame_is_stored(frames: list[Any], tmp_path: Path, field: str) -> None:
    assert frames[0].keys() == FIRST
    refused = 0
    for value in WRONG:
        with sync.MemoryStore() as store:
            refused += is_refused_or_harmless(store, tmp_path / "b", with_first(frames, field, value))
    assert refused >= len(WRONG) - 8


@pytest.mark.parametrize("field", alike(range(8)))
def test_no_wrong_value_in_a_row_is_stored(frames: list[Any], tmp_path: Path, field: int) -> None:
    for number in (0, 1, 3):
        for value in WRONG:
            forged = with_row(frames, number, field, value)
            is_possible = forged == frames or value == () or (field == CHECKPOINT and value == 0)
            with sync.MemoryStore() as store:
                assert is_refused_or_harmless(store, tmp_path / "b", forged) or is_possible


@pytest.mark.parametrize("field", range(3))
def test_no_wrong_value_in_a_blob_is_stored(frames: list[Any], tmp_path: Path, field: int) -> None:
    at = next(place for place, frame in enumerate(frames) if isinstance(frame, list) and frame[0] == "blob")
    for value in WRONG:
        blob = [*frames[at]]
        blob[field] = value
        with sync.MemoryStore() as store:
            refused = is_refused_or_harmless(store, tmp_path / "b", [*frames[:at], blob, *frames[at + 1 :]])
            assert refused or (field == 2 and type(value) is bytes)


def wrong_metas() -> Iterator[Any]:
    from msgspec.msgpack import encode

    right: list[Any] = [1_700_000_000_000_000, 1, "idle", "manual", None, b"", ""]
    for field in range(len(right)):
        for value in META_VALUES:
            if value != right[field] and not (field == 6 and value == "x"):
                yield encode([*right[:field], value, *right[field + 1 :]])
    yield encode([right[0], 2**39])
    yield from (b"", b"\xc1", b"\x91" * 5000, b"\x92\xa1\xff\x00")


def test_metadata_that_no_save_writes_is_refused(frames: list[Any], tmp_path: Path) -> None:
    for meta in wrong_metas():
        with sync.MemoryStore() as store:
            assert is_refused_or_harmless(store, tmp_path / "b", with_row(frames, 0, META, meta)), meta


def test_a_mark_on_a_row_that_is_not_there_is_refused_or_harmless(frames: list[Any], tmp_path: Path) -> None:
    last = frames[0]["seq"]
    for marks in ([0, [last + 1], [], []], [0, [], [2**27], []], [2**28, [], [], []], [0, [0], [], []], [0, []]):
        with sync.MemoryStore() as store:
            assert is_refused_or_harmless(store, tmp_path / "b", with_first(frames, "marks", marks))


def journals() -> Iterator[list[Any]]:
    """Journals of the right types that contradict themselves, or whose times no calendar has."""
    asked = Asked("k", b"", "n", b"\xc0", (), 0, b"", 1)
    yield [Answered(1, None, b"\xc0", "", "", 1)]
    yield [asked, Answered(0, None, b"\xc0", "", "", 1)]
    yield [Asked("k", b"", "n", b"\xc0", (), 2**63, b"", 1)]
    yield [Asked("k", b"", "n", b"\xc1", (), 0, b"", 1)]
    yield [Recorded("k", b"\xc0", 1)]
    yield [Recorded("k", b"\x81\xa1x\x01", 1)]


@pytest.mark.parametrize("entries", list(journals()), ids=range(6))
def test_a_journal_that_cannot_be_read_is_refused(frames: list[Any], tmp_path: Path, entries: list[Any]) -> None:
    from msgspec.msgpack import encode

    cells = [[0, 0, 0, b"\x01"], [1, 1, len(entries), b"".join(map(encode_entry, entries))]]
    body = encode([[["state"], ["journal"]], cells, []])
    row = ["row", 17, 1, 1, 1, [], encode([1]), body]
    first = {**frames[0], "seq": 1, "base": 1, "checkpoint": 1, "marks": [0, [], [], []], "requests": []}
    with sync.MemoryStore() as store:
        assert is_refused_or_harmless(store, tmp_path / "b", [first, row, ["end", 1, 0]])


@pytest.mark.parametrize(
    "keys",
    [
        *(None, 5, [5], ["abc"], [["k"]], {"a": 1}, [[[1], 1, b"f", 1, 1]], [["k", "x", 3, None, {}]]),
        *([["k", 1, b"", 2**62, 1]], [["k", 2**40, b"", 1, 1]], [[2**70, 1, b"", 1, 1]], [[b"k", 1, b"", 1, 1]]),
    ],
    ids=range(12),
)
def test_idempotency_keys_that_no_save_writes_are_refused(frames: list[Any], tmp_path: Path, keys: Any) -> None:
    from msgspec.msgpack import encode

    body = encode([[["state"], ["keys"]], [[0, 0, 0, b"\x01"], [1, 0, 0, sync.codec.encode(keys)]], []])
    row = ["row", 17, 1, 1, 1, [], encode([1]), body]
    first = {**frames[0], "seq": 1, "base": 1, "checkpoint": 1, "marks": [0, [], [], []], "requests": []}
    with sync.MemoryStore() as store:
        assert is_refused_or_harmless(store, tmp_path / "b", [first, row, ["end", 1, 0]])


def test_a_key_with_a_lone_surrogate_is_found_again(tmp_path: Path) -> None:
    for _ in range(2):
        with sync.open(f"{tmp_path}/a.db") as store:
            assert store.save("t", 1, idempotency_key="\ud800").seq == 1
            assert store.verify().ok


@pytest.mark.parametrize(
    "cells",
    [
        [[0, 0, "x", b"\x01"]],
        [[0, 1, -1, b"\x01"]],
        [[0, 1, 2**40, b"\x01"]],
        [[0, 0, 0, [0, 0, 1]]],
        [[0, 0, 0, ["a", "b"]]],
        [[5, 0, 0, b"\x01"]],
        [[0, 9, 0, b"\x01"]],
        [[0, 0, 0, b"\xc1"]],
        [[0, 0, 0, "text"]],
        [],
        7,
    ],
    ids=range(11),
)
def test_a_body_that_cannot_be_folded_is_refused(frames: list[Any], tmp_path: Path, cells: Any) -> None:
    from msgspec.msgpack import encode

    first = {**frames[0], "seq": 1, "base": 1, "checkpoint": 1, "marks": [0, [], [], []], "requests": []}
    for paths in PATHS:
        row = ["row", 17, 1, 1, 1, [], encode([1]), encode([paths, cells, []])]
        with sync.MemoryStore() as store:
            assert is_refused_or_harmless(store, tmp_path / "b", [first, row, ["end", 1, 0]])


@given(data=st.data())
@settings(deadline=None)
def test_no_bundle_with_changed_fields_harms_a_store(
    frames: list[Any], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    forged = frames
    for _ in range(data.draw(st.integers(1, 3))):
        value = data.draw(st.sampled_from(WRONG) | st.integers(-5, 2**64 - 1) | st.binary(max_size=40))
        if data.draw(st.booleans()):
            forged = with_first(forged, data.draw(st.sampled_from(sorted(FIRST))), value)
        else:
            forged = with_row(forged, data.draw(st.integers(0, 3)), data.draw(st.integers(0, 7)), value)
    with sync.MemoryStore() as store:
        is_refused_or_harmless(store, tmp_path_factory.getbasetemp() / "changed", forged)


@pytest.mark.parametrize("kind", shared_kinds("sqlite", "file", *ON_SERVERS))
def test_every_kind_of_store_stays_as_it_was(frames: list[Any], tmp_path: Path, kind: str) -> None:
    with open_store(kind, tmp_path) as store:
        for field, value in (("seq", None), ("status", "x"), ("created_at", 2**63), ("labels", []), ("seq", 2**28)):
            assert is_refused_or_harmless(store, tmp_path / "b", with_first(frames, field, value))
        assert not is_refused_or_harmless(store, tmp_path / "b", frames)


def test_a_bundle_with_many_rows_on_one_keyframe_is_refused_in_linear_time(frames: list[Any]) -> None:
    """Rows that name a far keyframe are not searched for all between."""
    from holdfast.stores.bundle import read_content

    rows = [["row", 16, seq, 1, seq, [], b"", b""] for seq in range(2, 200_000, 2)]
    first = {**frames[0], "seq": rows[-1][2], "base": 1, "checkpoint": rows[-1][2]}
    with pytest.raises(sync.Corrupt, match="not all rows"):
        read_content([first, *rows, ["end", len(rows), 0]], "b")
