"""Maintain a store: check it, delete from it, and move threads to files and other stores."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click

from holdfast.cli import lookup
from holdfast.cli.apps import load
from holdfast.cli.arguments import duration
from holdfast.cli.command import EXIT_CONFLICT, EXIT_ERROR, EXIT_OK, command, offer_files, yes_option
from holdfast.cli.completion import checkpoint_argument, thread_argument
from holdfast.cli.output import DRY_RUN, Answer, Screen, counted, printable, progress_bar, size
from holdfast.cli.session import Session
from holdfast.records.errors import ConfigurationError, Conflict
from holdfast.records.reports import Copied, Report
from holdfast.records.retention import Freed, Retention, retention_or_none
from holdfast.records.urls import redacted
from holdfast.records.words import Status

plain_option = click.option("--plain", is_flag=True, help="Use a bundle in plain text, though the store is encrypted.")


@command(only_reads=True)
def verify(session: Session) -> Answer:
    """Read and check all stored data. Exit code 1 if anything is damaged."""
    with progress_bar("verify", quiet=session.as_json) as progress:
        report = session.store.verify(progress=progress)
    document = {"ok": report.ok, "checked": report.checked, "problems": report.problems}
    return Answer(document, _report_lines(session.screen, report), EXIT_OK if report.ok else EXIT_ERROR)


def _report_lines(screen: Screen, report: Report) -> Iterator[str]:
    for problem in report.problems:
        where = f"{problem.thread_id}: " if problem.thread_id else ""
        yield f"{screen.word('fail')}  {printable(where + problem.message)}"
    verdict = screen.word("ok") if report.ok else screen.style(counted(len(report.problems), "problem"), fg="red")
    yield f"{verdict}: {counted(report.checked, 'record')} checked"


@command()
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="Keep the newest N checkpoints of each thread.")
@click.option("--ttl", metavar="DURATION", type=duration, help="Delete threads without a write for this long.")
@click.option("--max-age", metavar="DURATION", type=duration, help="Delete checkpoints that are older than this.")
@click.option(
    "--delete-on",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="Delete threads in this status.",
)
@click.option("--pinned", is_flag=True, help="Delete pinned checkpoints too.")
@click.option("--app", metavar="MODULE:STORE", help="Apply the retention of your program's store instead.")
@yes_option
def gc(
    session: Session,
    keep_last: int | None,
    ttl: timedelta | None,
    max_age: timedelta | None,
    delete_on: tuple[str, ...],
    pinned: bool,
    app: str | None,
    yes: bool,
) -> Answer:
    """Delete old threads and checkpoints. A dry run unless --yes. Exit code 1 if a thread is damaged."""
    given = Retention(keep_last=keep_last, ttl=ttl, max_age=max_age, delete_on=delete_on, keep_pinned=not pinned)
    retention = _retention(given, app)
    with progress_bar("gc", quiet=session.as_json) as progress:
        freed = session.store.prune(retention, dry_run=not yes, progress=progress)
    document = {"dry_run": not yes, "freed": freed, "retention": retention}
    return Answer(document, _freed_lines(session.screen, freed, yes=yes), EXIT_ERROR if freed.damaged else EXIT_OK)


def _retention(given: Retention, app: str | None) -> Retention:
    if given != Retention(keep_pinned=given.keep_pinned):
        return given
    if app is None:
        raise ConfigurationError(
            "say what to delete: give --keep-last, --ttl, --max-age or --delete-on, or --app MODULE:STORE"
        )
    retention = retention_or_none(getattr(load(app), "retention", None))
    if retention is None:
        raise ConfigurationError(f"--app {app} has no retention; open the store with retention=")
    return retention


def _freed_lines(screen: Screen, freed: Freed, *, yes: bool) -> Iterator[str]:
    for thread_id in freed.damaged:
        yield screen.style("damaged", fg="red") + f"   {printable(thread_id)} was skipped; see `holdfast verify`"
    for thread_id in freed.busy:
        yield screen.style("busy", fg="yellow") + f"      {printable(thread_id)} was written repeatedly; prune again"
    counts = {"thread": freed.threads, "checkpoint": freed.checkpoints, "blob": freed.blobs}
    parts = [counted(count, noun) for noun, count in counts.items() if count]
    if not parts and not freed.bytes:
        yield "nothing to delete"
        return
    yield f"{'deleted' if yes else 'would delete'} {', '.join(parts)}: {size(freed.bytes)}"
    if not yes:
        yield screen.faint(DRY_RUN)


@command()
@checkpoint_argument("what")
@click.option("--free-id", is_flag=True, help="Free the thread's id too, so that a new thread can use it.")
@yes_option
def delete(session: Session, what: str, free_id: bool, yes: bool) -> Answer:
    """Delete a thread, or one checkpoint of it, by its full id. A dry run unless --yes.

    The thread's id stays taken: writes to it are refused. With --free-id it can be used again at once, as after
    `holdfast revive`. The next gc frees the bytes of a single checkpoint.
    """
    store, screen = session.store, session.screen
    if lookup.names_checkpoint(store, what):
        if free_id:
            raise ConfigurationError("--free-id is for a whole thread, not for a checkpoint")
        checkpoint = lookup.find_checkpoint(store, what, exact=True)
        if yes:
            store.delete_checkpoint(checkpoint.id)
        document = {"thread_id": checkpoint.thread_id, "checkpoint_id": checkpoint.id, "dry_run": not yes}
        return Answer(document, _deleted_lines(screen, printable(checkpoint.id), yes=yes))
    info = lookup.read_thread(store, lookup.find_exact_thread(store, what))
    if yes:
        store.delete(info.thread_id)
        if free_id:
            store.revive(info.thread_id)
    document = {
        "thread_id": info.thread_id,
        "checkpoint_id": None,
        "free_id": free_id,
        "rows": info.row_count,
        "bytes": info.stored_bytes,
        "dry_run": not yes,
    }
    held = f", held by {printable(info.owner)}" if info.owner else ""
    content = f"({lookup.status_of(info)}, {counted(info.row_count, 'row')}, {size(info.stored_bytes)}{held})"
    freed = f"; its id {'is' if yes else 'would be'} free" if free_id else ""
    return Answer(document, _deleted_lines(screen, f"{printable(info.thread_id)} {content}{freed}", yes=yes))


def _deleted_lines(screen: Screen, what: str, *, yes: bool) -> list[str]:
    return [f"deleted {what}"] if yes else [f"would delete {what}", screen.faint(DRY_RUN)]


@command()
@click.argument("thread", metavar="ID")
def revive(session: Session, thread: str) -> Answer:
    """Free the id of a deleted thread for a new thread. Deleted data does not come back.

    Takes the full id.
    """
    if lookup.is_thread(session.store, thread):
        raise Conflict(f"thread {thread!r} exists; `holdfast delete --free-id` deletes it and frees its id")
    session.store.revive(thread)
    return Answer({"thread_id": thread}, [f"revived {printable(thread)}: its id can be used again"])


@command(only_reads=True)
@thread_argument("thread")
@click.argument("file", type=click.Path(dir_okay=False))
@plain_option
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def export(session: Session, thread: str, file: str, plain: bool, force: bool) -> Answer:
    """Write a thread with its whole history to a file that any store can import.

    The file is encrypted if the store is, unless --plain.
    """
    thread_id = lookup.find_thread(session.store, thread)
    if os.path.lexists(file) and not force:
        raise Conflict(f"{file} already exists; --force replaces it")
    session.store.export(thread_id, file, keys=None if plain else session.keys)
    written = Path(file).stat().st_size
    document = {"thread_id": thread_id, "file": file, "bytes": written}
    return Answer(document, [f"exported {printable(thread_id)} to {printable(file)}: {size(written)}"])


@command()
@click.argument("file", type=click.Path(exists=False, dir_okay=False))
@click.option("--to", metavar="NEW_ID", help="Give the thread this id here. Default: the id that it had.")
@plain_option
def import_(session: Session, file: str, to: str | None, plain: bool) -> Answer:
    """Read a thread from a file that `export` wrote. Creates the store if it does not exist."""
    store = session.open(session.url, create=True)
    thread_id = store.import_(file, to, keys=None if plain else session.keys)
    info = store.thread(thread_id)
    text = f"imported {printable(thread_id)}: {counted(info.row_count, 'row')}, {size(info.stored_bytes)}"
    return Answer({"thread_id": thread_id, "file": file, "thread": info}, [text])


@command(only_reads=True)
@click.argument("file", type=click.Path(dir_okay=False))
def backup(session: Session, file: str) -> Answer:
    """Copy the whole store into a new SQLite file, while other processes keep writing."""
    session.store.backup(file)
    written = Path(file).stat().st_size
    return Answer({"file": file, "bytes": written}, [f"backed up to {printable(file)}: {size(written)}"])


@command()
@click.argument("source", metavar="FROM_URL", shell_complete=offer_files)
@click.argument("target", metavar="TO_URL", shell_complete=offer_files)
def copy(session: Session, source: str, target: str) -> Answer:
    """Copy all threads with their whole history from one store to another, of any kind.

    Each copy is read back and compared. Equal threads in the target are skipped, so an interrupted copy can be
    repeated; a thread that differs there is a conflict, and is not changed.
    """
    old = session.open(source, advice="FROM_URL must name one")
    new = session.open(target, create=True)
    if lookup.have_same_backend(old, new):
        raise ConfigurationError("FROM_URL and TO_URL are the same store; give another TO_URL")
    with progress_bar("copy", quiet=session.as_json) as progress:
        copied = old.copy_to(new, progress=progress)
    document = {"from": redacted(source), "to": redacted(target), "copied": copied}
    code = EXIT_ERROR if copied.damaged else EXIT_CONFLICT if copied.conflicts else EXIT_OK
    return Answer(document, _copied_lines(session.screen, copied), code)


def _copied_lines(screen: Screen, copied: Copied) -> Iterator[str]:
    for thread_id in copied.damaged:
        yield screen.style("damaged", fg="red") + f"   {printable(thread_id)} was not copied; see `holdfast verify`"
    for thread_id in copied.conflicts:
        yield screen.style("conflict", fg="red") + f"  {printable(thread_id)} exists there, and differs"
    skipped = f", skipped {counted(copied.skipped, 'equal thread')}" if copied.skipped else ""
    yield f"copied {counted(copied.threads, 'thread')}, {counted(copied.rows, 'row')}, {size(copied.bytes)}{skipped}"
