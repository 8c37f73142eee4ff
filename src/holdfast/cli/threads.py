"""Threads: listed."""

from typing import Any

import click

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.screen import Column, Screen, size
from holdfast.cli.session import Session
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Status

COLUMNS = (
    Column("THREAD", gives_way=True),
    Column("STATUS"),
    Column("SEQ", number=True),
    Column("SIZE", number=True),
    Column("UPDATED"),
    Column("LABELS", gives_way=True),
)


@command("threads")
@click.option("--status", multiple=True, type=click.Choice(list(Status)), help="Only threads that stand so.")
@click.option("--label", multiple=True, metavar="NAME=VALUE", help="Only threads with this label.")
@click.option("--limit", default=50, show_default=True, help="At most so many; 0 for all.")
def threads(session: Session, **_: Any) -> Answer:
    """List threads, the newest first."""
    found = list(session.store.threads())
    return Answer(found, lambda screen: screen.table(COLUMNS, [_row(screen, info) for info in found]))


def _row(screen: Screen, info: ThreadInfo) -> tuple[str, ...]:
    labels = " ".join(f"{name}={value}" for name, value in info.labels.items())
    status = info.status.value.replace("_", " ")
    return info.thread_id, status, str(info.seq), size(info.stored_bytes), screen.time(info.updated_at), labels
