"""Requests: list what threads ask, and answer it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from json import dumps
from shlex import quote
from typing import Any

import click
from click.core import ParameterSource

from holdfast.cli.apps import load_classes, quoted, resume_command
from holdfast.cli.arguments import json_value
from holdfast.cli.command import command
from holdfast.cli.completion import request_argument
from holdfast.cli.lookup import PAGE, every, find_request, requests_of
from holdfast.cli.output import Answer, Screen, counted, inline, printable
from holdfast.cli.session import Session
from holdfast.records.errors import InvalidAnswer
from holdfast.records.request import Request
from holdfast.runs.steps import DOUBT_CHOICES, KEY_NAME
from holdfast.sync import Store

by_option = click.option("--by", default="", envvar="USER", help="Record who decided. Default: $USER.")
comment_option = click.option("--comment", default="", help="Record why.")


@command(only_reads=True)
@click.option(
    "--status",
    default="open",
    show_default=True,
    type=click.Choice(["open", "answered", "expired", "all"]),
    help="List only requests in this status.",
)
def requests(session: Session, status: str) -> Answer:
    """List the requests of all threads: by default the open ones, which wait for an answer."""
    found = list(every(session.store.requests(status=None if status == "all" else status, limit=PAGE)))
    if status == "expired":
        found += late_requests(session.store, datetime.now(UTC))
    return Answer(found, _listed(session.screen, found, status))


def late_requests(store: Store, now: datetime) -> list[Request]:
    """Return the open requests past their deadline: they take no answer, and expire when their thread is resumed."""
    return [request for request in every(store.requests(limit=PAGE)) if _is_late(request, now)]


def _is_late(request: Request, now: datetime) -> bool:
    return request.status == "open" and request.deadline is not None and request.deadline < now


def _listed(screen: Screen, found: list[Request], status: str) -> Iterator[str]:
    if not found:
        yield "no requests" if status == "all" else f"no {status} requests"
    for number, request in enumerate(found):
        if number:
            yield ""
        yield from request_lines(screen, request)


def request_lines(screen: Screen, request: Request) -> Iterator[str]:
    """Show a request: its question, payload, choices, and answer."""
    yield f"{screen.word(request.status)}  {screen.heading(screen.fit(request.id, screen.width - 12))}"
    asked = f"asks {request.name!r}, {screen.time(request.created_at)}"
    if request.deadline is not None:
        asked += f", deadline {'passed ' if _is_late(request, screen.now) else ''}{screen.time(request.deadline)}"
    yield "  " + screen.fit(asked, screen.width - 2)
    in_doubt = _is_step_in_doubt(request)
    if in_doubt:
        yield "  payload  " + inline(request.payload)  # never cut: people look for its idempotency key elsewhere
    elif request.payload is not None:
        yield screen.value("  payload  ", request.payload)
    if request.choices:
        yield "  " + screen.fit("choices  " + " | ".join(request.choices), screen.width - 2)
    if request.takes:
        yield "  " + screen.fit("takes    " + request.takes, screen.width - 2)
    if in_doubt and request.answer is None:
        yield screen.faint("  with done, --value JSON is the step's result; without it that is null")
    if request.answer is not None:
        yield "  " + screen.fit(_answer_text(screen, request), screen.width - 2)


def _is_step_in_doubt(request: Request) -> bool:
    payload = request.payload
    return request.choices == DOUBT_CHOICES and isinstance(payload, dict) and KEY_NAME in payload


def _answer_text(screen: Screen, request: Request) -> str:
    answer = request.answer
    assert answer is not None  # noqa: S101  its caller looked
    given = answer.choice if answer.choice is not None else screen.value("", answer.value)
    by, comment = [f"by {answer.by}"] * bool(answer.by), [f'"{answer.comment}"'] * bool(answer.comment)
    return ", ".join(["answer   " + given, *by, screen.time(answer.at), *comment])


def _answer(session: Session, request: str, choice: str | None, value: Any, by: str, comment: str) -> Answer:
    store = session.store
    found = find_request(store, request)
    _refuse_incomplete(found, choice)
    store.answer(found.id, choice, value, by=by, comment=comment)
    document = {
        "request": found.id,
        "thread_id": found.thread_id,
        "choice": choice,
        "value": value,
        "by": by,
        "comment": comment,
    }
    left = len(requests_of(store, found.thread_id, "open"))
    more = f"the thread has {counted(left, 'more open request')}"
    hint = more if left else f"to resume the thread: {resume_command(store, found.thread_id)}"
    screen, given = session.screen, choice if choice is not None else "with a value"
    answered = f"{screen.word('answered')} {printable(found.id)}: {printable(given)}"
    return Answer(document, [answered, screen.faint(hint)])


def _refuse_incomplete(request: Request, choice: str | None) -> None:
    """Raise `InvalidAnswer` if the answer lacks what the request takes: it can be answered only once."""
    if request.choices and choice is None:
        raise InvalidAnswer(f"request {request.name!r} takes one of: {', '.join(request.choices)}")
    given = click.get_current_context().get_parameter_source("value") is not ParameterSource.DEFAULT
    if not request.choices and (choice is not None or not given):
        is_text = choice is not None and request.takes in {"", "str"}
        answering = f"holdfast answer {quoted(request.id)} --value {quote(dumps(choice)) if is_text else 'JSON'}"
        raise InvalidAnswer(
            f"request {request.name!r} has no choices, it takes {request.takes or 'a value'}: {answering}"
        )


@command(runs_code=True)
@request_argument
@click.argument("choice", required=False)
@click.option(
    "--value", metavar="JSON", type=json_value, help="Answer with a value: JSON, @FILE, or - for standard input."
)
@click.option("--app", "apps", multiple=True, metavar="MODULE", help="Import the class that the request takes.")
@by_option
@comment_option
def answer(
    session: Session, request: str, choice: str | None, value: Any, apps: tuple[str, ...], by: str, comment: str
) -> Answer:
    """Answer a request with one of its choices or with a value. A second answer is a conflict.

    REQUEST is its id, or the full id of a thread with one open request. If a request takes an object of a class, give
    its fields as JSON, and name the module of the class with --app.
    """
    for app in apps:
        load_classes(app)
    return _answer(session, request, choice, value, by, comment)


@command()
@request_argument
@click.option("--value", metavar="JSON", type=json_value, help="Add a value, such as corrected arguments.")
@by_option
@comment_option
def approve(session: Session, request: str, value: Any, by: str, comment: str) -> Answer:
    """Answer a request with `approve`. REQUEST is its id, or the full id of a thread with one open request."""
    return _answer(session, request, "approve", value, by, comment)


@command()
@request_argument
@click.option("--value", metavar="JSON", type=json_value, help="Add a value.")
@by_option
@comment_option
def reject(session: Session, request: str, value: Any, by: str, comment: str) -> Answer:
    """Answer a request with `reject`. REQUEST is its id, or the full id of a thread with one open request."""
    return _answer(session, request, "reject", value, by, comment)
