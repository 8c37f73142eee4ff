"""Runs: gone on with, recovered, ended."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.answer import Answer
from holdfast.cli.apps import in_world_of, is_blocking, load
from holdfast.cli.command import command
from holdfast.cli.exits import EXIT_WAITS
from holdfast.cli.find import find_exact_thread, find_thread, standing
from holdfast.cli.requests import request_lines
from holdfast.cli.screen import COLOURS, Screen, counted
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.cli.values import clipped
from holdfast.records.errors import ConfigurationError, HoldfastError, RunError, Suspended
from holdfast.records.outcome import Recovery
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Status

if TYPE_CHECKING:
    from holdfast.runs.store import Store

app_option = click.option("--app", required=True, metavar="MODULE:NAME", help="Where the durable function is.")
FINISHED = {Status.COMPLETE, Status.CANCELLED}


@command("resume", runs_code=True)
@click.argument("thread", metavar="ID")
@app_option
def resume(session: Session, thread: str, app: str) -> Answer:
    """Go on with a thread: its durable function is run, and its finished steps are not executed again.

    Exit code 5 if it waits for an answer.
    """
    from holdfast.runs.durable import Durable

    thread_id = find_thread(session.store, thread)
    function = load(app)
    if not isinstance(function, Durable):
        raise ConfigurationError(f"--app {app} is no durable function: decorate it with @holdfast.durable")
    try:
        result = _go_on(session, function, thread_id)
    except Suspended as suspended:
        return _waiting(thread_id, suspended)
    document = {"thread_id": thread_id, "status": "complete", "result": result, "requests": []}
    return Answer(document, lambda screen: _completed(screen, thread_id, result))


def _go_on(session: Session, function: Any, thread_id: str) -> Any:
    try:
        return in_world_of(session, lambda store: function.go_on(thread_id, store), blocking=is_blocking(function))
    except HoldfastError:
        raise
    except Exception as error:
        raise RunError(f"thread {thread_id!r} failed: {type(error).__name__}: {error}") from error


def _waiting(thread_id: str, suspended: Suspended) -> Answer:
    status = Status.INPUT_REQUIRED if suspended.requests else Status.WORKING
    document = {"thread_id": thread_id, "status": status, "result": None, "requests": suspended.requests}

    def lines(screen: Screen) -> Iterator[str]:
        what = "waits for an answer" if suspended.requests else "sleeps; run it again when its time has come"
        yield f"{printable(thread_id)} {what}"
        for request in suspended.requests:
            yield from request_lines(screen, request)

    return Answer(document, lines, EXIT_WAITS)


def _completed(screen: Screen, thread_id: str, result: Any) -> Iterator[str]:
    yield f"{printable(thread_id)} is {screen.word('complete')}"
    if result is not None:
        yield clipped(screen, "  result  ", result)


@command("recover", runs_code=True)
@click.option("--app", "apps", required=True, multiple=True, metavar="MODULE", help="Where the durable functions are.")
@click.option("--max-attempts", default=3, show_default=True, type=click.IntRange(1), help="Then a thread has failed.")
def recover(session: Session, apps: tuple[str, ...], max_attempts: int) -> Answer:
    """Go on with every thread that can: abandoned by a dead process, answered, or its time has come."""
    from holdfast.cli.session import refuse_missing
    from holdfast.runs.durable import registry

    refuse_missing(session.url)
    for app in apps:
        load(app)

    async def act(store: "Store") -> Recovery:
        return await store.recover(max_attempts=max_attempts)

    report = in_world_of(session, act, blocking=all(map(is_blocking, registry.values())))
    return Answer(report, lambda screen: _recovery_lines(screen, report))


def _recovery_lines(screen: Screen, report: Recovery) -> Iterator[str]:
    groups = {name: getattr(report, name) for name in Recovery.__struct_fields__}
    if not any(groups.values()):
        yield "nothing to recover"
    for name, ids in groups.items():
        for thread_id in ids:
            yield f"{screen.style(name.ljust(10), fg=COLOURS.get(name))} {printable(thread_id)}"


@command("cancel")
@click.argument("thread", metavar="ID")
@click.option("--yes", is_flag=True, help="Do it. Without this, only say what would be done.")
def cancel(session: Session, thread: str, yes: bool) -> Answer:
    """End a thread. Its history stays; a live run is told, and stops at its next step.

    The id has to be given in full.
    """
    store = session.store
    before = store.thread(find_exact_thread(store, thread))
    if yes and before.status not in FINISHED:
        store.cancel(before.thread_id)
    after = store.thread(before.thread_id)
    told = yes and after.status not in FINISHED
    document = {
        "thread_id": before.thread_id,
        "before": before.status,
        "status": after.status,
        "told": told,
        "dry_run": not yes,
    }
    return Answer(document, lambda screen: _cancel_lines(screen, before, after, yes=yes))


def _cancel_lines(screen: Screen, before: ThreadInfo, after: ThreadInfo, *, yes: bool) -> Iterator[str]:
    name = printable(before.thread_id)
    if before.status in FINISHED:
        yield f"{name} is {screen.word(before.status.value)} already; there is nothing to cancel"
    elif not yes:
        held = f", held by {printable(before.owner)}" if before.owner else ""
        yield f"would cancel {name} ({standing(before)}, {counted(before.row_count, 'row')}{held})"
        yield screen.faint("nothing was done; --yes does it")
    elif after.status in FINISHED:
        yield f"{name} is {screen.word(after.status.value)}"
    else:
        yield f"{name} is at work; its run was told, and ends at its next step"
