"""What the heads of threads tell, also of threads whose key is missing: everything but their labels and error."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from holdfast.codec.keys import KeyRing
from holdfast.ports import run_blocking
from holdfast.records.errors import KeyUnavailable
from holdfast.records.head import Head, decode_head
from holdfast.records.thread import ThreadInfo
from holdfast.runs.block import Tools
from holdfast.runs.store import tools_of
from holdfast.stores.listing import UNREADABLE, damaged_info, described, thread_info
from holdfast.stores.reader import Reader
from holdfast.stores.sealing import Summary

if TYPE_CHECKING:
    from holdfast.sync import Store

PAGE = 1000
Presence: TypeAlias = Literal["none", "empty", "listed", "deleted"]
ADVICE = "give --key-file FILE, or set HOLDFAST_KEY"


class ListedThread(ThreadInfo, frozen=True, kw_only=True):
    """A thread as it is listed. `sealed_by`: the id of the key that is missing to read its content."""

    sealed_by: str | None = None


def opened_tools(store: "Store") -> Tools:
    """What the store reads with, ready to be used."""
    tools = tools_of(store._store)  # noqa: SLF001  the blocking store has nothing of its own

    async def opened() -> Tools:
        await tools.open()
        return tools

    return run_blocking(opened())


def list_threads(
    store: "Store", statuses: Iterable[str] = (), labels: Mapping[str, str] | None = None, page: int = PAGE
) -> Iterator[ListedThread]:
    """Threads, the newest first, read page by page."""
    tools = opened_tools(store)
    reader, cursor = tools.reader, None
    choices = reader.sealing.label_choices(labels or {})
    while True:
        listing = run_blocking(
            tools.ports.perform(reader.backend.threads, reader.sealing.prefix, list(statuses), choices, cursor, page)
        )
        for thread, encoded in listing.heads:
            yield _listed_or_damaged(reader, thread, encoded)
        cursor = listing.next
        if cursor is None:
            return


def read_thread(store: "Store", thread_id: str) -> ListedThread:
    """One thread; `NotFound` if there is none."""
    tools = opened_tools(store)
    thread = tools.reader.sealing.key(thread_id)
    try:
        seen = run_blocking(tools.ports.perform(tools.reader.listed, thread))
        return _listed(tools.reader, thread, seen.head)
    except UNREADABLE as error:
        return _damaged(thread, error)


def presence_of(store: "Store", thread_id: str) -> Presence:
    """Whether there is a thread of this id. One whose head is damaged is listed."""
    tools = opened_tools(store)
    try:
        seen = run_blocking(tools.ports.perform(tools.reader.seen, tools.reader.sealing.key(thread_id)))
    except UNREADABLE:
        return "listed"
    if seen is None:
        return "none"
    return "deleted" if seen.head.deleted else "listed" if seen.head.listed_as else "empty"


def _listed_or_damaged(reader: Reader, thread: bytes, encoded: bytes) -> ListedThread:
    try:
        return _listed(reader, thread, decode_head(thread, encoded))
    except UNREADABLE as error:
        return _damaged(thread, error)


def _listed(reader: Reader, thread: bytes, head: Head) -> ListedThread:
    missing = _missing_key(reader, thread, head)
    info = thread_info(reader, thread, head) if missing is None else described(thread, head, Summary())
    return _as_listed(info, missing)


def _damaged(thread: bytes, error: Exception) -> ListedThread:
    return _as_listed(damaged_info(thread, error), None)


def _as_listed(info: ThreadInfo, missing: str | None) -> ListedThread:
    return ListedThread(**{name: getattr(info, name) for name in info.__struct_fields__}, sealed_by=missing)


def _missing_key(reader: Reader, thread: bytes, head: Head) -> str | None:
    """The id of the key that this thread is encrypted with, if it cannot be opened; None if it can."""
    if not head.data_key:
        return None
    try:
        reader.binding(thread, head)
    except KeyUnavailable:
        return KeyRing.wrapped_by(head.data_key)
    return None
