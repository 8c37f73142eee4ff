"""Following what is written, in all threads, by looking again and again."""

from collections.abc import Iterator
from datetime import datetime
from itertools import takewhile
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.find import every, find_thread
from holdfast.cli.heads import PAGE
from holdfast.cli.offers import thread_argument
from holdfast.cli.plain import dump
from holdfast.cli.screen import COLOURS, Screen
from holdfast.cli.session import Session
from holdfast.cli.text import padded
from holdfast.cli.values import inline
from holdfast.records.checkpoint import CheckpointInfo
from holdfast.records.errors import NotFound
from holdfast.records.thread import ThreadInfo

if TYPE_CHECKING:
    from holdfast.sync import Store

STATUS_WIDTH = len("input required")


class Watch:
    """What was seen of each thread, so that the next look finds what is new."""

    def __init__(self, store: "Store", only: str | None) -> None:
        self._store = store
        self._only = only
        self._seen: dict[str, tuple[datetime, datetime, int]] = {}

    def look(self) -> list[CheckpointInfo]:
        """The rows written since the last look, in the order of their time."""
        rows = [row for info in self._threads() for row in self._new_rows(info)]
        return sorted(rows, key=lambda row: (row.created_at, row.thread_id, row.seq))

    def _threads(self) -> list[ThreadInfo]:
        if self._only is None:
            return [info for info in every(self._store.threads(limit=PAGE)) if info.damaged is None]
        try:
            return [self._store.thread(self._only)]
        except NotFound:
            return []

    def _new_rows(self, info: ThreadInfo) -> list[CheckpointInfo]:
        created_at, updated_at, last = self._seen.get(info.thread_id, (info.created_at, None, 0))
        if updated_at == info.updated_at:
            return []
        last = last if created_at == info.created_at else 0
        try:
            rows = every(self._store.history(info.thread_id, limit=100, journal=True))
            found = list(takewhile(lambda row: row.seq > last, rows))
        except NotFound:
            return []
        newest = found[0].seq if found else last
        self._seen[info.thread_id] = (info.created_at, info.updated_at, newest)
        return found


@command("tail")
@thread_argument(metavar="[ID]", required=False)
@click.option("-n", "--last", default=10, show_default=True, type=click.IntRange(0), help="Begin with so many rows.")
@click.option(
    "--every", "interval", default=1.0, show_default=True, type=click.FloatRange(0.05), help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Only the last rows; do not follow.")
def tail(session: Session, thread: str | None, last: int, interval: float, once: bool) -> Answer | None:
    """Follow what is written, in all threads or in one: checkpoints and journal rows. Ctrl-C ends it.

    With --json each row is a document on a line of its own.
    """
    only = None if thread is None else find_thread(session.store, thread)
    watch = Watch(session.store, only)
    rows = watch.look()
    rows = rows[len(rows) - min(last, len(rows)) :]
    if once:
        return Answer(rows, lambda screen: (_line(screen, row) for row in rows))
    while True:
        for row in rows:
            click.echo(dump(row, indent=None) if session.as_json else _line(session.fresh_screen(), row))
        sleep(interval)
        rows = watch.look()


def _line(screen: Screen, row: CheckpointInfo) -> str:
    when = (
        row.created_at.strftime("%Y-%m-%d %H:%M:%S") if screen.utc else row.created_at.astimezone().strftime("%H:%M:%S")
    )
    room = max(screen.width // 3, 12)
    end = f"@{row.seq}"
    place = padded(screen.fit(row.thread_id, room - len(end)) + end, room)
    status = screen.style(padded(row.status.value.replace("_", " "), STATUS_WIDTH), fg=COLOURS[row.status.value])
    rest = screen.fit(" ".join(_notes(row)), screen.width - len(when) - room - STATUS_WIDTH - 6)
    return f"{screen.faint(when)}  {place}  {status}  {rest}".rstrip()


def _notes(row: CheckpointInfo) -> Iterator[str]:
    yield "journal" if row.journal else "checkpoint"
    if row.phase is not None:
        yield row.phase.value
    for name, value in row.metadata.items():
        yield f"{name}={_text(value)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else inline(value)
