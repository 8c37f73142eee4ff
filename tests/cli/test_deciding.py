"""The development loop: what came of a thread, trying it again, steps in doubt, ids that are used again."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import HOSTILE, Call
from cli.test_offers import offered
from holdfast import sync

Document = Callable[..., Any]

PROGRAM = """
import os
import sys
from pathlib import Path

import holdfast.sync as holdfast


def send(amount):
    if "dies" in sys.argv:
        os._exit(9)
    return f"sent {amount}"


@holdfast.durable
def pay(amount: int) -> str:
    run = holdfast.current()
    run.step("look", Path("looked").touch)
    receipt = run.step("send", send, amount, effect=True)
    if not Path("works").exists():
        raise ValueError("the model is down")
    return receipt


if __name__ == "__main__":
    pay.run("doubt", 40)
"""


@pytest.fixture(scope="module")
def failures(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the program, and the store with two failed threads and one whose payment is in doubt."""
    place = tmp_path_factory.mktemp("failures")
    shutil.copy(template, place / "holdfast.db")
    (place / "till.py").write_text(PROGRAM)
    assert subprocess.run([sys.executable, "till.py", "dies"], cwd=place, check=False).returncode == 9
    start = "import till, holdfast.sync as h\nfor name in 'ab':\n try: till.pay.run(name, 1)\n except ValueError: pass"
    subprocess.run([sys.executable, "-c", start], cwd=place, check=True)
    with sync.open(place / "holdfast.db") as store, store.run("b", labels={"user": "eve"}) as run:
        run.fail("the model is down")
    return place


@pytest.fixture
def failed(failures: Path, place: Path) -> Iterator[None]:
    """Two threads that failed, with a label, and one whose payment is in doubt."""
    shutil.copytree(failures, place, dirs_exist_ok=True)
    yield
    sys.modules.pop("till", None)


def complete(result: Any) -> None:
    with sync.open("holdfast.db") as store, store.run("finished") as run:
        run.complete(result)


def test_the_result_of_a_thread_is_printed_alone(call: Call, document: Document) -> None:
    complete("first line\nsecond line")
    assert call("result", "finished").stdout == "first line\nsecond line\n"
    assert document("result", "finished")["result"] == "first line\nsecond line"


def test_a_result_that_is_no_text_is_printed_as_json(call: Call) -> None:
    complete({"paid": (1, 2)})
    assert json.loads(call("result", "finished").stdout) == {"paid": [1, 2]}


def test_a_result_cannot_reach_the_terminal_raw(call: Call) -> None:
    complete(HOSTILE)
    assert call("result", "finished").stdout == "evil\\x1b[2J\n\\x00\\u202e\n"


def test_the_exit_code_says_what_came_of_a_thread(call: Call, document: Document) -> None:
    assert "broken failed" in call("result", "broken", code=1).stdout
    assert "boom" in document("result", "broken", code=1)["error"]
    assert "choices  approve | reject" in call("result", "ticket-1", code=5).stdout
    assert document("result", "ticket-1", code=5)["requests"][0]["name"] == "refund"
    assert "user-42 has no result yet: it is idle" in call("result", "user-42", code=5).stdout
    call("cancel", "ticket-1", "--yes")
    assert "ticket-1 was cancelled" in call("result", "ticket-1", code=1).stdout
    call("result", "nothing", code=3)


@pytest.mark.usefixtures("failed")
def test_failed_threads_are_put_back_by_id_and_then_recovered(call: Call, document: Document, place: Path) -> None:
    assert document("recover", "--app", "till", code=1)["failed"] == ["doubt"]
    said = call("retry", "a", "b").stdout
    assert "resume with: holdfast recover --app till" in said
    report = document("recover", "--app", "till", code=1)
    assert set(report["failed"]) == {"a", "b"}
    assert report["errors"]["a"] == "ValueError: the model is down"
    (place / "works").touch()
    (place / "looked").unlink()
    document("retry", "a", "b")
    assert set(document("recover", "--app", "till")["completed"]) == {"a", "b"}
    assert not (place / "looked").exists()


