"""Bundles, backups, and copies between kinds of store."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import HOSTILE, Call
from cli.test_upkeep import damage
from holdfast import sync
from kinds import open_store

Document = Callable[..., Any]
KEY = bytes(range(32))


def test_a_thread_travels_in_a_file(call: Call, document: Document) -> None:
    assert document("export", "user-42", "u.bundle")["bytes"] > 0
    call("export", "user-42", "u.bundle", code=4)
    call("export", "user-42", "u.bundle", "--force")
    assert document("import", "u.bundle", "--to", "again")["thread_id"] == "again"
    assert document("diff", "user-42@2", "again@2")["changes"] == []
    call("import", "u.bundle", code=4)


def test_an_import_may_make_a_store(document: Document, call: Call) -> None:
    call("export", "user-42", "u.bundle")
    document("import", "u.bundle", "--store", "new.db")
    assert [thread["thread_id"] for thread in document("threads", "--store", "new.db")] == ["user-42"]


def test_a_backup_is_a_store(document: Document, call: Call) -> None:
    assert document("backup", "b.db")["bytes"] > 0
    assert document("stats", "--store", "b.db") == document("stats")
    call("backup", "b.db", code=4)


@pytest.mark.parametrize("target", ["file:copy", "copy.db"])
def test_a_copy_is_equal_record_by_record(call: Call, document: Document, target: str) -> None:
    copied = document("copy", "holdfast.db", target)["copied"]
    assert copied["threads"] == 5
    assert copied["rows"] == document("stats")["rows"]
    for thread in document("threads", "--limit", "0"):
        mine = document("show", thread["thread_id"].split("\x1b")[0], "--journal", "--limit", "100")
        theirs = document(
            "show", thread["thread_id"].split("\x1b")[0], "--journal", "--limit", "100", "--store", target
        )
        assert mine == theirs
    assert document("verify", "--store", target)["ok"] is True
    call("approve", "ticket-1", "--store", target)
    assert document("resume", "ticket", "--app", "shop:refund", "--store", target)["result"] == "paid 40"


def test_a_copy_onto_itself_is_refused(call: Call) -> None:
    refused = call("copy", "holdfast.db", "./holdfast.db", code=2).stderr
    assert refused == "error: FROM_URL and TO_URL are the same store; give another TO_URL\n"


def test_a_file_that_is_no_bundle_is_refused(call: Call, place: Path) -> None:
    (place / "other.bundle").write_bytes(b"something else")
    refused = call("import", "other.bundle", code=1).stderr
    assert "other.bundle is not a Holdfast bundle, or is from another version" in refused


def test_a_copy_can_be_repeated(document: Document) -> None:
    document("copy", "holdfast.db", "file:copy")
    with sync.open("holdfast.db") as store:
        store.save("new", {})
    copied = document("copy", "holdfast.db", "file:copy")["copied"]
    assert (copied["threads"], copied["skipped"]) == (1, 5)


def test_answers_that_wait_are_copied(document: Document, call: Call) -> None:
    call("copy", "holdfast.db", "copy.db")
    call("approve", "ticket-1")
    call("copy", "holdfast.db", "copy.db")
    assert document("requests", "--store", "copy.db") == []


def test_what_differs_is_a_conflict_and_left_alone(call: Call, document: Document) -> None:
    call("copy", "holdfast.db", "copy.db")
    with sync.open("copy.db") as store:
        store.save("user-42", {"other": True})
    copied = document("copy", "holdfast.db", "copy.db", code=4)["copied"]
    assert copied["conflicts"] == ["user-42"]
    assert copied["skipped"] == 4
    assert document("state", "user-42", "--store", "copy.db")["state"] == {"other": True}
    assert "user-42 exists there" in call("copy", "holdfast.db", "copy.db", code=4).stdout


def test_what_is_damaged_is_not_copied(call: Call, document: Document, place: Path) -> None:
    damage(place / "holdfast.db", b"who is there?")
    copied = document("copy", "holdfast.db", "copy.db", code=1)["copied"]
    assert (copied["damaged"], copied["threads"]) == (["user-42"], 4)
    assert "user-42 was not copied" in call("copy", "holdfast.db", "copy.db", code=1).stdout
    call("show", "user-42", "--store", "copy.db", code=3)


def test_a_store_is_not_copied_onto_itself(call: Call) -> None:
    call("copy", "holdfast.db", "./holdfast.db", code=2)


def test_between_all_kinds_and_namespaces(kind: str, tmp_path: Path) -> None:
    """The library's own call, from and to every kind."""
    (tmp_path / "x").mkdir()
    with (
        open_store(kind, tmp_path) as source,
        sync.MemoryStore() as between,
        open_store("sqlite", tmp_path / "x") as end,
    ):
        source.save(HOSTILE, {"long": "x" * 100_000, "list": list(range(5000))})
        source.save(HOSTILE, {"long": "x" * 100_000 + "y", "list": list(range(5001))})
        seen: list[tuple[int, int]] = []
        assert source.copy_to(between, progress=lambda done, total: seen.append((done, total))).threads == 1
        assert between.copy_to(end).bytes > 0
        assert end.get(HOSTILE, 1).state == source.get(HOSTILE, 1).state
        assert end.latest(HOSTILE) == source.latest(HOSTILE)
        assert seen[-1] == (1, 1)


def test_a_thread_that_was_only_claimed_is_copied_too(document: Document) -> None:
    with sync.open("holdfast.db", inline=False) as store, store.run("claimed"):
        assert document("copy", "holdfast.db", "copy.db")["copied"]["threads"] == 6


class TestEncrypted:
    @pytest.fixture
    def store(self, place: Path) -> str:
        with sync.open("secret.db", keys=KEY) as store:
            store.save("user-1", {"word": "mum"})
        return "secret.db"

    @pytest.mark.parametrize(
        "text", [KEY.hex(), base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(KEY).decode()]
    )
    def test_the_key_comes_from_the_environment_or_a_file(
        self, store: str, text: str, document: Document, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place / "key").write_text(text + "\n")
        assert document("state", "user-1", "--store", store, "--key-file", "key")["state"] == {"word": "mum"}
        monkeypatch.setenv("HOLDFAST_KEY", text)
        assert document("state", "user-1", "--store", store)["state"] == {"word": "mum"}

    def test_without_the_key_the_error_says_where_to_give_it(self, store: str, call: Call, place: Path) -> None:
        assert "--key-file" in call("state", "user-1", "--store", store, code=1).stderr
        (place / "short").write_text("00ff")
        call("threads", "--store", store, "--key-file", "short", code=2)
        call("threads", "--store", store, "--key-file", "nowhere", code=2)

    def test_it_is_copied_sealed_and_exported_sealed(
        self, store: str, call: Call, document: Document, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_KEY", KEY.hex())
        assert document("copy", store, "file:copy")["copied"]["threads"] == 1
        call("export", "user-1", "sealed", "--store", store)
        call("export", "user-1", "open", "--plain", "--store", store)
        assert document("import", "sealed", "--to", "a", "--store", store)["thread_id"] == "a"
        assert document("import", "open", "--plain", "--to", "b", "--store", store)["thread_id"] == "b"
        monkeypatch.delenv("HOLDFAST_KEY")
        call("import", "sealed", code=1)
        call("import", "open")
        call("state", "user-1", "--store", "file:copy", code=1)
