"""Retention, verification, the doctor."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Call
from holdfast import sync
from holdfast.cli.doctor import Patient, Verdict, clock, has_reset_bug
from holdfast.cli.session import Session

Document = Callable[..., Any]


def damage(path: Path, word: bytes) -> None:
    """Change one byte of what is stored."""
    data = bytearray(path.read_bytes())
    data[data.index(word)] ^= 1
    path.write_bytes(data)


def test_gc_only_says_what_would_go(call: Call, document: Document) -> None:
    planned = document("gc", "--keep-last", "1", "--delete-on", "failed")
    assert planned["dry_run"] is True
    assert (planned["freed"]["threads"], planned["freed"]["checkpoints"] >= 2) == (1, True)
    assert "nothing was changed" in call("gc", "--delete-on", "failed").stdout
    assert len(document("threads")) == 5


def test_gc_removes_with_yes(call: Call, document: Document) -> None:
    done = document("gc", "--keep-last", "1", "--delete-on", "failed", "--yes")
    assert done["dry_run"] is False
    assert len(document("threads")) == 4
    call("state", "user-42@1", code=3)
    assert "nothing to delete" in call("gc", "--ttl", "7d").stdout


def test_gc_applies_the_retention_of_the_program(document: Document, call: Call) -> None:
    assert document("gc", "--app", "shop:store")["retention"]["keep_last"] == 1
    call("gc", "--app", "shop:refund", code=2)


def test_deleting_a_thread_is_a_dry_run_first(call: Call, document: Document) -> None:
    planned = document("delete", "user-42")
    assert (planned["thread_id"], planned["dry_run"], planned["rows"] > 0) == ("user-42", True, True)
    assert "nothing was changed" in call("delete", "user-42").stdout
    assert "user-42" in {thread["thread_id"] for thread in document("threads")}
    assert document("delete", "user-42", "--yes")["dry_run"] is False
    assert "user-42" not in {thread["thread_id"] for thread in document("threads")}
    call("delete", "user-42", "--yes", code=3)


def test_one_checkpoint_can_be_deleted(call: Call, document: Document) -> None:
    first = document("delete", "user-42@1")["checkpoint_id"]
    assert first.startswith("user-42@1.")
    call("state", "user-42@1")
    assert "deleted user-42@1." in call("delete", first, "--yes").stdout
    call("state", "user-42@1", code=3)
    call("delete", "user-42@99", "--yes", code=3)


def test_a_whole_store_is_verified(call: Call, document: Document) -> None:
    assert document("verify")["ok"] is True
    assert call("verify").stdout.startswith("ok: ")


def test_damage_is_found_and_named(call: Call, document: Document, place: Path) -> None:
    damage(place / "holdfast.db", b"who is there?")
    found = document("verify", code=1)
    assert [problem["thread_id"] for problem in found["problems"]] == ["user-42"]
    assert "user-42" in call("verify", code=1).stdout


def verdicts(report: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in report["findings"]:
        found.setdefault(finding["name"], set()).add(finding["verdict"])
    return found


def test_the_doctor_examines_everything(document: Document, call: Call) -> None:
    report = document("doctor")
    assert report["ok"] is True
    assert verdicts(report) == {
        "reachable": {"ok"},
        "durability": {"ok"},
        "versions": {"ok"},
        "permissions": {"ok"},
        "clock": {"ok"},
        "conflicts": {"ok"},
        "leases": {"ok"},
        "pending": {"warn"},
    }
    assert "failed: broken" in call("doctor").stdout


def test_the_doctor_leaves_no_trace_in_listings(document: Document) -> None:
    before = document("stats")
    document("doctor")
    document("doctor")
    assert document("stats") == before
    assert document("threads", "--namespace", "holdfast-doctor") == []


def test_the_doctor_writes_nothing_if_asked_to(document: Document, place: Path) -> None:
    before = (place / "holdfast.db").read_bytes()
    assert "leases" not in verdicts(document("doctor", "--no-probe"))
    assert (place / "holdfast.db").read_bytes() == before


def test_the_doctor_works_on_a_directory(document: Document, call: Call) -> None:
    call("copy", "holdfast.db", "file:agents")
    assert verdicts(document("doctor", "--store", "file:agents"))["leases"] == {"ok"}


def test_the_doctor_says_what_a_broken_store_has(document: Document, place: Path) -> None:
    (place / "text.db").write_text("this is no database, and never was one" * 100)
    report = document("doctor", "--store", "text.db", code=1)
    assert report["findings"][0]["verdict"] == "fail"
    assert len(report["findings"]) == 1


def test_the_doctor_sees_clocks_that_disagree(place: Path) -> None:
    session = Session()
    patient = Patient(session)
    assert [verdict for verdict, _, _ in clock(patient)] == [Verdict.OK]
    patient.now -= timedelta(days=1)
    assert [verdict for verdict, _, _ in clock(patient)] == [Verdict.WARN]
    session.close()


def test_the_doctor_sees_what_was_abandoned_and_what_is_late(document: Document) -> None:
    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended), store.run("late") as run:
        run.ask("anybody?", deadline=0.3)
    child = os.fork()
    if not child:
        sync.open("holdfast.db").run("abandoned", lease=0.5).__enter__().step("one", lambda: 1)
        os._exit(0)
    os.waitpid(child, 0)
    said: list[str] = []
    while not ("abandoned: abandoned" in said and any("late#1" in found for found in said)):
        said = [finding["found"] for finding in document("doctor", "--no-probe")["findings"]]


def test_the_doctor_does_not_wait_for_the_lease_of_a_process_that_is_gone(call: Call) -> None:
    child = os.fork()
    if not child:
        sync.open("holdfast.db").run("abandoned", lease=600).__enter__().step("one", lambda: 1)
        os._exit(0)
    os.waitpid(child, 0)
    assert "which is gone; its lease ends in" in call("show", "abandoned").stdout
    assert "abandoned: abandoned" in call("doctor", "--no-probe").stdout
    with sync.open("holdfast.db") as store, store.run("alive") as run:
        run.step("one", lambda: 1)
        assert "alive" not in call("doctor", "--no-probe").stdout


@pytest.mark.parametrize(
    ("version", "faulty"),
    [("3.40.1", True), ("3.44.5", True), ("3.44.6", False), ("3.50.6", True), ("3.50.7", False), ("3.51.2", True)],
)
def test_the_versions_of_sqlite_with_the_reset_bug(version: str, faulty: bool) -> None:
    assert has_reset_bug(version) is faulty
    assert not has_reset_bug("3.51.3")
    assert not has_reset_bug("3.52.0")
