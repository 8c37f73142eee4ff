"""What came of a thread: its result, its error, or what it waits for."""

from collections.abc import Iterable, Iterator

from holdfast.cli.answer import Answer
from holdfast.cli.command import command
from holdfast.cli.exits import EXIT_ERROR, EXIT_OK, EXIT_WAITS
from holdfast.cli.find import find_thread
from holdfast.cli.hints import resume_command
from holdfast.cli.offers import thread_argument
from holdfast.cli.requests import request_lines
from holdfast.cli.screen import Screen
from holdfast.cli.session import Session
from holdfast.cli.text import printable
from holdfast.cli.values import laid_out
from holdfast.records.outcome import Outcome
from holdfast.records.words import Status

CODES = {Status.COMPLETE: EXIT_OK, Status.FAILED: EXIT_ERROR, Status.CANCELLED: EXIT_ERROR}


@command("result")
@thread_argument()
def result(session: Session, thread: str) -> Answer:
    """Print the result of a thread, and nothing else; or its error, or what it waits for. Nothing is run.

    Text is printed as it is, other results as JSON. Exit code 0 if the thread is complete, 1 if it failed or was
    cancelled, 5 if it has no result yet.
    """
    store = session.store
    outcome = store.outcome(find_thread(store, thread))
    hint = resume_command(store, outcome.thread_id) if outcome.status is Status.FAILED else ""
    return Answer(outcome, lambda screen: _lines(screen, outcome, hint), CODES.get(outcome.status, EXIT_WAITS))


def _lines(screen: Screen, outcome: Outcome, hint: str) -> Iterator[str]:
    if outcome.status is Status.COMPLETE:
        yield from _result_lines(outcome)
        return
    yield f"{printable(outcome.thread_id)} {_standing(screen, outcome)}"
    for line in screen.wrapped(outcome.error or "", screen.width - 2) if outcome.status in CODES else ():
        yield "  " + screen.style(line, fg="red")
    for request in outcome.requests:
        yield from request_lines(screen, request)
    if hint:
        yield screen.faint(f"to resume it: {hint}")


def _result_lines(outcome: Outcome) -> Iterable[str]:
    if isinstance(outcome.result, str):
        return (printable(line) for line in outcome.result.split("\n"))
    return laid_out(outcome.result)


def _standing(screen: Screen, outcome: Outcome) -> str:
    if outcome.status is Status.FAILED:
        return screen.word(Status.FAILED.value)
    if outcome.status is Status.CANCELLED:
        return f"was {screen.word(Status.CANCELLED.value)}"
    if outcome.requests:
        return "waits for an answer"
    return f"has no result yet: it is {screen.word(outcome.status.value)}"
