"""What the user meant: threads, checkpoints and requests by their ids, or by the beginning of them, as in git.

An exact match wins, also of a thread that was deleted. What answers or destroys takes no beginning of a thread's id:
called twice, it must not hit another thread. An id may also be given as it is printed, with escapes in place of what
cannot be typed.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from holdfast.cli.heads import list_threads, presence_of
from holdfast.cli.text import printable
from holdfast.records.checkpoint import Checkpoint
from holdfast.records.errors import ConfigurationError, Deleted, NotFound
from holdfast.records.thread import ThreadInfo

if TYPE_CHECKING:
    from holdfast.sync import Page, Store

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
    refuse_deleted(store, text)
    try:
        return only_match(text, all_ids(store), "thread")
    except NotFound as error:
        start, _, end = text.rpartition("@")
        if start and PLACE.fullmatch(end) and is_thread(store, start):
            raise NotFound(f"{text!r} is a checkpoint, and a thread is needed here: {start!r}") from error
        raise


def find_exact_thread(store: "Store", text: str) -> str:
    """The id of the thread that is named in full."""
    if is_thread(store, text):
        return text
    refuse_deleted(store, text)
    near = [thread_id for thread_id in all_ids(store) if matches(text, thread_id)]
    for thread_id in near:
        if printable(thread_id) == text:
            return thread_id
    full = f"; this takes the full id: {listed(near)}" if near else "; `holdfast threads` lists them"
    raise NotFound(f"there is no thread {text!r}{full}")


def all_ids(store: "Store") -> Iterator[str]:
    """The ids of all threads."""
    return (info.thread_id for info in list_threads(store))


def refuse_deleted(store: "Store", thread_id: str) -> None:
    """`Deleted` if a thread of exactly this id was deleted: then no other one is meant."""
    if presence_of(store, thread_id) == "deleted":
        raise Deleted(f"thread {thread_id!r} was deleted; `holdfast revive` frees its id")


def was_thread(store: "Store", thread_id: str) -> bool:
    """True if a thread of exactly this id is there, or was."""
    return presence_of(store, thread_id) != "none"


def is_thread(store: "Store", thread_id: str) -> bool:
    """True if there is a thread of exactly this id."""
    return presence_of(store, thread_id) == "listed"


def find_checkpoint(store: "Store", text: str) -> Checkpoint:
    """The checkpoint that is meant: `ID@SEQ`, its full id, or a thread's id for its newest."""
    if not names_checkpoint(store, text):
        return newest_checkpoint(store, find_thread(store, text))
    start, _, place = text.rpartition("@")
    return _checkpoint_at(store, find_thread(store, start), place)


def find_exact_checkpoint(store: "Store", text: str) -> Checkpoint:
    """The checkpoint that is meant by `ID@SEQ` or its full id, with the thread's id in full."""
    start, _, place = text.rpartition("@")
    return _checkpoint_at(store, find_exact_thread(store, start), place)


def _checkpoint_at(store: "Store", thread_id: str, place: str) -> Checkpoint:
    seq, _, life = place.partition(".")
    return store.load(f"{thread_id}@{seq}.{life}") if life else store.get(thread_id, int(seq))


def names_checkpoint(store: "Store", text: str) -> bool:
    """True if one checkpoint is meant, and not a thread: `ID@SEQ`, or a full id."""
    start, _, end = text.rpartition("@")
    return bool(start) and PLACE.fullmatch(end) is not None and not was_thread(store, text)


def newest_checkpoint(store: "Store", thread_id: str) -> Checkpoint:
    """The newest checkpoint of a thread."""
    checkpoint = store.latest(thread_id)
    if checkpoint is None:
        raise NotFound(f"thread {thread_id!r} has no checkpoint yet")
    return checkpoint


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
    raise Ambiguous(f"{text!r} is the beginning of {len(found)} {what}s: {listed(found)}; give more of it")


def listed(ids: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + more


def standing(info: ThreadInfo) -> str:
    """The status of a thread, as people read it."""
    return "damaged" if info.status is None else info.status.value.replace("_", " ")
