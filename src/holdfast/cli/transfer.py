"""Threads from one place to another: bundles, backups, copies between stores of any kind."""

import os
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.exits import EXIT_CONFLICT, EXIT_ERROR
from holdfast.cli.find import find_thread
from holdfast.cli.offers import offer_files, thread_argument
from holdfast.cli.progress import progress_bar
from holdfast.cli.screen import Screen, counted, size
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.records.errors import Conflict
from holdfast.records.reports import Copied
from holdfast.records.urls import redacted

plain_option = click.option("--plain", is_flag=True, help="The bundle is in plain text, though the store is encrypted.")


@command("export")
@thread_argument()
@click.argument("file", type=click.Path(dir_okay=False))
@plain_option
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
def export(session: Session, thread: str, file: str, plain: bool, force: bool) -> Answer:
    """Write a thread with its whole history to a file that any store can import.

    It is encrypted if the store is, unless --plain.
    """
    thread_id = find_thread(session.store, thread)
    if os.path.lexists(file) and not force:
        raise Conflict(f"{file} exists already; --force replaces it")
    session.store.export(thread_id, file, keys=None if plain else session.keys)
    written = Path(file).stat().st_size
    document = {"thread_id": thread_id, "file": file, "bytes": written}
    return Answer(document, lambda _: [f"exported {printable(thread_id)} to {printable(file)}: {size(written)}"])


@command("import")
@click.argument("file", type=click.Path(exists=False, dir_okay=False))
@click.option("--to", metavar="NEW_ID", help="The id of the thread here; by default the one it had.")
@plain_option
def import_(session: Session, file: str, to: str | None, plain: bool) -> Answer:
    """Read a thread from a file that `export` wrote. A store that is not there is made."""
    store = session.open(session.url, create=True)
    thread_id = store.import_(file, to, keys=None if plain else session.keys)
    info = store.thread(thread_id)
    text = f"imported {printable(thread_id)}: {counted(info.row_count, 'row')}, {size(info.stored_bytes)}"
    return Answer({"thread_id": thread_id, "file": file, "thread": info}, lambda _: [text])


@command("backup")
@click.argument("file", type=click.Path(dir_okay=False))
def backup(session: Session, file: str) -> Answer:
    """Copy the whole store into a new SQLite file, while others go on writing."""
    session.store.backup(file)
    written = Path(file).stat().st_size
    return Answer({"file": file, "bytes": written}, lambda _: [f"backed up to {printable(file)}: {size(written)}"])


@command("copy")
@click.argument("source", metavar="FROM_URL", shell_complete=offer_files)
@click.argument("target", metavar="TO_URL", shell_complete=offer_files)
def copy(session: Session, source: str, target: str) -> Answer:
    """Copy all threads with their whole history from one store to another, of any kind.

    What was copied is read back and compared. Threads that are there already and equal are skipped, so a copy that was
    interrupted can be repeated; one that is there and differs is a conflict, and left as it is.
    """
    old = session.open(source, advice="FROM_URL has to name one")
    new = session.open(target, create=True)
    with progress_bar("copy", quiet=session.as_json) as progress:
        copied = old.copy_to(new, progress=progress)
    document = {"from": redacted(source), "to": redacted(target), "copied": copied}
    code = EXIT_ERROR if copied.damaged else EXIT_CONFLICT if copied.conflicts else 0
    return Answer(document, lambda screen: _copied_lines(screen, copied), code)


def _copied_lines(screen: Screen, copied: Copied) -> Iterator[str]:
    for thread_id in copied.damaged:
        yield screen.style("damaged", fg="red") + f"   {printable(thread_id)} was not copied; verify says more"
    for thread_id in copied.conflicts:
        yield screen.style("conflict", fg="red") + f"  {printable(thread_id)} is there already, and differs"
    skipped = f", {counted(copied.skipped, 'thread')} there already" if copied.skipped else ""
    yield f"copied {counted(copied.threads, 'thread')}, {counted(copied.rows, 'row')}, {size(copied.bytes)}{skipped}"
