"""What the user meant: threads, checkpoints and requests by their ids, or by the beginning of them, as in git.

An exact match wins. An id may also be given as it is printed, with escapes in place of what cannot be typed.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from holdfast.cli.text import printable
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import ConfigurationError, NotFound
from holdfast.records.request import Request
from holdfast.records.thread import ThreadInfo

if TYPE_CHECKING:
    from holdfast.sync import Page, Store

PAGE = 1000
MOST_NAMED = 10
PLACE = re.compile(r"\d{1,15}(?:\.[0-9a-f]+)?")
T = TypeVar("T")


class Ambiguous(ConfigurationError):
    """The beginning of several ids."""


def every(page: "Page[T] | None") -> Iterator[T]:
    """The items of a page and of all that follow."""
    while page is not None:
        yield from page
        page = page.next_page()


def find_thread(store: "Store", text: str) -> str:
    """The id of the thread that is meant."""
    if is_thread(store, text):
        return text
    ids = (info.thread_id for info in every(store.threads(limit=PAGE)))
    try:
        return only_match(text, ids, "thread")
    except NotFound as error:
        start, _, end = text.rpartition("@")
        if start and PLACE.fullmatch(end) and is_thread(store, start):
            raise NotFound(f"{text!r} is a checkpoint, and a thread is needed here: {start!r}") from error
        raise


def is_thread(store: "Store", thread_id: str) -> bool:
    """True if there is a thread of exactly this id."""
    try:
        store.thread(thread_id)
    except NotFound:
        return False
    return True


def find_checkpoint(store: "Store", text: str) -> Checkpoint:
    """The checkpoint that is meant: `ID@SEQ`, its full id, or a thread's id for its newest."""
    if not names_checkpoint(store, text):
        return newest_checkpoint(store, find_thread(store, text))
    start, _, end = text.rpartition("@")
    thread_id = find_thread(store, start)
    seq, _, life = end.partition(".")
    return store.load(f"{thread_id}@{seq}.{life}") if life else store.get(thread_id, int(seq))


def names_checkpoint(store: "Store", text: str) -> bool:
    """True if one checkpoint is meant, and not a thread: `ID@SEQ`, or a full id."""
    start, _, end = text.rpartition("@")
    return bool(start) and PLACE.fullmatch(end) is not None and not is_thread(store, text)


def newest_checkpoint(store: "Store", thread_id: str) -> Checkpoint:
    """The newest checkpoint of a thread."""
    checkpoint = store.latest(thread_id)
    if checkpoint is None:
        raise NotFound(f"thread {thread_id!r} has no checkpoint yet")
    return checkpoint


def find_request(store: "Store", text: str) -> Request:
    """The request that is meant: open ones first, then those that have an answer."""
    for status in ("open", None):
        requests = {request.id: request for request in every(store.requests(status=status, limit=PAGE))}
        if any(matches(text, request_id) for request_id in requests):
            return requests[only_match(text, requests, "request")]
    raise NotFound(f"there is no request {text!r}; `holdfast requests` lists them")


def matches(text: str, candidate: str) -> bool:
    """True if an id, or the way it is printed, begins with the text."""
    return candidate.startswith(text) or printable(candidate).startswith(text)


def only_match(text: str, candidates: Iterable[str], what: str) -> str:
    """The one candidate that is meant."""
    found = [candidate for candidate in candidates if matches(text, candidate)]
    exact = [candidate for candidate in found if text in {candidate, printable(candidate)}]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise NotFound(f"there is no {what} {text!r}; `holdfast {what}s` lists them")
    named = ", ".join(found[:MOST_NAMED])
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    raise Ambiguous(f"{text!r} is the beginning of {len(found)} {what}s: {named}{more}; give more of it")


def standing(info: ThreadInfo) -> str:
    """The status of a thread, as people read it."""
    return info.status.value.replace("_", " ")
