"""The documents tell the truth: their programs run as pasted, and their bytes are the ones that are stored."""

import importlib.util
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import ip_address, ip_network
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from holdfast import codec, sync
from holdfast.testing.conformance.store_kit import EVERYTHING
from patience import GIVE_UP_SECONDS

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PROJECT = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY", "benchmarks/README")]
DOCUMENTS = [*PROJECT, *sorted((ROOT / "examples").glob("*/README.md")), *PAGES]
SESSIONS = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "cookbook").glob("*.md"))]
"""Documents whose consoles are played, in the order in which a reader comes to them."""
FENCE = re.compile(r"^(?:<!-- saved as (\S+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
VECTOR = re.compile(r"^\| `(.+?)` \| `([0-9a-f ]+)` \|$", re.MULTILINE)


def title(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """A program in a document: what it prints, if the document says so, and the files it needs beside it."""

    name: str
    code: str
    output: str | None
    files: dict[str, str]


def blocks_of(document: Path) -> Iterator[Block]:
    """The programs of a document, but for those that its consoles run."""
    files: dict[str, str] = {}
    found = [match.groups() for match in FENCE.finditer(document.read_text())]
    for number, (saved_as, language, code) in enumerate(found):
        if language != "python":
            continue
        following = found[number + 1] if number + 1 < len(found) else (None, "", "")
        if not (saved_as and document in SESSIONS):
            output = following[2] if following[1] == "text" else None
            yield Block(f"{title(document)}-{number}", code, output, dict(files))
        if saved_as:
            files[saved_as] = code


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]


def run(*arguments: str, cwd: Path) -> str:
    """What a Python program prints. Warnings are errors; nothing of the checkout but the package can be imported."""
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.processes
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_program_in_a_document_runs_as_pasted(block: Block, tmp_path: Path) -> None:
    for name, code in block.files.items():
        (tmp_path / name).write_text(code)
    printed = run("-c", block.code, cwd=tmp_path)
    assert block.output is None or printed == block.output
    claimed = re.findall(r"^ *print\(.*\)  # (.*)$", block.code, re.MULTILINE)
    assert not claimed or printed.splitlines() == claimed, "a comment behind a print says what it prints"


@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_every_link_leads_somewhere(document: Path) -> None:
    for link in LINK.findall(prose(document)):
        if not link.startswith("https://"):
            path, _, heading = link.partition("#")
            target = document.parent / path if path else document
            assert target.is_file(), link
            assert not heading or heading in anchors(target), link


def prose(document: Path) -> str:
    return FENCE.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, in the repository as on the site."""
    lines = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in lines}


def test_the_readme_is_short_and_promises_no_magic() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
    for document in DOCUMENTS:
        assert not re.search("exactly[ -]once", document.read_text(), re.IGNORECASE)


# Consoles: the commands are really run, and the processes really killed


@pytest.mark.processes
@pytest.mark.parametrize("document", SESSIONS, ids=title)
def test_the_consoles_of_a_document_print_what_it_shows(document: Path, tmp_path: Path) -> None:
    bin_dir = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "COLUMNS": "200"}
    for saved_as, language, content in FENCE.findall(document.read_text()):
        if saved_as:
            (tmp_path / saved_as).write_text(content)
        for command, shown in played(content) if language == "console" else ():
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=GIVE_UP_SECONDS,
                check=False,
            )
            printed = done.stdout + "Killed\n" * (done.returncode == -signal.SIGKILL)
            assert shows(shown, printed, exact=command.startswith("python ")), f"$ {command}\n{printed}"


def played(console: str) -> Iterator[tuple[str, str]]:
    """The commands of a console, each with what is shown below it."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def shows(shown: str, printed: str, *, exact: bool) -> bool:
    """True if this was printed. A line "…" stands for any lines; but for programs, numbers and widths may differ."""
    if not exact:
        shown, printed = (
            re.sub(r" +", " ", without_numbers(text)).replace("# s ago", "now") for text in (shown, printed)
        )
    pattern = "(?:.*\n)*".join(re.escape(part) for part in shown.split("…\n"))
    return re.fullmatch(pattern, printed) is not None


# The demo


@pytest.mark.processes
def test_the_demo_says_what_the_readme_shows(tmp_path: Path) -> None:
    printed = run("-m", "holdfast", "demo", "crash", cwd=tmp_path)
    assert "\033" not in printed
    shown = next(code for _, language, code in FENCE.findall((ROOT / "README.md").read_text()) if language == "text")
    assert without_numbers(shown.strip()) in without_numbers(printed)


def without_numbers(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{8,}\b|\d+", "#", text)


# The storage format


@pytest.fixture(scope="module")
def read_store() -> ModuleType:
    """The reader of the documents, which knows nothing of Holdfast."""
    path = ROOT / "docs" / "examples" / "read_store.py"
    assert not re.search(r"^\s*(import|from) (holdfast|msgspec|ormsgpack)", path.read_text(), re.MULTILINE)
    spec = importlib.util.spec_from_file_location("read_store", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def grown() -> Iterator[dict[str, Any]]:
    """States that use all of the format: small cells, long lists, edits in the middle, blobs, closed cells, order."""
    state: dict[str, Any] = {"plan": ["search"], "notes": {"a": {"b": {}}, "c": 1}, "pages": []}
    yield dict(state)
    for number in range(60):
        state["pages"] = [*state["pages"], {"number": number, "text": f"page {number} " * (20 + 40 * (number % 7))}]
        if number % 10 == 3:
            state["pages"][number // 2] = (number, {1: "int key", None: {2, 3}})
        if number % 10 == 5:
            state[f"key {number}"] = "x" * 100 * number
        if number % 10 == 7:
            state = {"plan": state["plan"], **{key: state[key] for key in sorted(state)}}
            state["notes"]["a"]["b"][f"n{number}"] = [True, 1, 1.5, b"bytes", frozenset({"f"})]
        yield dict(state)
    yield {}


def reader(module: ModuleType, path: Path, thread_id: str) -> Any:
    return module.Thread(sqlite3.connect(path), thread_id)


def test_the_reader_in_the_documents_restores_every_checkpoint(tmp_path: Path, read_store: ModuleType) -> None:
    path = tmp_path / "agents.db"
    states = list(grown())
    with sync.open(path, durability="process") as store:
        for state in states:
            store.save("t", state)
            store.append("appended", "pages", state)
    thread, appended = reader(read_store, path, "t"), reader(read_store, path, "appended")
    for seq, state in enumerate(states, 1):
        restored = thread.state(seq)
        assert restored == state
        assert codec.encode(restored) == codec.encode(state)  # types and the order of keys too
    assert appended.state() == {"pages": states}
    thread.database.close()
    appended.database.close()


def test_the_reader_reads_what_is_left_by_a_prune_and_an_erase(tmp_path: Path, read_store: ModuleType) -> None:
    path = tmp_path / "agents.db"
    states = list(grown())[:-1]
    with sync.open(path, durability="process") as store:
        for state in states:
            store.save("t", state, idempotency_key=f"key {len(state['pages'])}", metadata={"pages": len(state)})
        store.pin(store.get("t", 5).id)
        store.pin(store.get("t", 9).id)
        store.prune(sync.Retention(keep_last=2))
        store.pin(store.get("t", 9).id, pinned=False)  # it stays until the next prune
        store.fork(store.get("t", 5).id, to="fork")
        store.save("gone", 1)
        store.delete("gone")
    with closing(sqlite3.connect(path)) as database:
        thread = read_store.Thread(database, "t")
        assert [thread.state(seq) for seq in (5, 9, 60, 61)] == [states[at] for at in (4, 8, 59, 60)]
        assert read_store.Thread(database, "fork").state() == states[4]
        for thread_id, seq in (("t", 7), ("t", 62), ("gone", None), ("never", None)):
            with pytest.raises(ValueError, match="is deleted, pruned, or never was"):
                read_store.Thread(database, thread_id).state(seq)
    with sync.open(path, durability="process") as store:
        store.erase("t")
    with closing(sqlite3.connect(path)) as database:
        assert read_store.Thread(database, "t").state() == states[60]


@pytest.mark.parametrize("state", [EVERYTHING, [1, 2], "text", None, {"": {"": {}}}, {1: 2}], ids=type)
def test_the_reader_reads_states_of_every_kind(state: Any, tmp_path: Path, read_store: ModuleType) -> None:
    path = tmp_path / "agents.db"
    with sync.open(path, durability="process", namespace="n") as store:
        store.save("t", state)
    with closing(sqlite3.connect(path)) as database:
        restored = read_store.Thread(database, "t", "n").state()
    assert plain(restored, read_store.Ext) == plain(packed(state, read_store), read_store.Ext)


def packed(state: Any, read_store: ModuleType) -> Any:
    return read_store.unpack(codec.encode(state))


def plain(value: Any, ext: type) -> str:
    """A value in words that tell nan from nan, and 1 from True; sets have an order of their own."""
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}{sorted(plain(item, ext) for item in value)}"
    if isinstance(value, dict):
        return str([(plain(key, ext), plain(item, ext)) for key, item in value.items()])
    if isinstance(value, list | tuple) and not isinstance(value, ext):
        return f"{type(value).__name__}{[plain(item, ext) for item in value]}"
    return repr(value)


def test_the_reader_refuses_a_flipped_bit(tmp_path: Path, read_store: ModuleType) -> None:
    path = tmp_path / "agents.db"
    with sync.open(path, durability="process") as store:
        for state in list(grown())[:-1]:
            store.save("t", state)
    columns = (
        ("rows", "header", "digest = x''", "the head is damaged"),
        ("rows", "header", "digest <> x''", "a header is damaged"),
        ("rows", "body", "digest <> x''", "a row is damaged"),
        ("rows", "digest", "digest <> x''", "a row is damaged"),
        ("blobs", "data", "true", "a blob is damaged"),
    )
    for table, column, where, problem in columns:
        with closing(sqlite3.connect(path)) as database:
            found = database.execute(f"SELECT rowid, {column} FROM {table} WHERE {where}").fetchall()
            assert found
            for at, value in found:
                flipped = bytes((*value[:-1], value[-1] ^ 1))
                database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (flipped, at))
            with pytest.raises(ValueError, match=problem):
                read_store.Thread(database, "t").state()


@pytest.mark.parametrize("change", ["back = back + 1", "back = back - 1", "back = -1", "id = id + 1000", "id = id - 1"])
def test_the_reader_refuses_a_row_in_another_place(change: str, tmp_path: Path, read_store: ModuleType) -> None:
    path = tmp_path / "agents.db"
    with sync.open(path, durability="process") as store:
        for number in range(4):
            store.append("t", "numbers", number)
    with closing(sqlite3.connect(path)) as database:
        newest = "(SELECT max(id) FROM rows WHERE digest <> x'')"
        database.execute(f"UPDATE OR REPLACE rows SET {change} WHERE id = {newest}")
        problem = "the head is missing" if "+ 1000" in change else "is damaged"  # that row is behind the head
        for seq in {"id = id - 1": [3, 4]}.get(change, [4]):
            with pytest.raises(ValueError, match=problem):
                read_store.Thread(database, "t").state(seq)


def test_the_worked_example_is_what_is_stored() -> None:
    document = (ROOT / "docs" / "storage-format.md").read_text()
    assert run(str(ROOT / "docs" / "examples" / "worked_example.py"), cwd=ROOT) in document


class Colour(Enum):
    RED = 1


def test_every_encoding_in_the_table_is_what_is_stored() -> None:
    codec.register(Colour, name="Colour")
    known = (Colour, Decimal, PurePosixPath, UUID, ZoneInfo, date, datetime, time, timedelta, timezone)
    more = (Counter, Fraction, OrderedDict, defaultdict, deque, ip_address, ip_network, re)
    names = {each.__name__: each for each in (*known, *more)}
    _, _, table_on = (ROOT / "docs" / "storage-format.md").read_text().partition("| value | encoding |\n")
    table = VECTOR.findall(table_on.partition("\n\n")[0])
    assert len(table) > 25
    for expression, encoding in table:
        value = eval(expression, names)
        assert codec.encode(value).hex() == encoding.replace(" ", ""), expression
        assert repr(codec.decode(bytes.fromhex(encoding))) == repr(value)


def test_every_extension_code_is_in_the_document() -> None:
    from holdfast.codec import tags

    text = (ROOT / "docs" / "storage-format.md").read_text()
    codes = {name: code for name, code in vars(tags).items() if type(code) is int}
    for name, code in codes.items():
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE), name


def test_the_sqlite_schema_is_in_the_document(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "storage-format.md").read_text()
    with sync.open(tmp_path / "agents.db") as store:
        store.save("t", 1)
    with closing(sqlite3.connect(tmp_path / "agents.db")) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        for (table,) in tables.fetchall():
            columns = [column[1] for column in database.execute(f"PRAGMA table_info({table})")]
            assert f"| `{table}` | {', '.join(f'`{column}`' for column in columns)} |" in text
        assert f"application_id {database.execute('PRAGMA application_id').fetchone()[0]:#x}" in text
        assert f"user_version {database.execute('PRAGMA user_version').fetchone()[0]}" in text


# The journal


def test_every_entry_of_the_journal_is_in_the_document() -> None:
    from typing import get_args

    from holdfast.history.entries import AnyEntry

    text = (ROOT / "docs" / "storage-format.md").read_text()
    for entry in get_args(AnyEntry):
        row = f"| `{entry.__struct_config__.tag}` | {', '.join(entry.__struct_fields__)} |"
        assert row in text, row


def test_the_reader_shows_the_journal(tmp_path: Path, read_store: ModuleType) -> None:
    path = tmp_path / "agents.db"
    with sync.open(path, durability="process") as store:
        store.save("plain", 1)
        with suppress(sync.Suspended), store.run("t") as run:
            run.step("search", str.upper, "kelp")
            run.record(sync.Step(action="noted", tool_output=(1, 2)))
            run.ask("refund", {"amount": 40}, choices=("yes", "no"))
        store.answer(store.requests().items[0].id, "yes", [3], by="ana")
        with store.run("t") as run:
            run.ask("refund", {"amount": 40}, choices=("yes", "no"))
            run.complete({"done": True})
    with closing(sqlite3.connect(path)) as database:
        done, noted, asked, answer, end = read_store.Thread(database, "t").journal()
        assert read_store.Thread(database, "plain").journal() == []
    assert (done[0], done[1], done[4]) == ("done", "search", "KELP")
    assert noted[2] == {"action": "noted", "tool_output": (1, 2)}
    assert (asked[0], asked[3:6]) == ("ask", ["refund", {"amount": 40}, ["yes", "no"]])
    assert answer[:5] == ["answer", 1, "yes", [3], "ana"]
    assert (end[0], end[1], end[2]) == ("end", "complete", {"done": True})
    assert "'refund'" in run_reader(path, "t", "journal")


def run_reader(path: Path, *arguments: str) -> str:
    return run(str(ROOT / "docs" / "examples" / "read_store.py"), str(path), *arguments, cwd=path.parent)
