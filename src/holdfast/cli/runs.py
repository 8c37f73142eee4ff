"""Resumes and ends runs."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import click

from holdfast.cli.answer import Answer
from holdfast.cli.apps import in_world_of, is_blocking, load
from holdfast.cli.command import command
from holdfast.cli.exits import EXIT_WAITS
from holdfast.cli.find import find_exact_thread, find_thread, standing
from holdfast.cli.offers import thread_argument
from holdfast.cli.requests import request_lines
from holdfast.cli.screen import Screen, counted
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.cli.values import clipped
from holdfast.records.errors import ConfigurationError, HoldfastError, NotFound, RunError, Suspended
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Status

app_option = click.option("--app", required=True, metavar="MODULE:NAME", help="Where the durable function or agent is.")
FINISHED = {Status.COMPLETE, Status.CANCELLED}


@command("resume", runs_code=True)
@thread_argument()
@app_option
def resume(session: Session, thread: str, app: str) -> Answer:
    """Resume a thread: run its durable function or agent again. Finished steps are not executed again.

    Without --store and HOLDFAST_STORE, the store that your function or agent was given is used. Exit code 5 if the
    thread waits for an answer.
    """
    from holdfast.cli.app_stores import choose_store
    from holdfast.cli.hints import program_advice

    found = _application(app)
    note = choose_store(session, app, found)
    thread_id = _found(session, thread, note)
    if advice := program_advice(session.store, thread_id):
        raise ConfigurationError(f"thread {thread_id!r} is {advice}; `holdfast resume` knows functions and agents only")
    try:
        result = _go_on(session, found, thread_id)
    except Suspended as suspended:
        return _waiting(thread_id, suspended, note)
    document = {"thread_id": thread_id, "status": "complete", "result": result, "requests": [], "note": note}
    return Answer(document, lambda screen: _completed(screen, thread_id, result, note))


def _found(session: Session, thread: str, note: str) -> str:
    """The thread that is meant. If there is none, it may be that another store is used than was thought."""
    try:
        return find_thread(session.store, thread)
    except NotFound as error:
        raise NotFound(f"{error} ({note})" if note else str(error)) from error


def _application(app: str) -> Any:
    """The durable function or agent that is meant; an agent also by the name of its function, which threads record."""
    from holdfast.cli.agents import AnyAgent, agent_named
    from holdfast.runs.durable import Durable

    found = load(app)
    if not isinstance(found, AnyAgent | Durable):
        found = agent_named(app) or found
    if not isinstance(found, AnyAgent | Durable):
        raise ConfigurationError(_cannot_go_on(app, found))
    return found


def _go_on(session: Session, found: Any, thread_id: str) -> Any:
    from holdfast.cli.agents import AnyAgent, resume_agent

    try:
        if isinstance(found, AnyAgent):
            return resume_agent(session, found, thread_id)
        return in_world_of(session, lambda store: found._go_on(thread_id, store), blocking=is_blocking(found))  # noqa: SLF001
    except HoldfastError:
        raise
    except Exception as error:
        raise RunError(f"thread {thread_id!r} failed: {type(error).__name__}: {error}") from error


def _cannot_go_on(app: str, found: Any) -> str:
    """Why the object that `--app` names cannot resume anything."""
    from holdfast.cli.agents import AnyAgent
    from holdfast.runs.durable import Durable

    if not isinstance(found, ModuleType):
        return f"--app {app} is no durable function: decorate it with @holdfast.durable"
    names = [name for name, value in vars(found).items() if isinstance(value, AnyAgent | Durable)]
    if not names:
        return (
            f"--app {app}: there is no durable function and no agent in it; give MODULE:NAME. Workflows are resumed by"
            " workflow.run(thread_id=...), and loops, composites and the tasks of a checkpoint manager by their own"
            " program too"
        )
    return f"name the function: {' or '.join(f'--app {app}:{name}' for name in names)}"


def _waiting(thread_id: str, suspended: Suspended, note: str) -> Answer:
    requests = suspended.requests
    status = Status.INPUT_REQUIRED if requests else Status.WORKING
    document = {"thread_id": thread_id, "status": status, "result": None, "requests": requests, "note": note}

    def lines(screen: Screen) -> Iterator[str]:
        yield from note_lines(screen, note)
        what = "waits for an answer" if requests else "sleeps; run it again when its time has come"
        yield f"{printable(thread_id)} {what}"
        for request in requests:
            yield from request_lines(screen, request)

    return Answer(document, lines, EXIT_WAITS)


def note_lines(screen: Screen, note: str) -> Iterator[str]:
    """A note about the store that is used, if there is one."""
    if note:
        yield screen.faint(printable(note))


def _completed(screen: Screen, thread_id: str, result: Any, note: str) -> Iterator[str]:
    yield from note_lines(screen, note)
    yield f"{printable(thread_id)} is {screen.word('complete')}"
    if result is not None:
        yield clipped(screen, "  result  ", result)


@command("cancel")
@thread_argument()
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
