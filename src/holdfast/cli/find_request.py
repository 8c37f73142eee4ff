"""Which request the user meant: by its id, by the beginning of that with its thread's whole id, or by its thread.

What was answered stays taken: the same words mean the same request the next time, and not another one.
"""

from typing import TYPE_CHECKING

from holdfast.cli.find import Ambiguous, find_exact_thread, listed, only_match, was_thread
from holdfast.cli.text import printable
from holdfast.ports import run_blocking
from holdfast.records.errors import Conflict, NotFound
from holdfast.records.request import Request
from holdfast.runs import inbox
from holdfast.runs.store import tools_of

if TYPE_CHECKING:
    from holdfast.sync import Store


def requests_of(store: "Store", thread_id: str, status: str | None = None) -> list[Request]:
    """The requests of one thread that stand so, or all."""
    inner = store._store  # noqa: SLF001  the blocking store has nothing of its own
    tools = tools_of(inner)
    return run_blocking(tools.ports.perform(inbox.requests_of, tools.reader, thread_id, status))


def find_request(store: "Store", text: str) -> Request:
    """The request that is meant."""
    start, separator, _ = text.rpartition("#")
    if start and separator and not was_thread(store, text):
        return _numbered(store, find_exact_thread(store, start), text)
    return _only_open(store, find_exact_thread(store, text))


def _numbered(store: "Store", thread_id: str, text: str) -> Request:
    """A request of the thread by its id or the beginning of it; `ID#1` is the first and not the tenth."""
    requests = {request.id: request for request in requests_of(store, thread_id)}
    for request_id, request in requests.items():
        number = request_id.rpartition(".")[0]
        if text in {number, printable(number)}:
            return request
    return requests[only_match(text, requests, "request")]


def _only_open(store: "Store", thread_id: str) -> Request:
    """The one open request of the thread."""
    requests = requests_of(store, thread_id)
    still_open = [request for request in requests if request.status == "open"]
    if len(still_open) == 1:
        return still_open[0]
    if still_open:
        named = listed([request.id for request in still_open])
        raise Ambiguous(f"thread {thread_id!r} has {len(still_open)} open requests: {named}; give the id of one")
    if not requests:
        raise NotFound(f"thread {thread_id!r} has no open request")
    raise Conflict(f"thread {thread_id!r} has no open request; {_end_of(requests[-1])}")


def _end_of(request: Request) -> str:
    if request.answer is None:
        return f"{request.id} was not answered in time"
    return f"{request.id} was answered by {request.answer.by or 'somebody'}"
