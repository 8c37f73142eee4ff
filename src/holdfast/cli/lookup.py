"""Find threads, checkpoints and requests by what the user typed, and read them without a claim.

An id may be given by a prefix, as in git. An exact match wins, also that of a deleted thread. Commands that answer or
destroy take no prefix of a thread's id: repeating one must not hit another thread. An id may also be typed as it is
printed, with escapes. Threads whose key is missing, or that are damaged, are found too.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.cli.output import printable
from holdfast.codec import decode
from holdfast.history.entries import Begun
from holdfast.history.journal import Journal
from holdfast.processes import is_certainly_dead
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import ConfigurationError, Conflict, Deleted, NotFound
from holdfast.records.request import Request
from holdfast.records.thread import ThreadInfo
from holdfast.records.times import from_microseconds
from holdfast.records.words import Status
from holdfast.runs import inbox
from holdfast.runs.store import tools_of
from holdfast.runtimes.agent.memory import AGENT
from holdfast.stores.listing import UNREADABLE, damaged_info, listed_info
from holdfast.stores.reader import Reader
from holdfast.sync import Page, Store

PAGE = 1000
MOST_NAMED = 10
PLACE = re.compile(r"\d{1,15}(?:\.[0-9a-f]+)?")
Presence: TypeAlias = Literal["none", "empty", "listed", "deleted"]
T = TypeVar("T")


class Ambiguous(ConfigurationError):
    """A prefix of several ids."""


def every(page: Page[T] | None) -> Iterator[T]:
    """Yield the items of a page and of all that follow."""
    while page is not None:
        yield from page
        page = page.next_page()


def all_threads(store: Store) -> Iterator[ThreadInfo]:
    """Yield all threads, newest first."""
    return every(store.threads(limit=PAGE))


def _reader(store: Store) -> Reader:
    return tools_of(store._store).reader  # noqa: SLF001  the blocking store only wraps it


def have_same_backend(one: Store, other: Store) -> bool:
    """True if two handles are on the same store."""
    return _reader(one).backend is _reader(other).backend


def find_thread(store: Store, text: str) -> str:
    """Return the id of the thread with this id or prefix."""
    if _is_exact(store, text):
        return text
    try:
        return _only_match(text, (info.thread_id for info in all_threads(store)), "thread")
    except NotFound as error:
        start, _, end = text.rpartition("@")
        if start and PLACE.fullmatch(end) and is_thread(store, start):
            raise NotFound(f"{text!r} is a checkpoint, but this takes a thread: {start!r}") from error
        raise


def find_exact_thread(store: Store, text: str) -> str:
    """Return the id of the thread with exactly this id, as it is or as it is printed."""
    if _is_exact(store, text):
        return text
    near = [info.thread_id for info in all_threads(store) if _matches(text, info.thread_id)]
    for thread_id in near:
        if printable(thread_id) == text:
            return thread_id
    advice = f"this takes the full id: {_listed(near)}" if near else "`holdfast threads` lists them"
    raise NotFound(f"no thread has the id {text!r}; {advice}")


def _is_exact(store: Store, text: str) -> bool:
    """True if a thread has exactly this id; `Deleted` if it was deleted, since then no other one is meant."""
    presence = _presence_of(store, text)
    if presence == "deleted":
        raise Deleted(f"thread {text!r} was deleted; `holdfast revive` frees its id")
    return presence == "listed"


def is_thread(store: Store, thread_id: str) -> bool:
    """True if a thread has exactly this id."""
    return _presence_of(store, thread_id) == "listed"


def _presence_of(store: Store, thread_id: str) -> Presence:
    """Say whether a thread of this id exists. One whose head is damaged counts as listed."""
    reader = _reader(store)
    try:
        seen = reader.seen(reader.key(thread_id))
    except UNREADABLE:
        return "listed"
    if seen is None:
        return "none"
    return "deleted" if seen.head.deleted else "listed" if seen.head.listed_as else "empty"


def read_thread(store: Store, thread_id: str) -> ThreadInfo:
    """Read one thread, also if it is damaged or its key is missing; `NotFound` if it does not exist."""
    reader = _reader(store)
    thread = reader.key(thread_id)
    try:
        return listed_info(reader, thread, reader.listed(thread).head)
    except UNREADABLE as error:
        return damaged_info(thread, error)
    except NotFound:
        for info in all_threads(store):
            if info.damaged is not None and info.thread_id == thread_id:
                return info
        raise


def key_advice(store: Store) -> str:
    """Say how to give a key that is missing."""
    ring = _reader(store).bindings.ring
    if ring is None:
        return "give --key-file FILE, or set HOLDFAST_KEY"
    given = ", ".join(map(repr, ring.ids))
    return f"give --key-file FILE or HOLDFAST_KEY with the missing key; the given one has only {given}"


def status_of(info: ThreadInfo) -> str:
    """Return the status of a thread, for people."""
    return "damaged" if info.status is None else info.status.value.replace("_", " ")


def is_abandoned(info: ThreadInfo, now: datetime) -> bool:
    """True if a thread has the status `working`, and no live process can hold it."""
    if info.status is not Status.WORKING:
        return False
    if info.lease is not None:
        return info.lease.expires_at < now or is_certainly_dead(info.lease.owner)
    return info.wake_at is None or info.wake_at < now


def names_checkpoint(store: Store, text: str) -> bool:
    """True if the text is `ID@SEQ` or a checkpoint's full id, and not the id of a thread."""
    start, _, end = text.rpartition("@")
    return bool(start) and PLACE.fullmatch(end) is not None and _presence_of(store, text) == "none"


