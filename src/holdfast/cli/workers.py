"""Workers: run what is due until a signal ends them, and show what waits in the queues."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import click

from holdfast.cli import apps
from holdfast.cli.command import STORE_OF_APP, command
from holdfast.cli.output import Answer, Screen, columns, dump, printable
from holdfast.cli.session import Session
from holdfast.ports.awaitable import AsyncPorts
from holdfast.records.errors import ConfigurationError
from holdfast.records.event import Event, EventKind
from holdfast.records.reports import QueueInfo
from holdfast.runs.durable import registry
from holdfast.runs.kinds import OpenedStore, twin
from holdfast.runs.store import Store
from holdfast.runs.submitting import Served
from holdfast.runs.worker import Worker, served_by
from holdfast.stores.locations import url_parts

SAID: Final[dict[EventKind, str]] = {
    "claimed": "begins",
    "resumed": "runs",
    "taken_over": "takes over",
    "attempt_failed": "failed, and is tried again",
    "suspended": "waits",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "was cancelled",
}
"""What a worker says about a thread."""
COUNTS: Final = ("ready", "delayed", "running", "waiting")
TITLES: Final = [count.upper() for count in COUNTS]
COLUMNS: Final = columns("QUEUE", *TITLES, "OLDEST", "FUNCTIONS", shrinks=["FUNCTIONS"], numbers=TITLES)


@command(runs_code=True, logs=True, store_help=STORE_OF_APP)
@click.argument("names", metavar="APP...", nargs=-1, required=True)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Look at this queue, and no others.")
@click.option("--concurrency", default=10, show_default=True, type=click.IntRange(1), help="Run N threads at once.")
@click.option("--lease", default=30.0, show_default=True, metavar="SECONDS", help="Renew claims of this length.")
@click.option("--grace", default=30.0, show_default=True, metavar="SECONDS", help="Let steps finish after a signal.")
@click.option("--once", is_flag=True, help="End when nothing is due.")
@click.option("--alive", metavar="FILE", help="Touch this file after each look at the store: a liveness probe.")
@click.option(
    "--engine", envvar="HOLDFAST_ENGINE", metavar="URL", help="Serve Temporal or Restate, which decides when."
)
def worker(
    session: Session,
    names: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    lease: float,
    grace: float,
    once: bool,
    alive: str | None,
    engine: str | None,
) -> None:
    """Run what is due: threads that were submitted, answered, woken by a timer, or left by a dead process.

    An APP is a module, a file, or MODULE:FUNCTION. Start as many workers as you like, on as many machines as you like.
    SIGTERM or SIGINT hands every run over at its next step; steps in flight may finish for the time of grace, and a
    second signal ends them at once. Exit code 0 after a signal, 1 if the store cannot be opened.
    """
    functions = _functions(names)
    store = _store(session, functions)
    store.on_event(lambda event: _say(event, as_json=session.as_json))
    names_served = sorted(each.name for each in functions or registry.values())
    click.echo(f"serves {', '.join(map(printable, names_served))}", err=True)
    if engine:
        if once or alive or queues:
            raise ConfigurationError("--once, --alive and --queue are for workers without --engine")
        asyncio.run(_serve(engine, store, functions, concurrency, lease, grace))
        return
    made = Worker(store, functions=functions, queues=queues or None, concurrency=concurrency, lease=lease, grace=grace)
    if alive is not None:
        made._on_look = Path(alive).touch  # noqa: SLF001  not for users
    was_stopped = asyncio.run(_work(made, store, once=once))
    if was_stopped:
        sys.stdout.flush()
        os._exit(0)  # plain functions that were abandoned still run on threads


def _functions(names: tuple[str, ...]) -> list[Served] | None:
    """Import the apps; return the functions that they name, None for all that were imported."""
    found = [apps.load(apps.module_of(name)) for name in names]
    named = [served_by(each) for each in found if not isinstance(each, ModuleType)]
    if not registry:
        raise ConfigurationError(f"{', '.join(names)}: no durable function found; decorate one with @holdfast.durable")
    return named if len(named) == len(found) else None


def _store(session: Session, functions: list[Served] | None) -> Store:
    """Return the requested store, or the one that the functions were given."""
    if not session.requested_store:
        found = {apps.store_of(each) for each in functions or registry.values()} - {None}
        if len(found) > 1:
            raise ConfigurationError("these functions have different stores; give --store, or start a worker for each")
        for store in found:
            assert store is not None  # noqa: S101  removed above
            return twin(store, AsyncPorts()) if store._ports.blocking else store  # noqa: SLF001  not for users
    return OpenedStore(*url_parts(session.url, {"keys": session.keys, "namespace": session.namespace}), AsyncPorts())


async def _serve(
    engine: str, store: Store, functions: list[Served] | None, concurrency: int, lease: float, grace: float
) -> None:
    """Serve an engine until a signal."""
    from holdfast.engines.serving import serve

    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with store:
        await serve(engine, store, functions, stopped=stopped, concurrency=concurrency, lease=lease, grace=grace)


async def _work(made: Worker, store: Store, *, once: bool) -> bool:
    """Run the worker until its end. True if a signal ended it."""
    signals = 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        made.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    async with store:
        await made.run(once=once)
    return signals > 0


def _say(event: Event, *, as_json: bool) -> None:
    """Print what happens to a thread: a line of text, or of JSON."""
    if event.kind in SAID:
        why = event.details.get("error") or ""
        text = f"{printable(event.thread_id)} {SAID[event.kind]}{f': {why}' if why else ''}"
        document = {"event": event.kind, "thread_id": event.thread_id, "seq": event.seq, **event.details}
        # With --json what the user's code prints goes to standard error, and these lines do not.
        click.echo(dump(document, indent=None) if as_json else text, file=sys.__stdout__ if as_json else None)


@command(only_reads=True)
def queues(session: Session) -> Answer:
    """List the queues that have open threads: what is ready and since when, delayed, running, or waits for an answer.

    Threads that stay ready have no worker that serves their function, version and queue, or too few.
    """
    found = session.store.queues()
    return Answer(found, _lines(session.screen, found))


def _lines(screen: Screen, found: list[QueueInfo]) -> Iterator[str]:
    if not found:
        yield "no queue has open threads"
        return
    yield from screen.table(COLUMNS, (_cells(screen, info) for info in found))


def _cells(screen: Screen, info: QueueInfo) -> tuple[str, ...]:
    counts = [str(getattr(info, name)) for name in COUNTS]
    return info.name, *counts, screen.time(info.oldest_ready), ", ".join(info.functions)
