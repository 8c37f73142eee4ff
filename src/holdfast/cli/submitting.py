"""Submit work to a durable function by name: its code need not be installed here."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import click

from holdfast.cli.arguments import duration, json_value, named_text
from holdfast.cli.command import command
from holdfast.cli.output import Answer, Screen, printable
from holdfast.cli.session import Session
from holdfast.records.thread import ThreadInfo
from holdfast.runs.queues import DEFAULT_QUEUE
from holdfast.runs.submitting import PRIORITIES


def _argument(text: str) -> Any:
    """Parse an argument: JSON if it is that, else the text itself; `@FILE` and `-` are read."""
    try:
        return json_value(text)
    except click.BadParameter:
        if text.startswith("@"):
            raise
        return text


@command()
@click.argument("function", metavar="FUNCTION")
@click.argument("thread_id", metavar="ID")
@click.argument("arguments", metavar="[ARG]...", nargs=-1)
@click.option("--queue", default=DEFAULT_QUEUE, show_default=True, metavar="NAME", help="Put it on this queue.")
@click.option(
    "--priority",
    type=click.IntRange(*PRIORITIES),
    default=0,
    show_default=True,
    help="Run it before those with a lower priority.",
)
@click.option("--delay", metavar="DURATION", help="Run it no earlier than in this time, as in 90s or 24h.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Set a label on the thread.")
def submit(
    session: Session,
    function: str,
    thread_id: str,
    arguments: tuple[str, ...],
    queue: str,
    priority: int,
    delay: str | None,
    labels: tuple[str, ...],
) -> Answer:
    """Submit work: create a thread that a process with the FUNCTION runs. Its name is MODULE:FUNCTION.

    Each ARG is JSON, or else plain text. The same ID and arguments again are the same thread; exit code 4 if the
    thread runs something else.
    """
    given: timedelta | None = None if delay is None else duration(delay)
    session.store.submit(
        function,
        thread_id,
        [_argument(text) for text in arguments],
        queue=queue,
        priority=priority,
        delay=given,
        labels=dict(map(named_text, labels)),
    )
    info = session.store.thread(thread_id)
    return Answer(info, _lines(session.screen, info))


def _lines(screen: Screen, info: ThreadInfo) -> Iterator[str]:
    status = "damaged" if info.status is None else info.status.value
    queue = f" on queue {printable(info.queue)}" if info.queue else ""
    yield f"{printable(info.thread_id)} is {screen.word(status)}{queue}"
    if info.wake_at is not None:
        yield f"  due  {screen.time(info.wake_at)}"
