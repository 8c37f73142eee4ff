"""Keeping a store in shape: what is too old goes, and what is there is read and checked."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from holdfast.cli.answer import Answer
from holdfast.cli.apps import load
from holdfast.cli.arguments import duration
from holdfast.cli.command import command
from holdfast.cli.exits import EXIT_ERROR
from holdfast.cli.find import find_exact_checkpoint, find_exact_thread, is_thread, names_checkpoint, standing
from holdfast.cli.heads import read_thread
from holdfast.cli.offers import checkpoint_argument
from holdfast.cli.progress import progress_bar
from holdfast.cli.screen import Screen, counted, size
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import ConfigurationError, Conflict
from holdfast.records.reports import Report
from holdfast.records.retention import Freed, Retention, retention_or_none
from holdfast.records.words import Status

if TYPE_CHECKING:
    from holdfast.sync import Store


@command("gc")
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="Of each thread keep the newest N checkpoints.")
@click.option(
    "--ttl", metavar="DURATION", type=duration, help="Remove threads that nothing was written to for so long."
)
@click.option("--max-age", metavar="DURATION", type=duration, help="Remove checkpoints that are older.")
@click.option(
    "--delete-on",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="Remove threads that stand so.",
)
@click.option("--pinned", is_flag=True, help="Remove pinned checkpoints too.")
@click.option("--app", metavar="MODULE:STORE", help="Apply the retention of your program's store instead.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only say what would go.")
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
    """Remove what need not be kept. A dry run unless --yes. Exit code 1 if a thread is damaged."""
    given = Retention(keep_last=keep_last, ttl=ttl, max_age=max_age, delete_on=delete_on, keep_pinned=not pinned)
    retention = _retention(given, app)
    with progress_bar("gc", quiet=session.as_json) as progress:
        freed = session.store.prune(retention, dry_run=not yes, progress=progress)
    document = {"dry_run": not yes, "freed": freed, "retention": retention}
    code = EXIT_ERROR if freed.damaged else 0
    return Answer(document, lambda screen: _freed_lines(screen, freed, yes=yes), code)


def _retention(given: Retention, app: str | None) -> Retention:
    if given != Retention(keep_pinned=given.keep_pinned):
        return given
    if app is None:
        raise ConfigurationError(
            "gc needs to know what may go: --keep-last, --ttl, --max-age or --delete-on, or --app MODULE:STORE"
        )
    retention = retention_or_none(getattr(load(app), "retention", None))
    if retention is None:
        raise ConfigurationError(f"--app {app} names nothing that has a retention; open the store with retention=")
    return retention


def _freed_lines(screen: Screen, freed: Freed, *, yes: bool) -> Iterator[str]:
    for thread_id in freed.damaged:
        yield screen.style("damaged", fg="red") + f"   {printable(thread_id)} was left as it is; verify says more"
    if not freed.threads and not freed.checkpoints and not freed.bytes:
        yield "nothing to remove"
        return
    counts = {"thread": freed.threads, "checkpoint": freed.checkpoints, "blob": freed.blobs}
    parts = [counted(count, noun) for noun, count in counts.items() if count]
    yield f"{'removed' if yes else 'would remove'} {', '.join(parts)}: {size(freed.bytes)}"
    if not yes:
        yield screen.faint("nothing was removed; --yes does it")


@command("delete")
@checkpoint_argument("what")
@click.option("--free-id", is_flag=True, help="Free the thread's id too, so that it can begin from the start.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only say what would go.")
def delete(session: Session, what: str, free_id: bool, yes: bool) -> Answer:
    """Remove a thread, or one checkpoint of it, by its full id. A dry run unless --yes.

    The thread's id stays taken: what still writes to it is refused. With --free-id it can be used again at once, as
    `holdfast revive` does. The bytes of a single checkpoint go with the next gc.
    """
    store = session.store
    if names_checkpoint(store, what):
        if free_id:
            raise ConfigurationError("--free-id is for a whole thread, not for a checkpoint")
        return _delete_checkpoint(store, find_exact_checkpoint(store, what), yes=yes)
    info = read_thread(store, find_exact_thread(store, what))
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
    content = f"({standing(info)}, {counted(info.row_count, 'row')}, {size(info.stored_bytes)}{held})"
    freed = "; its id is free" if free_id and yes else "; its id would be free" if free_id else ""
    what_goes = f"{printable(info.thread_id)} {content}{freed}"
    return Answer(document, lambda screen: _deleted_lines(screen, what_goes, yes=yes))


def _delete_checkpoint(store: "Store", checkpoint: Checkpoint, *, yes: bool) -> Answer:
    if yes:
        store.delete_checkpoint(checkpoint.id)
    document = {"thread_id": checkpoint.thread_id, "checkpoint_id": checkpoint.id, "dry_run": not yes}
    return Answer(document, lambda screen: _deleted_lines(screen, printable(checkpoint.id), yes=yes))


def _deleted_lines(screen: Screen, what: str, *, yes: bool) -> Iterator[str]:
    yield f"{'deleted' if yes else 'would delete'} {what}"
    if not yes:
        yield screen.faint("nothing was deleted; --yes does it")


@command("revive")
@click.argument("thread", metavar="ID")
def revive(session: Session, thread: str) -> Answer:
    """Free the id of a deleted thread, so that it can be used again from the start. What was deleted stays gone.

    The id has to be given in full.
    """
    store = session.store
    if is_thread(store, thread):
        raise Conflict(f"thread {thread!r} is there; `holdfast delete --free-id` removes it and frees its id")
    store.revive(thread)
    return Answer({"thread_id": thread}, lambda _screen: [f"revived {printable(thread)}: its id can be used again"])


@command("verify")
def verify(session: Session) -> Answer:
    """Read and check everything that is stored. Exit code 1 if anything is damaged."""
    with progress_bar("verify", quiet=session.as_json) as progress:
        report = session.store.verify(progress=progress)
    document = {"ok": report.ok, "checked": report.checked, "problems": report.problems}
    return Answer(document, lambda screen: _report_lines(screen, report), 0 if report.ok else EXIT_ERROR)


def _report_lines(screen: Screen, report: Report) -> Iterator[str]:
    for problem in report.problems:
        where = f"{problem.thread_id}: " if problem.thread_id else ""
        yield screen.word("fail") + "  " + screen.fit(f"{where}{problem.message}", 10_000)
    verdict = screen.word("ok") if report.ok else screen.style(counted(len(report.problems), "problem"), fg="red")
    yield f"{verdict}: {counted(report.checked, 'record')} checked"
