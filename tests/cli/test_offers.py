"""What a shell offers where an id is to be typed."""

import shlex
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from click.shell_completion import BashComplete, ZshComplete

from cli.conftest import Call
from holdfast import sync
from holdfast.cli import completion, main

HOLDFAST = Path(sys.executable).with_name("holdfast")


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
        for name in ("a b", "a$b", "a'b", "a;b", "a-b", "~root", "#lead", "-x"):
            opened.save(name, {})
    assert list(offered("show", "a")) == ["a-b"]
    assert list(offered("show", "evil")) == []
    assert not {"~root", "#lead", "-x"} & set(offered("show", ""))


def test_a_newline_in_a_name_adds_no_offer_in_zsh(monkeypatch: pytest.MonkeyPatch) -> None:
    """zsh reads three lines for each offer: its type, its value, and the word about it."""
    with sync.open("holdfast.db") as opened, pytest.raises(sync.Suspended), opened.run("asking") as run:
        run.ask("ok?\nplain\n$(reboot)", "payload")
    monkeypatch.setenv("COMP_WORDS", "holdfast answer ")
    monkeypatch.setenv("COMP_CWORD", "2")
    lines = ZshComplete(main, {}, "holdfast", "_HOLDFAST_COMPLETE").complete().splitlines()
    with sync.open("holdfast.db") as opened:
        requests = [request.id for request in opened.requests()]
    assert lines[::3] == ["plain"] * len(requests)
    assert sorted(lines[1::3]) == sorted(requests)
    assert "ok?\\nplain\\n$(reboot)" in lines[2::3]


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


def test_whoever_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    released = Event()
    monkeypatch.setattr(completion, "SECONDS", 0.05)
    monkeypatch.setattr(completion, "all_threads", lambda *_: released.wait())
    try:
        assert offered("show", "u") == {}
    finally:
        released.set()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        ("show use", ["user:42:essay", "user-43", "user-42"]),
        ("show 'user-4", ["user-43", "user-42"]),
        ("state user-42@", ["user-42@3", "user-42@2", "user-42@1"]),
        ("show user:", ["user:42:essay"]),
        ("--store sqlite:holdfast.db show user:", ["user:42:essay"]),
        ("--store redis://127.0.0.1:1 show ", []),
        ("--store file:nowhere show u", []),
        ("thre", ["threads"]),
    ],
)
def test_the_script_for_bash_completes_what_bash_takes_for_one_word(words: str, replies: list[str], call: Call) -> None:
    """As bash calls it: each word as it was typed, and the number of the one to complete."""
    with sync.open("holdfast.db") as opened:
        opened.save("user:42:essay", {})
    script = call("completion", "bash").output
    typed = " ".join(map(shlex.quote, ["holdfast", *words.split(" ")]))
    asked = f"COMP_WORDS=({typed}); COMP_CWORD={len(words.split(' '))}; _holdfast_completion {HOLDFAST}\n"
    told = 'for reply in "${COMPREPLY[@]}"; do echo "$reply"; done\n'
    ran = subprocess.run(["bash", "-c", script + asked + told], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == replies
