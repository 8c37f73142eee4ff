"""Decisions about threads that stand still: try failed ones again, and say how a step in doubt ended."""

from collections.abc import Iterable, Iterator
from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.answer import Answer
from holdfast.cli.arguments import json_value, named_text
from holdfast.cli.command import command
from holdfast.cli.exits import EXIT_CONFLICT
from holdfast.cli.find import find_exact_thread, find_thread, standing
from holdfast.cli.heads import list_threads, read_thread
from holdfast.cli.hints import recover_command, resume_command
from holdfast.cli.offers import doubt_argument, thread_argument
from holdfast.cli.requests import by_option
from holdfast.cli.screen import COLOURS, Screen, counted
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.cli.work import read_work
from holdfast.records.errors import Conflict, Deleted, KeyUnavailable, LeaseHeld, NotFound
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Status


@command("retry")
@thread_argument("threads", "[ID]...", nargs=-1)
@click.option("--status", type=click.Choice([Status.FAILED.value]), help="Retry all threads in this status.")
@click.option("--label", multiple=True, metavar="NAME=VALUE", type=named_text, help="Retry only those with this label.")
@click.option("--yes", is_flag=True, help="Do it. With --status and without this, only say what would be done.")
def retry(
    session: Session, threads: tuple[str, ...], status: str | None, label: tuple[tuple[str, str], ...], yes: bool
) -> Answer:
    """Put failed threads back, so that `holdfast recover` resumes them. Finished steps are kept.

    Give the ids of threads, or --status failed for all that failed: a dry run unless --yes. Exit code 4 if a thread
    could not be put back.
    """
    if bool(threads) == bool(status) or (label and not status):
        raise click.UsageError("give the ids of failed threads, or --status failed, with --label to narrow it")
    store = session.store
    if threads:
        found: Iterable[ThreadInfo] = [read_thread(store, find_thread(store, text)) for text in threads]
    else:
        found = list_threads(store, [Status.FAILED.value], dict(label))
    dry_run = not threads and not yes
    ends = {info.thread_id: _put_back(session, info, dry_run=dry_run) for info in found}
    back = [thread_id for thread_id, refusal in ends.items() if not refusal]
    refused = {thread_id: refusal for thread_id, refusal in ends.items() if refusal}
    hint = recover_command(store, back) if back else ""
    document = {"threads": back, "refused": refused, "dry_run": dry_run}
    code = EXIT_CONFLICT if refused else 0
    return Answer(document, lambda screen: _retry_lines(screen, back, refused, hint, dry_run=dry_run), code)


def _put_back(session: Session, info: ThreadInfo, *, dry_run: bool) -> str:
    """Put one thread back; why that could not be done, or nothing."""
    if dry_run:
        return "" if info.sealed_by is None else f"encrypted with key {info.sealed_by!r}"
    try:
        session.store.retry(info.thread_id)
    except (Conflict, Deleted, KeyUnavailable, LeaseHeld, NotFound) as error:
        return str(error)
    return ""


def _retry_lines(
    screen: Screen, back: list[str], refused: dict[str, str], hint: str, *, dry_run: bool
) -> Iterator[str]:
    word = "would retry" if dry_run else "retried"
    for thread_id in back:
        yield f"{word}  {printable(thread_id)}"
    for thread_id, refusal in refused.items():
        yield f"{screen.style('refused', fg=COLOURS['failed'])}  {printable(thread_id)}: {printable(refusal)}"
    if not back and not refused:
        yield "no failed threads"
    elif dry_run:
        yield screen.faint(f"{counted(len(back), 'thread')}; nothing was done; --yes does it")
    elif back:
        yield screen.faint(f"resume with: {hint}")


@command("settle")
@thread_argument()
@doubt_argument()
@click.option(
    "--done", metavar="JSON", type=json_value, help="Record that it happened, with this result: JSON, @FILE, or -."
)
@click.option("--retry", is_flag=True, help="Execute it again at the next resume, with the same key.")
@click.option("--fail", is_flag=True, help="Record that it failed: the code that called it gets StepFailed.")
@by_option
def settle(session: Session, thread: str, step: str, done: Any, retry: bool, fail: bool, by: str) -> Answer:
    """Say how a step in doubt ended: it was begun, and its end is not recorded. Then the thread can be resumed.

    STEP is its key, as `holdfast steps` lists it. The thread's id has to be given in full. If your code does not catch
    the StepFailed of --fail, the thread fails, and running it again executes the step again, as any failed step.
    """
    is_done = click.get_current_context().get_parameter_source("done") is not ParameterSource.DEFAULT
    if is_done + retry + fail != 1:
        raise click.UsageError("give one of --done JSON, --retry and --fail")
    choice = "done" if is_done else "retry" if retry else "fail"
    store = session.store
    info = store.thread(find_exact_thread(store, thread))
    key = _meant(read_work(store, info.thread_id).begun, step)
    store.settle(info.thread_id, key, choice, done, by=by)
    hint = resume_command(store, info.thread_id)
    document = {"thread_id": info.thread_id, "step": key, "choice": choice, "value": done, "by": by}
    document["before"] = info.status
    return Answer(document, lambda screen: _settled_lines(screen, document, standing(info), hint))


def _meant(begun: Iterable[str], text: str) -> str:
    """A key as it was typed, or as it is printed."""
    return next((key for key in begun if printable(key) == text), text)


def _settled_lines(screen: Screen, said: dict[str, Any], before: str, hint: str) -> Iterator[str]:
    words = {"done": "is done", "retry": "will be executed again, with the same key", "fail": "has failed"}
    yield f"step {printable(said['step'])} of {printable(said['thread_id'])} ({before}) {words[said['choice']]}"
    yield screen.faint(f"to resume the thread: {hint}")
