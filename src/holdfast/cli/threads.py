"""Threads of a store: list, count and follow them, and print the result of one."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice, takewhile
from time import sleep

import click

from holdfast.cli.apps import resume_command
from holdfast.cli.arguments import named_text
from holdfast.cli.command import EXIT_ERROR, EXIT_OK, EXIT_WAITS, command
from holdfast.cli.completion import thread_argument
from holdfast.cli.lookup import PAGE, all_threads, every, find_thread, key_advice, status_of
from holdfast.cli.output import (
    COLOURS,
    Answer,
    Screen,
    columns,
    counted,
    dump,
    laid_out,
    noted,
    padded,
    printable,
    size,
)
from holdfast.cli.requests import request_lines
from holdfast.cli.session import Session
from holdfast.records.checkpoint import CheckpointInfo
from holdfast.records.errors import HoldfastWarning, NotFound
from holdfast.records.outcome import Outcome
from holdfast.records.reports import Stats
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Status
from holdfast.sync import Store

THREADS = columns(
    "THREAD", "STATUS", "SEQ", "SIZE", "UPDATED", "LABELS", shrinks=("THREAD", "LABELS"), numbers=("SEQ", "SIZE")
)
RESULT_CODES = {Status.COMPLETE: EXIT_OK, Status.FAILED: EXIT_ERROR, Status.CANCELLED: EXIT_ERROR}
STATUS_WIDTH = len("input required")


@command(only_reads=True)
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in Status]),
    help="List only threads in this status.",
)
@click.option(
    "--label", multiple=True, metavar="NAME=VALUE", type=named_text, help="List only threads with this label."
)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(0), help="List up to N threads; 0 for all.")
def threads(session: Session, status: tuple[str, ...], label: tuple[tuple[str, str], ...], limit: int) -> Answer:
    """List threads, newest first."""
    store, page = session.store, min(limit + 1, PAGE) if limit else PAGE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)  # what was not searched is named below
        found = every(store.threads(status=status, labels=dict(label), limit=page))
        infos = list(islice(found, limit or None))
        more = bool(limit) and next(found, None) is not None
    hidden = _hidden_lines(store, infos, by_label=bool(label))
    if hidden and session.as_json and label:
        click.echo(f"warning: {hidden[-1]}", err=True)
    return Answer(infos, _thread_lines(session.screen, infos, hidden, more=more))


def _hidden_lines(store: Store, infos: list[ThreadInfo], *, by_label: bool) -> list[str]:
    """Say what could not be listed because a key is missing."""
    sealed_count = sum(info.sealed_by is not None for info in infos)
    listed = f"{counted(sealed_count, 'thread')} encrypted, with hidden labels; to see them {key_advice(store)}"
    unsearched = f"encrypted threads were not searched for labels; to search them {key_advice(store)}"
    any_sealed = by_label and any(info.sealed_by is not None for info in all_threads(store))
    return [listed] * bool(sealed_count) + [unsearched] * any_sealed


def _thread_lines(screen: Screen, infos: list[ThreadInfo], hidden: list[str], *, more: bool) -> Iterator[str]:
    if infos:
        yield from screen.table(THREADS, [_thread_row(screen, info) for info in infos])
    else:
        yield "no threads"
    yield from map(screen.faint, hidden)
    if more:
        yield screen.faint(f"… and more; these are the first {len(infos)}. --limit 0 lists all")


def _thread_row(screen: Screen, info: ThreadInfo) -> tuple[str, ...]:
    if info.damaged is not None:
        return info.thread_id, status_of(info), "", "", "", info.damaged
    labels = " ".join(f"{name}={value}" for name, value in info.labels.items())
    updated = screen.time(info.updated_at)
    return info.thread_id, status_of(info), str(info.seq), size(info.stored_bytes), updated, labels


@command(only_reads=True)
def stats(session: Session) -> Answer:
    """Count the threads, rows and bytes of the store."""
    found = session.store.stats()
    return Answer(found, _stats_lines(session.screen, found))


def _stats_lines(screen: Screen, found: Stats) -> Iterator[str]:
    yield from screen.facts(
        [("threads", f"{found.threads:,}"), ("rows", f"{found.rows:,}"), ("bytes", size(found.bytes))]
    )
    if found.statuses:
        yield ""
        ordered = sorted(found.statuses.items(), key=lambda item: -item[1])
        rows = [(word.replace("_", " "), f"{count:,}") for word, count in ordered]
        yield from screen.table(columns("STATUS", "THREADS", numbers=["THREADS"]), rows)


@command(only_reads=True)
@thread_argument("thread")
def result(session: Session, thread: str) -> Answer:
    """Print the result of a thread and nothing else; or its error, or what it waits for. Runs nothing.

    Text is printed as it is, other results as JSON. Exit code 0 if the thread is complete, 1 if it failed or was
    cancelled, 5 if it has no result yet.
    """
    store = session.store
    outcome = store.outcome(find_thread(store, thread))
    hint = resume_command(store, outcome.thread_id) if outcome.status is Status.FAILED else ""
    lines = _outcome_lines(session.screen, outcome, hint)
    return Answer(outcome, lines, RESULT_CODES.get(outcome.status, EXIT_WAITS))


def _outcome_lines(screen: Screen, outcome: Outcome, hint: str) -> Iterator[str]:
    if outcome.status is Status.COMPLETE:
        is_text = isinstance(outcome.result, str)
        yield from map(printable, outcome.result.split("\n")) if is_text else laid_out(outcome.result)
        return
    yield f"{printable(outcome.thread_id)} {_end_of(screen, outcome)}"
    for line in screen.wrapped(outcome.error or "", screen.width - 2) if outcome.status in RESULT_CODES else ():
        yield "  " + screen.style(line, fg="red")
    for request in outcome.requests:
        yield from request_lines(screen, request)
    if hint:
        yield screen.faint(f"to resume it: {hint}")


def _end_of(screen: Screen, outcome: Outcome) -> str:
    word = screen.word(outcome.status.value)
    if outcome.status in RESULT_CODES:
        return f"was {word}" if outcome.status is Status.CANCELLED else word
    return "waits for an answer" if outcome.requests else f"has no result yet: it is {word}"


def _watch(store: Store, only: str | None) -> Iterator[list[CheckpointInfo]]:
    """Yield, at each look, the rows written since the last one, in the order of their time."""
    seen: dict[str, tuple[datetime, datetime, int]] = {}
    while True:
        found: list[CheckpointInfo] = []
        with suppress(NotFound):  # the only thread was deleted
            for info in all_threads(store) if only is None else [store.thread(only)]:
                created_at, updated_at, last = seen.get(info.thread_id, (None, None, 0))
                if info.damaged is not None or (created_at, updated_at) == (info.created_at, info.updated_at):
                    continue
                last = last if created_at == info.created_at else 0
                rows = _rows_after(store, info.thread_id, last)
                found += rows
                seen[info.thread_id] = (info.created_at, info.updated_at, rows[0].seq if rows else last)
        yield sorted(found, key=lambda row: (row.created_at, row.thread_id, row.seq))


def _rows_after(store: Store, thread_id: str, seq: int) -> list[CheckpointInfo]:
    try:
        rows = every(store.history(thread_id, limit=100, journal=True))
        return list(takewhile(lambda row: row.seq > seq, rows))
    except NotFound:  # deleted since it was listed
        return []


@command(only_reads=True)
@thread_argument("thread", metavar="[ID]", required=False)
@click.option("-n", "--last", default=10, show_default=True, type=click.IntRange(0), help="Start with up to N rows.")
@click.option(
    "--every", "interval", default=1.0, show_default=True, type=click.FloatRange(0.05), help="Look every N seconds."
)
@click.option("--once", is_flag=True, help="Print the last rows, and do not follow.")
def tail(session: Session, thread: str | None, last: int, interval: float, once: bool) -> Answer | None:
    """Follow new rows, in all threads or in one: checkpoints and journal entries. Ctrl-C ends it.

    With --json each row is a document on its own line.
    """
    looks = _watch(session.store, None if thread is None else find_thread(session.store, thread))
    rows = next(looks)
    rows = rows[len(rows) - min(last, len(rows)) :]
    if once:
        return Answer(rows, (_tail_line(session.screen, row) for row in rows))
    while True:
        for row in rows:
            click.echo(dump(row, indent=None) if session.as_json else _tail_line(session.screen, row))
        sleep(interval)
        rows = next(looks)


def _tail_line(screen: Screen, row: CheckpointInfo) -> str:
    full, clock = "%Y-%m-%d %H:%M:%S", "%H:%M:%S"
    when = row.created_at.strftime(full) if screen.utc else row.created_at.astimezone().strftime(clock)
    room, end = max(screen.width // 3, 12), f"@{row.seq}"
    place = padded(screen.fit(row.thread_id, room - len(end)) + end, room)
    status = screen.style(padded(row.status.value.replace("_", " "), STATUS_WIDTH), fg=COLOURS[row.status.value])
    notes = ["journal" if row.journal else "checkpoint", *([row.phase.value] if row.phase else [])]
    notes += [noted(name, value) for name, value in row.metadata.items()]
    rest = screen.fit(" ".join(notes), screen.width - len(when) - room - STATUS_WIDTH - 6)
    return f"{screen.faint(when)}  {place}  {status}  {rest}".rstrip()
