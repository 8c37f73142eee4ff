"""Ids by their beginning, as in git."""

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
    assert document("answer", "tick", "approve")["request"].startswith("ticket-1#1.")


def test_a_checkpoint_in_the_place_of_a_thread_is_told(call: Call) -> None:
    failed = call("show", "user-42@1", code=3)
    assert "'user-42@1' is a checkpoint, and a thread is needed here: 'user-42'" in failed.stderr


@pytest.mark.parametrize(("typed", "meant"), [("list", "threads"), ("shwo", "show"), ("thread", "threads")])
def test_a_command_that_there_is_not_is_answered_with_the_nearest(call: Call, typed: str, meant: str) -> None:
    assert f"No such command '{typed}'. Did you mean `holdfast {meant}`?" in call(typed, code=2).stderr
    assert "Did you mean" not in call("xyzzy", code=2).stderr


def test_an_open_request_comes_before_one_that_was_answered(document: Document) -> None:
    with sync.open("holdfast.db") as store, pytest.raises(sync.Suspended), store.run("ticket-2") as run:
        run.ask("first")
    document("answer", "ticket-2", "--value", "1")
    assert document("approve", "ticket")["thread_id"] == "ticket-1"


@pytest.mark.parametrize("reference", ["nobody", "nobody@1", "user-42@9", "user-42@1.ffffffff", "ticket-1@1", "@1", ""])
def test_what_is_not_there_is_not_found(call: Call, reference: str) -> None:
    call("state", reference, code=2 if reference == "" else 3)
