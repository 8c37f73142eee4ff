"""Damaged threads on the command line: shown as such, with an exit code, and removable."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli.conftest import Call
from holdfast import sync
from holdfast.records.head import decode_head, encode_head
from holdfast.records.rows import Swap
from stores.file_scenes import log_of
from stores.test_bundles import frames_of, write_frames

Document = Callable[..., Any]
THREAD = b"\0user-42"


@pytest.fixture
def damaged(place: Path) -> None:
    """The default store, with one head that says what no save writes, under a digest that is right."""
    with sync.open(place / "holdfast.db") as store:
        backend = store._store._backend
        stored = backend.heads([THREAD])[0]
        assert stored is not None
        head = decode_head(THREAD, stored)
        forged = encode_head(THREAD, replace(head, created_at=2**63))
        assert backend.swap([Swap(THREAD, stored, forged, head)]) == [True]


@pytest.mark.usefixtures("damaged")
def test_threads_shows_a_damaged_thread_among_the_others(call: Call, document: Document) -> None:
    threads = {thread["thread_id"]: thread for thread in document("threads")}
    assert len(threads) == 5
    assert threads["user-42"]["status"] is None
    assert "head of 'user-42' is damaged" in threads["user-42"]["damaged"]
    assert threads["user-43"]["damaged"] is None
    assert "damaged" in call("threads").output
    assert document("stats")["statuses"]["damaged"] == 1


@pytest.mark.usefixtures("damaged")
def test_verify_names_it_and_show_says_what_it_is(call: Call, document: Document) -> None:
    problems = document("verify", code=1)["problems"]
    assert any(problem["thread_id"] == "user-42" for problem in problems)
    assert "is damaged" in call("show", "user-42", code=1).output


@pytest.mark.usefixtures("damaged")
def test_gc_does_the_rest_and_doctor_names_the_damaged_thread(call: Call, document: Document) -> None:
    freed = document("gc", "--delete-on", "failed", "--yes", code=1)["freed"]
    assert (freed["threads"], freed["damaged"]) == (1, ["user-42"])
    assert "damaged: user-42" in call("doctor", "--no-probe", code=1).output


@pytest.mark.usefixtures("damaged")
@pytest.mark.parametrize("free_id", [False, True])
def test_a_damaged_thread_can_be_deleted(call: Call, document: Document, free_id: bool) -> None:
    call("revive", "user-42", code=4)
    assert document("delete", "user-42", "--yes", *(["--free-id"] if free_id else []))["dry_run"] is False
    assert "user-42" not in {thread["thread_id"] for thread in document("threads")}
    if not free_id:
        call("revive", "user-42")
    with sync.open("holdfast.db") as store:
        assert store.save("user-42", 1).seq == 1
    assert document("verify")["ok"]


@pytest.mark.parametrize(
    ("field", "value"), [("seq", None), ("status", "x"), ("created_at", 2**63), ("labels", []), ("base", 9)]
)
def test_an_import_that_is_refused_exits_with_an_error_and_stores_nothing(
    call: Call, document: Document, place: Path, field: str, value: Any
) -> None:
    call("export", "user-42", "u.bundle")
    frames = frames_of(place / "u.bundle")
    write_frames(place / "u.bundle", [{**frames[0], field: value}, *frames[1:]])
    before = document("threads")
    assert "nothing was imported" in call("import", "u.bundle", "--to", "copy", code=1).output
    assert document("threads") == before


def test_a_thread_whose_id_is_lost_is_shown_and_deleted_by_the_name_that_is_listed(
    call: Call, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "file:logs")
    with sync.open("file:logs") as store:
        store.save("good", 1)
        store.save("bad", 1)
    log = log_of(Path("logs"), b"\0bad")
    log.unlink()
    os.mkfifo(log)
    assert {info["thread_id"]: info["status"] for info in document("threads")} == {"good": "idle", log.name: None}
    assert "is damaged" in call("show", log.name, code=1).output
    assert "a named pipe" in call("show", "bad", code=1).output
    call("delete", log.name, "--yes")
    assert [info["thread_id"] for info in document("threads")] == ["good"]


def test_something_else_in_the_place_of_a_store_is_named(call: Call, place: Path) -> None:
    os.mkfifo(place / "pipe.db")
    said = call("threads", "--store", "pipe.db", code=1).stderr
    assert "a named pipe is in the place of a regular file" in said
    assert "no store" not in said
