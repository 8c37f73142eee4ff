"""What a shell offers where an id is to be typed."""

from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from holdfast import sync
from holdfast.cli import main


def offered(*words: str) -> dict[str, str | None]:
    """The values offered for the last word, each with the word about it."""
    *before, start = words
    shell = BashComplete(main, {}, "holdfast", "_HOLDFAST_COMPLETE")
    return {item.value: item.help for item in shell.get_completions(before, start)}


@pytest.fixture(autouse=True)
def store(place: Path) -> Path:
    return place / "holdfast.db"


@pytest.mark.parametrize("command", ["show", "tail", "resume", "cancel", "export", "steps", "state", "fork", "delete"])
def test_a_thread_is_offered_by_the_beginning_of_its_id(command: str) -> None:
    assert offered(command, "user-4") == {"user-43": "idle", "user-42": "idle"}
    assert offered(command, "nobody") == {}


def test_behind_an_at_sign_the_checkpoints_of_the_thread_are_offered() -> None:
    assert list(offered("fork", "user-42@")) == ["user-42@3", "user-42@2", "user-42@1"]
    assert list(offered("diff", "user-42@1", "user-42@2")) == ["user-42@2"]
    assert offered("fork", "nobody@") == {}


@pytest.mark.parametrize("command", ["answer", "approve", "reject"])
def test_an_open_request_is_offered_with_its_name(command: str) -> None:
    with sync.open("holdfast.db") as opened:
        [request] = opened.requests()
    assert offered(command, "") == {request.id: request.name}


def test_ids_that_a_shell_would_read_as_something_else_are_not_offered() -> None:
    with sync.open("holdfast.db") as opened:
        for name in ("a b", "a$b", "a'b", "a;b", "a-b"):
            opened.save(name, {})
    assert list(offered("show", "a")) == ["a-b"]
    assert list(offered("show", "evil")) == []


def test_the_store_on_the_line_is_asked(place: Path) -> None:
    with sync.open(place / "other.db") as other:
        other.save("elsewhere", {})
    assert list(offered("show", "--store", "other.db", "else")) == ["elsewhere"]
    assert list(offered("--store", "other.db", "show", "else")) == ["elsewhere"]
    assert list(offered("show", "else")) == []


def test_without_a_store_nothing_is_offered_and_nothing_is_made(place: Path) -> None:
    assert offered("show", "--store", "nowhere.db", "u") == {}
    assert offered("show", "--store", str(place), "u") == {}
    assert offered("show", "--store", "redis://127.0.0.1:1/0", "u") == {}
    assert not (place / "nowhere.db").exists()


def test_no_more_is_offered_than_a_person_can_read() -> None:
    with sync.open("holdfast.db") as opened:
        for number in range(120):
            opened.save(f"many-{number}", {})
    assert len(offered("show", "many-")) == 100
