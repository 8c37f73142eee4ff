"""What is true of all commands: they are listed, documented, answer in JSON, fit the screen, and print nothing raw."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from cli.conftest import HOSTILE, Call
from holdfast import sync
from holdfast.cli import main
from holdfast.cli.command import COMMON
from holdfast.cli.group import COMMANDS
from holdfast.cli.output import cut, plain, printable, width_of

LONG = {"demo", "chaos", "worker"}
"""These have tests of their own."""
CALLS: dict[str, list[str]] = {
    "threads": [],
    "show": ["evil"],
    "result": ["broken"],
    "steps": ["broken"],
    "state": ["evil"],
    "diff": ["user-42@1", "evil"],
    "tail": ["--once", "-n", "100"],
    "stats": [],
    "queues": [],
    "requests": ["--status", "all"],
    "answer": ["ticket-1", "approve"],
    "approve": ["ticket-1"],
    "reject": ["ticket-1"],
    "submit": ["app:f", "new\x1b[2J", "1"],
    "resume": ["ticket-1", "--app", "shop:refund"],
    "recover": ["--app", "shop"],
    "retry": ["broken"],
    "settle": ["doubt", "pay\\x1b[2J", "--retry"],
    "fork": ["evil", "--to", "new\x1b[2J"],
    "cancel": ["broken"],
    "verify": [],
    "doctor": [],
    "gc": ["--keep-last", "1"],
    "delete": [printable(HOSTILE)],
    "revive": ["gone\x1b[2J"],
    "export": ["evil", "bundle\x1b[2J"],
    "import": ["bundle", "--to", "new\x1b[2J"],
    "backup": ["backup\x1b[2J"],
    "copy": ["holdfast.db", "copy.db"],
    "completion": ["bash"],
}
CODES = {"resume": 5, "result": 1}
LENGTHY = " ".join(["word"] * 60)


@pytest.fixture
def prepared(call: Call) -> Call:
    call("export", "user-42", "bundle")
    with sync.open("holdfast.db") as store:
        store.save("gone\x1b[2J", {})
        store.delete("gone\x1b[2J")
        with store.run("doubt") as run:
            run.begin_step("pay\x1b[2J")
    return call


def test_every_command_is_called_here() -> None:
    assert set(CALLS) | LONG == set(COMMANDS)


@pytest.mark.parametrize("name", CALLS)
def test_every_command_answers_with_one_document(prepared: Call, name: str) -> None:
    json.loads(prepared(name, *CALLS[name], "--json", code=CODES.get(name, 0)).stdout)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("form", ["", "--json"])
def test_nothing_of_a_user_reaches_a_terminal_raw(prepared: Call, name: str, form: str) -> None:
    said = prepared(name, *CALLS[name], *filter(None, [form]), code=CODES.get(name, 0)).output
    assert set(re.findall(r"[^\x20-\x7e]", said)) <= set("\n→…")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["threads", "show", "result", "steps", "diff", "tail", "requests", "doctor", "stats"])
def test_what_is_printed_fits_the_screen(
    prepared: Call, name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("holdfast.cli.session.is_terminal", lambda: True)
    for line in prepared(name, *CALLS[name], code=CODES.get(name, 0)).stdout.splitlines():
        assert width_of(line) <= width, line


@pytest.fixture
def lengthy(place: Path) -> None:
    """A thread that asked, changed and failed at length."""
    with sync.open(place / "holdfast.db") as store:
        store.save("lengthy", {"text": "short"}, metadata={"note": LENGTHY})
        store.save("lengthy", {"text": LENGTHY}, metadata={"note": LENGTHY})
        with pytest.raises(sync.Suspended), store.run("asks-at-length") as run:
            run.ask("what", {"text": LENGTHY})
        with pytest.raises(ValueError, match="word"), store.run("fails-at-length"):
            raise ValueError(LENGTHY)


@pytest.mark.usefixtures("lengthy")
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "lengthy"],
        ["show", "fails-at-length"],
        ["diff", "lengthy@1", "lengthy@2"],
        ["requests"],
        ["tail", "--once"],
    ],
    ids=" ".join,
)
def test_nothing_is_cut_where_no_terminal_is(call: Call, arguments: list[str]) -> None:
    said = call(*arguments).stdout
    assert LENGTHY in said
    assert "…" not in said


@pytest.mark.usefixtures("lengthy")
def test_on_a_terminal_an_error_is_wrapped_and_not_cut(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("holdfast.cli.session.is_terminal", lambda: True)
    said = call("show", "fails-at-length").stdout
    assert LENGTHY in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80
    assert "…" in call("requests").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_catalogue_says_what_the_command_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help
    options = {option for parameter in command.params for option in parameter.opts}
    assert {common["param_decls"][0] for common in COMMON} <= options
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize("name", sorted(LONG))
def test_what_has_a_store_of_its_own_does_not_promise_the_default_one(call: Call, name: str) -> None:
    said = " ".join(call(name, "--help").stdout.split())
    assert "Use this store: a path or a URL. Default: " in said
    assert "holdfast.db" not in said


def test_help_starts_without_anything_heavy() -> None:
    code = "import sys; from holdfast.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    modules = set(loaded.stdout.splitlines()[-1].split())
    assert "holdfast.cli.group" in modules
    assert not modules & {"asyncio", "sqlite3", "cryptography", "ssl", "subprocess", "holdfast.sync", "holdfast.runs"}
    assert not {name for name in modules if name.startswith(("holdfast.stores", "holdfast.demo", "holdfast.testing"))}


def test_it_is_a_module_too(place: Path) -> None:
    said = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\n", said.stdout)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, {2}), [1, [2]]),
        ({1: b"\x00", None: True}, {"1": "AA==", "None": True}),
        (float("nan"), "nan"),
        (1j, "1j"),
    ],
)
def test_values_become_json(value: Any, expected: Any) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("\x1b[0m", "\\x1b[0m"), ("\u202e", "\\u202e"), ("\U000e0001", "\\U000e0001"), ("é漢", "é漢")],
)
def test_text_is_made_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_wide_characters_take_two_columns() -> None:
    assert width_of("漢字") == 4
    assert cut("漢字", 3) == "漢…"
    assert cut("e\u0301e\u0301", 2) == "e\u0301e\u0301"
