"""Requests: what threads ask, and the answers."""

from collections.abc import Iterator
from datetime import UTC, datetime
from json import dumps
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from holdfast.cli.answer import Answer
from holdfast.cli.apps import load_classes
from holdfast.cli.arguments import json_value
from holdfast.cli.command import command
from holdfast.cli.find import every
from holdfast.cli.find_request import find_request, requests_of
from holdfast.cli.heads import PAGE
from holdfast.cli.hints import resume_command, typed
from holdfast.cli.offers import request_argument
from holdfast.cli.screen import Screen, counted
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.cli.values import clipped, inline
from holdfast.records.errors import InvalidAnswer
from holdfast.records.request import Request
from holdfast.runs.steps import DOUBT_CHOICES, KEY_NAME

if TYPE_CHECKING:
    from holdfast.sync import Store

by_option = click.option("--by", default="", envvar="USER", help="Who says so; $USER by default.")
comment_option = click.option("--comment", default="", help="Why.")


@command("requests")
@click.option(
    "--status",
    default="open",
    show_default=True,
    type=click.Choice(["open", "answered", "expired", "all"]),
    help="List only requests in this status.",
)
def requests(session: Session, status: str) -> Answer:
    """List what threads ask: the open requests, those that wait for an answer."""
    found = list(every(session.store.requests(status=None if status == "all" else status, limit=PAGE)))
    if status == "expired":
        found += late_requests(session.store, datetime.now(UTC))
    return Answer(found, lambda screen: _listed(screen, found, status))


def late_requests(store: "Store", now: datetime) -> list[Request]:
    """The open requests whose deadline is past: they take no answer, and their threads were not resumed yet."""
    return [request for request in every(store.requests(limit=PAGE)) if is_late(request, now)]


def is_late(request: Request, now: datetime) -> bool:
    """True if the request is open, and its deadline is past."""
    return request.status == "open" and request.deadline is not None and request.deadline < now


def _listed(screen: Screen, found: list[Request], status: str) -> Iterator[str]:
    if not found:
        yield "no requests" if status == "all" else f"no {status} requests"
    for number, request in enumerate(found):
        if number:
            yield ""
        yield from request_lines(screen, request)


def request_lines(screen: Screen, request: Request) -> Iterator[str]:
    """A request for people: what is asked, by which thread, since when, and how to answer."""
    yield f"{screen.word(request.status)}  {screen.heading(screen.fit(request.id, screen.width - 12))}"
    asked = f"asks {request.name!r}, {screen.time(request.created_at)}"
    if request.deadline is not None:
        asked += f", deadline {'passed ' if is_late(request, screen.now) else ''}{screen.time(request.deadline)}"
    yield "  " + screen.fit(asked, screen.width - 2)
    if is_doubt(request):
        yield "  payload  " + inline(request.payload)  # whole: its key is what somebody has to look for
    elif request.payload is not None:
        yield clipped(screen, "  payload  ", request.payload)
    if request.choices:
        yield "  " + screen.fit("choices  " + " | ".join(request.choices), screen.width - 2)
    if request.takes:
        yield "  " + screen.fit("takes    " + request.takes, screen.width - 2)
    if is_doubt(request) and request.answer is None:
        yield screen.faint("  with done, --value JSON is the step's result; without it that is null")
    if request.answer is not None:
        yield "  " + screen.fit(_answered(screen, request), screen.width - 2)


def is_doubt(request: Request) -> bool:
    """True if the request is about a step in doubt."""
    payload = request.payload
    return request.choices == DOUBT_CHOICES and isinstance(payload, dict) and KEY_NAME in payload


def _answered(screen: Screen, request: Request) -> str:
    answer = request.answer
    if answer is None:
        return ""
    parts = ["answer   " + (answer.choice if answer.choice is not None else clipped(screen, "", answer.value))]
    parts += (
        [f"by {answer.by}"] * bool(answer.by)
        + [screen.time(answer.at)]
        + [f'"{answer.comment}"'] * bool(answer.comment)
    )
    return ", ".join(parts)


def _answer(session: Session, request: str, choice: str | None, value: Any, by: str, comment: str) -> Answer:
    found = find_request(session.store, request)
    _refuse_incomplete(found, choice)
    session.store.answer(found.id, choice, value, by=by, comment=comment)
    left = len(requests_of(session.store, found.thread_id, "open"))
    document = {
        "request": found.id,
        "thread_id": found.thread_id,
        "choice": choice,
        "value": value,
        "by": by,
        "comment": comment,
    }
    said = choice if choice is not None else "with a value"
    hint = resume_command(session.store, found.thread_id)
    return Answer(document, lambda screen: _thanks(screen, found, said, left, hint))


def _refuse_incomplete(request: Request, choice: str | None) -> None:
    """`InvalidAnswer` for an answer that leaves out what the request takes: there is only one."""
    if request.choices and choice is None:
        raise InvalidAnswer(f"request {request.name!r}: give one of: {', '.join(request.choices)}")
    given = click.get_current_context().get_parameter_source("value") is not ParameterSource.DEFAULT
    if not request.choices and (choice is not None or not given):
        is_text = choice is not None and request.takes in {"", "str"}
        command = f"holdfast answer {typed(request.id)} --value {quote(dumps(choice)) if is_text else 'JSON'}"
        wanted = request.takes or "a value"
        raise InvalidAnswer(f"request {request.name!r} has no choices, it takes {wanted}: {command}")


def _thanks(screen: Screen, request: Request, said: str, left: int, hint: str) -> Iterator[str]:
    yield f"{screen.word('answered')} {printable(request.id)}: {printable(said)}"
    if left:
        yield screen.faint(f"the thread has {counted(left, 'more open request')}")
    else:
        yield screen.faint(f"to resume the thread: {hint}")


@command("answer", runs_code=True)
@request_argument()
@click.argument("choice", required=False)
@click.option(
    "--value", metavar="JSON", type=json_value, help="The value of the answer: JSON, @FILE, or - for standard input."
)
@click.option("--app", "apps", multiple=True, metavar="MODULE", help="Where the class is that the request takes.")
@by_option
@comment_option
def answer(
    session: Session, request: str, choice: str | None, value: Any, apps: tuple[str, ...], by: str, comment: str
) -> Answer:
    """Answer a request, with one of its choices or with a value. Once: a second answer is a conflict.

    REQUEST is its id, or the full id of a thread that has one open request. A request that takes an object of a class
    is answered with its fields, and --app names the module that has the class.
    """
    for app in apps:
        load_classes(app)
    return _answer(session, request, choice, value, by, comment)


@command("approve")
@request_argument()
@click.option(
    "--value", metavar="JSON", type=json_value, help="A value that goes with it, such as corrected arguments."
)
@by_option
@comment_option
def approve(session: Session, request: str, value: Any, by: str, comment: str) -> Answer:
    """Answer a request with `approve`. REQUEST is its id, or the full id of a thread with one open request."""
    return _answer(session, request, "approve", value, by, comment)


@command("reject")
@request_argument()
@click.option("--value", metavar="JSON", type=json_value, help="A value that goes with it.")
@by_option
@comment_option
def reject(session: Session, request: str, value: Any, by: str, comment: str) -> Answer:
    """Answer a request with `reject`. REQUEST is its id, or the full id of a thread with one open request."""
    return _answer(session, request, "reject", value, by, comment)
