"""Schedules: list them, pause them, let them tick again, and delete them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import click

from holdfast.cli.command import command
from holdfast.cli.output import Answer, Screen, columns, printable
from holdfast.cli.session import Session
from holdfast.ports import run_blocking
from holdfast.records.errors import ConfigurationError
from holdfast.records.schedule import Schedule
from holdfast.runs.schedules import pause as set_paused

COLUMNS: Final = columns("NAME", "TICKS", "NEXT", "LAST", "FUNCTION", shrinks=["FUNCTION"])


@command()
@click.option("--pause", metavar="NAME", help="Stop this schedule.")
@click.option("--resume", metavar="NAME", help="Let it tick again; what it missed is not caught up.")
@click.option("--delete", metavar="NAME", help="Delete it; the threads that it submitted stay.")
def schedules(session: Session, pause: str | None, resume: str | None, delete: str | None) -> Answer:
    """List the schedules: when each ticks, its next tick, and the last that created a thread.

    A worker whose program declares a schedule creates it again after --delete. Exit code 3 if there is none.
    """
    if sum(each is not None for each in (pause, resume, delete)) > 1:
        raise ConfigurationError("give one of --pause, --resume and --delete")
    store = session.store
    if delete is not None:
        store.unschedule(delete)
    elif (name := resume if pause is None else pause) is not None:
        run_blocking(set_paused(store._store, name, paused=pause is not None))  # noqa: SLF001  no program pauses
    found = store.schedules()
    return Answer(found, _lines(session.screen, found))


def _lines(screen: Screen, found: list[Schedule]) -> Iterator[str]:
    if not found:
        yield "no schedules"
        return
    yield from screen.table(COLUMNS, (_cells(screen, each) for each in found))


def _cells(screen: Screen, each: Schedule) -> list[str]:
    ticks = f"{each.cron} {each.tz}" if each.cron else f"every {(each.every or timedelta()).total_seconds():.15g} s"
    following = "paused" if each.paused else screen.time(each.next_at) if each.next_at else ""
    last = screen.time(each.fired_at) if each.fired_at else "never"
    return [printable(each.name), printable(ticks), following, last, printable(each.function)]
