"""Ids by their beginning, as in git."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from cli.conftest import HOSTILE, Call
from holdfast import sync

Document = Callable[..., Any]


def test_the_beginning_of_an_id_is_enough(document: Document) -> None:
    assert document("show", "tick")["thread"]["thread_id"] == "ticket-1"
    assert document("state", "tick@3")["checkpoint"]["thread_id"] == "ticket-1"


def test_an_ambiguous_beginning_names_the_candidates(call: Call) -> None:
    said = call("show", "user", code=2).stderr
    assert "user-42" in said
    assert "user-43" in said


def test_an_exact_match_wins(document: Document) -> None:
    with sync.open("holdfast.db") as store:
        store.save("user", {})
        store.save("user-42@1", {"its": "own"})
    assert document("show", "user")["thread"]["thread_id"] == "user"
    assert document("state", "user-42@1")["state"] == {"its": "own"}


def test_many_candidates_are_not_all_named(call: Call) -> None:
    with sync.open("holdfast.db") as store:
        for number in range(30):
            store.save(f"many-{number}", {})
    said = call("show", "many", code=2).stderr
    assert "30 threads" in said
    assert "and 20 more" in said


def test_an_id_can_be_typed_as_it_is_printed(call: Call, document: Document) -> None:
    printed = call("show", "evil").stdout.splitlines()[0].split()[1]
    assert document("show", printed)["thread"]["thread_id"] == HOSTILE
    assert document("show", "evil")["thread"]["thread_id"] == HOSTILE


def test_a_request_is_found_by_its_thread(document: Document) -> None:
    assert document("answer", "ticket-1", "approve")["request"].startswith("ticket-1#1.")


def ask(*threads: str, questions: int = 1) -> None:
    """Let each thread ask something."""
    with sync.open("holdfast.db") as store:
        for thread_id in threads:
            for number in range(questions):
                with pytest.raises(sync.Suspended), store.run(f"{thread_id}") as run:
                    run.confirm(f"question {number}")


def test_an_answer_given_twice_is_not_given_to_another_thread(call: Call, document: Document) -> None:
    ask("inv-1", "inv-10")
    assert document("approve", "inv-1", "--by", "ana")["thread_id"] == "inv-1"
    said = call("approve", "inv-1", code=4).stderr
    assert re.search(r"thread 'inv-1' has no open request; inv-1#1\.\w+ was answered by ana", said)
    assert {request["thread_id"] for request in document("requests")} == {"inv-10", "ticket-1"}


def test_an_answer_is_for_the_thread_of_exactly_that_id(document: Document) -> None:
    ask("inv-2", "inv-20")
    assert document("reject", "inv-2")["thread_id"] == "inv-2"


@pytest.mark.parametrize("command", ["approve", "reject", "delete", "cancel"])
def test_what_changes_a_thread_takes_no_beginning_of_its_id(call: Call, command: str) -> None:
    said = call(command, "tick", code=3).stderr
    assert "no thread has the id 'tick'; this takes the full id: ticket-1" in said
    assert "`holdfast threads` lists them" in call(command, "nobody", code=3).stderr


def test_a_thread_with_several_questions_names_them(call: Call, document: Document) -> None:
    ask("many", questions=2)
    assert "has 2 open requests: many#1." in call("approve", "many", code=2).stderr
    assert document("approve", "many#2")["request"].startswith("many#2.")
    assert document("approve", "many")["request"].startswith("many#1.")


def test_the_beginning_of_the_id_of_a_request_means_the_same_one_each_time(call: Call, document: Document) -> None:
    ask("many", questions=12)
    full = document("approve", "many#1")["request"]
    assert full.startswith("many#1.")
    assert f"request {full} was answered already" in call("approve", "many#1", code=4).stderr
    assert "is a prefix of 12 requests" in call("approve", "many#", code=2).stderr
    assert document("reject", document("requests")[0]["id"][:-2])["choice"] == "reject"


def test_a_thread_without_a_request_says_so(call: Call) -> None:
    assert "thread 'user-42' has no open request" in call("approve", "user-42", code=3).stderr


def test_a_thread_deleted_twice_does_not_take_another_with_it(call: Call, document: Document) -> None:
    with sync.open("holdfast.db") as store:
        for thread_id in ("pre-1", "pre-10", "pre", "pre@1"):
            store.save(thread_id, {})
    call("delete", "pre-1", "--yes")
    call("delete", "pre@1", "--yes")
    for command in (
        ["delete", "--yes"],
        ["cancel", "--yes"],
        ["show"],
        ["approve"],
        ["resume", "--app", "shop:refund"],
    ):
        assert "thread 'pre-1' was deleted" in call(command[0], "pre-1", *command[1:], code=3).stderr
    assert "thread 'pre@1' was deleted" in call("delete", "pre@1", "--yes", code=3).stderr
    document("state", "pre@1", code=3)
    assert {"pre", "pre-10"} <= {thread["thread_id"] for thread in document("threads")}


def test_one_checkpoint_is_deleted_by_the_full_id_of_its_thread(call: Call) -> None:
    assert "this takes the full id: user-43, user-42" in call("delete", "user-4@1", "--yes", code=3).stderr
    call("delete", "user-42@1", "--yes")


def test_a_full_id_may_be_typed_as_it_is_printed(call: Call, document: Document) -> None:
    printed = call("show", "evil").stdout.splitlines()[0].split()[1]
    assert document("delete", printed)["thread_id"] == HOSTILE


def test_a_checkpoint_in_the_place_of_a_thread_is_told(call: Call) -> None:
    failed = call("show", "user-42@1", code=3)
    assert "'user-42@1' is a checkpoint, but this takes a thread: 'user-42'" in failed.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("list", "threads"),
        ("shwo", "show"),
        ("thread", "threads"),
        ("checkpoints", "show"),
        ("inspect", "show"),
        ("prune", "gc"),
        ("replay", "fork"),
        ("restore", "fork"),
        ("rewind", "fork"),
        ("rm", "delete"),
        ("rollback", "fork"),
    ],
)
def test_a_command_that_there_is_not_is_answered_with_the_nearest(call: Call, typed: str, meant: str) -> None:
    assert f"No such command '{typed}'. Did you mean `holdfast {meant}`?" in call(typed, code=2).stderr
    assert "Did you mean" not in call("xyzzy", code=2).stderr


@pytest.mark.parametrize("reference", ["nobody", "nobody@1", "user-42@9", "user-42@1.ffffffff", "ticket-1@1", "@1", ""])
def test_what_is_not_there_is_not_found(call: Call, reference: str) -> None:
    call("state", reference, code=2 if reference == "" else 3)


@pytest.mark.parametrize("command", [["diff", "mixed@1"], ["fork"], ["state"]], ids=" ".join)
def test_a_journal_row_is_answered_with_the_nearest_checkpoints(call: Call, command: list[str]) -> None:
    with sync.open("holdfast.db") as store, store.run("mixed") as run:
        run.checkpoint({"x": 1})
        run.step("pay", lambda idempotency_key: None, effect=True)
    said = call(*command, "mixed@2", code=3).stderr
    assert "is a journal row, not a checkpoint; the nearest: mixed@1 and mixed@3" in said
    assert "; the nearest: mixed@" in call(*command, "mixed@99", code=3).stderr


def test_a_store_that_nothing_has_opened_yet_finds_them_too(call: Call) -> None:
    """Each call opens its store by itself: a file store refuses whoever comes before that."""
    with sync.open("file:logs") as store:
        for number in range(3):
            store.save("job-1", {"n": number})
    for command in (["diff", "job-1@1", "job-1@2"], ["fork", "job-1@1", "--to", "again"], ["state", "job@2"]):
        call(*command, "--store", "file:logs")
    assert "no thread has the id" in call("delete", "job", "--yes", "--store", "file:logs", code=3).stderr
    call("delete", "job-1@1", "--yes", "--store", "file:logs")
