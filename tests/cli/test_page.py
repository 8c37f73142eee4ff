"""The page about the command line tells the truth: it lists the commands there are, and what they print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.group import COMMANDS

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "cli.md").read_text()
VARYING = (
    re.compile(r"\.[0-9a-f]{8}\b"),  # the lives of threads
    re.compile(r"\d\d:\d\d:\d\d|\bnow\b|\b\d+ (?:ms|s|min|h|d)(?: ago)?\b"),
    re.compile(r"\d[\d.,]*(?: [KMG]?B)?"),
)


def shown(page: str) -> list[tuple[str, str]]:
    """Every command on a page, in order, and what it is said to print."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    calls = [call for block in blocks for call in re.split(r"^\$ ", block, flags=re.MULTILINE) if call]
    return [(command, output) for command, _, output in (call.partition("\n") for call in calls)]


def essence(text: str) -> str:
    """Without what differs from one run to the next: times, ids, sizes, and the spaces that depend on them."""
    for varying in VARYING:
        text = varying.sub("#", text)
    return " ".join(text.split())


def said_by(command: str) -> str:
    program, *arguments = shlex.split(command)
    if program == "python":
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout
    result = CliRunner().invoke(main, arguments)
    assert isinstance(result.exception, SystemExit | None)
    return result.output


def test_the_page_lists_the_commands_that_there_are() -> None:
    assert re.findall(r"^### `holdfast ([a-z]+)", PAGE, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", ["cli", "encryption"])
def test_the_commands_print_what_the_page_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / f"{name}.md").read_text()
    program = re.search(r"^<!-- saved as (\w+).py -->\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert program is not None
    (tmp_path / f"{program[1]}.py").write_text(program[2])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, program[1], raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "80")
    for variable in ("HOLDFAST_STORE", "HOLDFAST_KEY"):
        monkeypatch.delenv(variable, raising=False)
    for command, output in shown(page):
        said = said_by(command)
        if command != "holdfast doctor":  # it speaks of the machine it runs on
            assert essence(said) == essence(output), command
    sys.modules.pop(program[1], None)