def find_checkpoint(store: Store, text: str, *, exact: bool = False) -> Checkpoint:
    """Return the checkpoint `ID@SEQ`, that of a full id, or a thread's newest; `exact` takes no prefix of a thread."""
    find = find_exact_thread if exact else find_thread
    if not names_checkpoint(store, text):
        return newest_checkpoint(store, find(store, text))
    start, _, place = text.rpartition("@")
    thread_id, (seq, _, incarnation) = find(store, start), place.partition(".")
    try:
        return store.load(f"{thread_id}@{place}") if incarnation else store.get(thread_id, int(seq))
    except NotFound as error:
        raise NotFound(f"{error}{_nearest(store, thread_id, int(seq))}") from error


def _nearest(store: Store, thread_id: str, seq: int) -> str:
    """Name the checkpoints before and after a row that is none; empty if there are none."""
    seqs = [row.seq for row in every(store.history(thread_id, limit=PAGE))]
    before = max((each for each in seqs if each < seq), default=0)
    after = min((each for each in seqs if each > seq), default=0)
    near = [f"{printable(thread_id)}@{each}" for each in (before, after) if each]
    return f"; the nearest: {' and '.join(near)}" if near else ""


def newest_checkpoint(store: Store, thread_id: str) -> Checkpoint:
    """Return the newest checkpoint of a thread."""
    checkpoint = store.latest(thread_id)
    if checkpoint is None:
        raise NotFound(f"thread {thread_id!r} has no checkpoint yet")
    return checkpoint


def requests_of(store: Store, thread_id: str, status: str | None = None) -> list[Request]:
    """Return the requests of one thread, all or those in one status."""
    return inbox.requests_of(tools_of(store._store).reader, thread_id, status)  # noqa: SLF001  it wraps that store


def find_request(store: Store, text: str) -> Request:
    """Return the request of this id, or the one open request of a thread.

    A request stays found after it was answered: the same text never names another one.
    """
    start, separator, _ = text.rpartition("#")
    if start and separator and _presence_of(store, text) == "none":
        return _numbered(store, find_exact_thread(store, start), text)
    return _only_open(store, find_exact_thread(store, text))


def _numbered(store: Store, thread_id: str, text: str) -> Request:
    """Return a request of the thread by its id or a prefix; `ID#1` is the first and not the tenth."""
    requests = {request.id: request for request in requests_of(store, thread_id)}
    for request_id, request in requests.items():
        number = request_id.rpartition(".")[0]
        if text in {number, printable(number)}:
            return request
    return requests[_only_match(text, requests, "request")]


def _only_open(store: Store, thread_id: str) -> Request:
    requests = requests_of(store, thread_id)
    still_open = [request for request in requests if request.status == "open"]
    if len(still_open) == 1:
        return still_open[0]
    if still_open:
        ids = _listed([request.id for request in still_open])
        raise Ambiguous(f"thread {thread_id!r} has {len(still_open)} open requests: {ids}; give the id of one")
    if not requests:
        raise NotFound(f"thread {thread_id!r} has no open request")
    last = requests[-1]
    end = "not answered in time" if last.answer is None else f"answered by {last.answer.by or 'an unnamed user'}"
    raise Conflict(f"thread {thread_id!r} has no open request; {last.id} was {end}")


def _matches(text: str, candidate: str) -> bool:
    """True if an id begins with the text, as it is or as it is printed."""
    return candidate.startswith(text) or printable(candidate).startswith(text)


def _only_match(text: str, candidates: Iterable[str], kind: str) -> str:
    found = [candidate for candidate in candidates if _matches(text, candidate)]
    exact = [candidate for candidate in found if text in {candidate, printable(candidate)}]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise NotFound(f"no {kind} has the id {text!r}; `holdfast {kind}s` lists them")
    raise Ambiguous(f"{text!r} is a prefix of {len(found)} {kind}s: {_listed(found)}; give more of the id")


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + more


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work on a thread, of any runtime, as its journal records it."""

    function: str = ""
    """The durable function that the thread was started as; empty for none."""
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    result: Any = None
    begun: dict[str, datetime] = {}
    """When each step in doubt was begun, by its key: it has an effect, and its end is not recorded."""
    begun_with: dict[str, str] = {}
    """A preview of the arguments of steps in doubt, where the store keeps one."""


def journal_of(store: Store, thread_id: str) -> Journal:
    """Return the journal of a thread; it is empty if the thread was claimed and nothing was written yet."""
    reader = _reader(store)
    try:
        return Journal.of(reader.load_head(reader.key(thread_id)).log.document)
    except NotFound:
        store.thread(thread_id)
        return Journal()


def function_of(store: Store, thread_id: str) -> str:
    """Return the recorded name of the durable function or agent of a thread; empty for none."""
    try:
        started = journal_of(store, thread_id).started
    except NotFound:
        return ""
    return started.function if started is not None else ""


def read_work(store: Store, thread_id: str) -> Work:
    """Read the work on a thread."""
    journal = journal_of(store, thread_id)
    begun = [memo for memo in journal.memos.values() if isinstance(memo, Begun)]
    ended = journal.ended
    return Work(
        **_started(journal),
        result=decode(ended.value) if ended is not None and ended.status == Status.COMPLETE.value else None,
        begun={memo.key: from_microseconds(memo.at) for memo in begun},
        begun_with={memo.key: memo.arguments for memo in begun if memo.arguments},
    )


def _started(journal: Journal) -> dict[str, Any]:
    started = journal.started
    if started is None or started.function.startswith(AGENT):
        return {}
    given = decode(started.arguments)
    if isinstance(given, list) and len(given) == 2 and isinstance(given[0], list) and isinstance(given[1], dict):
        return {"function": started.function, "arguments": tuple(given[0]), "named": given[1]}
    return {"function": started.function, "arguments": (given,), "named": {}}  # of a user's own runtime