@pytest.mark.usefixtures("failed")
def test_all_failed_threads_are_put_back_only_with_yes(call: Call, document: Document) -> None:
    assert set(document("retry", "--status", "failed")["threads"]) == {"a", "b", "broken"}
    assert "dry run: nothing was changed; add --yes to do it" in call("retry", "--status", "failed").stdout
    assert document("retry", "--status", "failed", "--label", "user=eve", "--yes")["threads"] == ["b"]
    assert set(document("retry", "--status", "failed", "--yes")["threads"]) == {"a", "broken"}
    assert "no failed threads" in call("retry", "--status", "failed", "--yes").stdout


def test_what_has_not_failed_is_not_put_back(call: Call, document: Document) -> None:
    said = document("retry", "broken", "user-42", code=4)
    assert said["threads"] == ["broken"]
    assert "only a failed one can be retried" in said["refused"]["user-42"]
    for arguments in ([], ["broken", "--status", "failed"], ["broken", "--label", "a=b"]):
        call("retry", *arguments, code=2)


@pytest.mark.usefixtures("failed")
def test_a_step_in_doubt_is_settled_as_done(call: Call, document: Document, place: Path) -> None:
    (place / "works").touch()
    assert "holdfast settle doubt send --done JSON, --retry or --fail" in call("show", "doubt").stdout
    assert "holdfast settle" in call("resume", "doubt", "--app", "till:pay", code=1).stderr
    said = call("settle", "doubt", "send", "--done", '"P-9"').stdout
    assert "to resume the thread: holdfast resume doubt --app till:pay" in said
    assert document("recover", "--app", "till")["completed"] == ["doubt"]
    assert document("result", "doubt")["result"] == "P-9"


@pytest.mark.usefixtures("failed")
def test_a_step_in_doubt_is_executed_again(call: Call, document: Document, place: Path) -> None:
    (place / "works").touch()
    call("settle", "doubt", "send", "--retry")
    assert document("resume", "doubt", "--app", "till:pay")["result"] == "sent 40"


@pytest.mark.usefixtures("failed")
def test_a_step_settled_as_failed_fails_the_thread(call: Call) -> None:
    call("settle", "doubt", "send", "--fail", "--by", "ana")
    assert "settled as fail by ana" in call("resume", "doubt", "--app", "till:pay", code=1).stderr


@pytest.mark.usefixtures("failed")
def test_a_step_is_settled_once_and_by_its_full_name(call: Call) -> None:
    call("settle", "doub", "send", "--retry", code=3)
    assert "in doubt: 'send'" in call("settle", "doubt", "sen", "--retry", code=3).stderr
    for wrong in ([], ["--retry", "--fail"], ["--done", "null", "--retry"]):
        call("settle", "doubt", "send", *wrong, code=2)
    call("settle", "doubt", "send", "--done", "null")
    call("settle", "doubt", "send", "--done", "null", code=4)


@pytest.mark.usefixtures("failed")
def test_the_steps_in_doubt_are_offered_behind_their_thread() -> None:
    assert offered("settle", "doubt", "") == {"send": "in doubt"}
    assert offered("settle", "a", "") == {}
    assert list(offered("retry", "br")) == ["broken"]
    assert list(offered("result", "tick")) == ["ticket-1"]


def test_a_deleted_id_is_used_again_from_the_start(call: Call, document: Document) -> None:
    assert "its id would be free" in call("delete", "user-42", "--free-id").stdout
    assert document("delete", "user-42", "--free-id", "--yes")["free_id"] is True
    call("show", "user-42", code=3)
    with sync.open("holdfast.db") as store:
        assert store.save("user-42", {}).seq == 1
    call("delete", "user-42@1", "--free-id", code=2)


def test_a_deleted_thread_is_revived_by_its_full_id(call: Call, document: Document) -> None:
    call("delete", "user-42", "--yes")
    assert "`holdfast revive` frees its id" in call("show", "user-42", code=3).stderr
    assert document("revive", "user-42") == {"thread_id": "user-42"}
    with sync.open("holdfast.db") as store:
        assert store.save("user-42", {}).seq == 1
    call("revive", "user-42", code=4)
    call("revive", "nothing", code=3)


def test_show_says_how_many_more_rows_there_are(call: Call, document: Document) -> None:
    with sync.open("holdfast.db") as store:
        for number in range(25):
            store.save("long", {"n": number})
    assert "… and 5 more; --limit 0 shows all" in call("show", "long").stdout
    assert document("show", "long")["more"] == 5
    assert len(document("show", "long", "--limit", "0")["checkpoints"]) == 25
    assert "more" not in call("show", "long", "--limit", "25").stdout
