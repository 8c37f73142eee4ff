"""Exit codes, one-line errors, and what happens when somebody interrupts or stops reading."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Call
from holdfast.cli.command import exit_code
from holdfast.records.errors import Conflict, Corrupt, KeyReused, LeaseHeld, NotFound, StoreUnavailable, Suspended
from patience import GIVE_UP_SECONDS

Document = Callable[..., Any]
HOLDFAST = (sys.executable, "-m", "holdfast")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["threads"], 0),
        (["gc"], 2),
        (["nonsense"], 2),
        (["threads", "--nonsense"], 2),
        (["threads", "--store", "nonsense:x"], 2),
        (["answer", "ticket-1", "perhaps"], 2),
        (["answer", "ticket-1", "--value", "{not json"], 2),
        (["gc", "--ttl", "soon"], 2),
        (["fork", "user-42@1", "--result", "x"], 2),
        (["resume", "ticket-1"], 2),
        (["resume", "ticket-1", "--app", "no.such.module:f"], 2),
        (["resume", "ticket-1", "--app", "shop:nothing"], 2),
        (["resume", "ticket-1", "--app", "shop:Order"], 2),
        (["resume", "user-42", "--app", "shop:refund"], 3),
        (["show", "nobody"], 3),
        (["threads", "--store", "nowhere.db"], 3),
        (["import", "nowhere.bundle"], 3),
        (["fork", "user-42@1", "--to", "user-43"], 4),
        (["fork", "ticket-1", "--result", "nothing=1"], 3),
        (["resume", "ticket-1", "--app", "shop:other"], 4),
        (["backup", "holdfast.db"], 4),
        (["resume", "ticket-1", "--app", "shop:refund"], 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_the_exit_code_says_what_happened(call: Call, arguments: list[str], code: int) -> None:
    result = call(*arguments, code=code)
    if code not in {0, 2, 5}:
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), 3),
        (Conflict("x"), 4),
        (LeaseHeld("x"), 4),
        (KeyReused("x"), 4),
        (Suspended("x"), 5),
        (Corrupt("x"), 1),
        (StoreUnavailable("x"), 1),
    ],
)
def test_every_error_of_ours_has_an_exit_code(error: Any, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_is_a_document_too(document: Document) -> None:
    failed = document("show", "nobody", code=3)
    assert failed["error"] == "NotFound"
    assert failed["exit_code"] == 3
    assert "nobody" in failed["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["threads", "--status", "foo"],
        ["threads", "--nonsense"],
        ["nonsense"],
        ["--nonsense", "threads"],
        ["fork", "user-42@1", "--result", "x"],
        [],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_a_document_too(document: Document, call: Call, arguments: list[str]) -> None:
    failed = document(*arguments, code=2)
    assert (failed["error"], failed["exit_code"]) == ("UsageError", 2)
    assert failed["message"] in call(*arguments, "--json", code=2).stderr
    assert call(*arguments, "--", "--json", code=2).stdout == ""


def test_looking_makes_no_store(call: Call, place: Path) -> None:
    (place / "empty.db").touch()
    (place / "empty").mkdir()
    for url in ("nowhere.db", "file:nowhere", "empty.db", "file:empty"):
        for command in ("threads", "stats", "verify", "doctor", "requests", "tail"):
            call(command, "--store", url, code=3)
    assert "no store at nowhere.db; FROM_URL must" in call("copy", "nowhere.db", "target.db", code=3).stderr
    call("threads", "--store", str(place), code=2)
    assert sorted(path.name for path in place.iterdir() if "nowhere" in path.name or "target" in path.name) == []
    assert (place / "empty.db").stat().st_size == 0
    assert list((place / "empty").iterdir()) == []


def test_a_result_without_its_key_names_the_form(call: Call) -> None:
    assert "'x' is not KEY=JSON" in call("fork", "user-42@1", "--result", "x", code=2).stderr


def test_a_memory_store_is_refused(call: Call) -> None:
    for url in ("memory:", "sqlite::memory:"):
        assert "a memory store is empty in a new process" in call("threads", "--store", url, code=2).stderr


@pytest.mark.processes
def test_debug_shows_where_an_error_comes_from(place: Path) -> None:
    command = [*HOLDFAST, "show", "nobody"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True, check=False)
    assert plain.returncode == 3
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert debug.returncode == 1


@pytest.mark.processes
def test_a_reader_that_goes_away_is_no_error(place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run([*HOLDFAST, "threads"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert ran.stderr == b""


def test_ctrl_c_ends_a_tail(place: Path) -> None:
    following = subprocess.Popen(
        [*HOLDFAST, "tail", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    assert "thread_id" in json.loads(following.stdout.readline())
    following.send_signal(signal.SIGINT)
    _, errors = following.communicate(timeout=GIVE_UP_SECONDS)
    assert following.returncode == 130
    assert "Traceback" not in errors


def test_a_tail_follows_what_others_write(place: Path) -> None:
    from holdfast import sync

    command = [*HOLDFAST, "tail", "--json", "--every", "0.05", "-n", "1"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert following.stdout is not None
    following.stdout.readline()
    with sync.open("holdfast.db") as store:
        store.save("new", {"x": 1})
        store.save("user-42", {"x": 1})
    seen = [json.loads(following.stdout.readline()) for _ in range(2)]
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=GIVE_UP_SECONDS)
    assert [(row["thread_id"], row["seq"]) for row in seen] == [("new", 1), ("user-42", 4)]


def on_terminal(*arguments: str, **environment: str) -> str:
    """What a command prints on a terminal."""
    inside, outside = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", **environment}
    ran = subprocess.Popen([*HOLDFAST, *arguments], stdout=outside, stderr=outside, stdin=outside, env=variables)
    os.close(outside)
    chunks = []
    while True:
        try:
            chunk = os.read(inside, 65536)
        except OSError:  # what Linux says when the other side is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(inside)
    assert ran.wait(GIVE_UP_SECONDS) == 0
    return b"".join(chunks).decode()


@pytest.mark.processes
def test_colours_are_for_terminals_alone(place: Path, call: Call) -> None:
    assert "\x1b[31m" in on_terminal("threads")
    assert "\x1b" not in on_terminal("threads", NO_COLOR="1")
    assert "\x1b" not in call("threads").stdout


@pytest.mark.processes
def test_progress_is_shown_on_a_terminal_alone(place: Path, call: Call) -> None:
    assert "100%" in on_terminal("verify")
    assert "100%" not in on_terminal("verify", "--json")
    assert call("verify").stderr == ""
