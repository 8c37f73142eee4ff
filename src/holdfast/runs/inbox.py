"""Reading what threads wait for and how they ended, without running or claiming them. Blocking."""

from holdfast.history.journal import Journal
from holdfast.records.errors import LimitExceeded, NotFound
from holdfast.records.outcome import Outcome
from holdfast.records.request import Request
from holdfast.records.thread import ThreadInfo
from holdfast.records.words import Status
from holdfast.stores.claim import FINISHED
from holdfast.stores.listing import UNREADABLE, Listings, warn_of_damaged, warn_of_sealed
from holdfast.stores.reader import Reader

REQUEST_STATUSES = ("open", "answered", "expired")
OPEN = (Status.INPUT_REQUIRED, Status.WORKING)
"""Statuses of threads that may have open requests."""
FAILURES = (Status.FAILED, Status.CANCELLED)


def list_requests(
    reader: Reader, status: str | None, cursor: str | None, limit: int
) -> tuple[list[Request], str | None]:
    """Return all matching requests of the threads of one page that has any, and the cursor for the next page."""
    statuses = [each.value for each in OPEN] if status == "open" else []
    found: list[Request] = []
    while True:
        threads, cursor = Listings(reader).threads(statuses, {}, cursor, limit)
        found += _requests_of_page(reader, threads, status)
        if cursor is None or len(found) >= limit:
            return found, cursor


def _requests_of_page(reader: Reader, threads: list[ThreadInfo], status: str | None) -> list[Request]:
    """Return the requests of these threads; warn of those that cannot be read."""
    if sealed := [info for info in threads if info.sealed_by is not None]:
        warn_of_sealed("not all requests are listed", sealed[0])
    found, damaged = list[Request](), list[tuple[str, object]]()
    for info in threads:
        try:
            if info.damaged is not None:
                damaged.append((info.thread_id, info.damaged))
            elif info.sealed_by is None:
                found += requests_of(reader, info.thread_id, status)
        except (*UNREADABLE, LimitExceeded) as error:
            damaged.append((info.thread_id, error))
    if damaged:
        warn_of_damaged("not all requests are listed", *damaged[0])
    return found


def requests_of(reader: Reader, thread_id: str, status: str | None) -> list[Request]:
    """Return the requests of one thread that have this status, or all."""
    from holdfast.runs.asking import take_in_answers

    thread = reader.key(thread_id)
    try:
        seen = reader.living(thread)
        summary = reader.bindings.read_summary(reader.binding(thread, seen.head), seen.head)
        if status == "open" and not summary.requests:
            return []
        inbox = reader.backend.inbox(thread)
        loaded = reader.load_head(thread)
    except NotFound:
        return []
    journal, binding = Journal.of(loaded.log.document), loaded.log.binding
    take_in_answers(journal, binding, inbox)
    shown = set(REQUEST_STATUSES) if status is None else {status}
    if loaded.seen.head.status in FINISHED:
        shown.discard("open")
    numbers = [number for number in journal.numbers() if journal.request_status(number) in shown]
    return journal.list_requests(binding, numbers)


def outcome_of(reader: Reader, thread: bytes) -> Outcome:
    """Return a thread's status, with its result, its error or its open requests."""
    info, result, requests = Listings(reader).info(thread), None, list[Request]()
    if info.status is Status.COMPLETE and info.row_count:
        result = Journal.of(reader.load_head(thread).log.document).result
    elif info.status in OPEN:
        requests = requests_of(reader, info.thread_id, "open")
    error = info.error if info.status in FAILURES else None
    assert info.status is not None  # noqa: S101  a damaged head was refused
    return Outcome(status=info.status, thread_id=info.thread_id, result=result, error=error, requests=tuple(requests))
