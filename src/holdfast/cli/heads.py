"""What the heads of threads tell, also of threads whose key is missing: everything but their labels and error."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from holdfast.ports import run_blocking
from holdfast.records.errors import NotFound
from holdfast.records.thread import ThreadInfo
from holdfast.runs.block import Tools
from holdfast.runs.store import tools_of
from holdfast.stores.listing import UNREADABLE, damaged_info, info_or_damage, listed_info

if TYPE_CHECKING:
    from holdfast.sync import Store

PAGE = 1000
Presence: TypeAlias = Literal["none", "empty", "listed", "deleted"]


def opened_tools(store: "Store") -> Tools:
    """What the store reads with, ready to be used."""
    tools = tools_of(store._store)  # noqa: SLF001  the blocking store has nothing of its own

    async def opened() -> Tools:
        await tools.open()
        return tools

    return run_blocking(opened())


def key_advice(store: "Store") -> str:
    """What to do to see what is encrypted with a key that is missing."""
    ring = tools_of(store._store).reader.bindings.ring  # noqa: SLF001  the blocking store has nothing of its own
    if ring is None:
        return "give --key-file FILE, or set HOLDFAST_KEY"
    given = ", ".join(map(repr, ring.ids))
    return f"give --key-file FILE or HOLDFAST_KEY with the missing key; the given one has only {given}"


def list_threads(
    store: "Store", statuses: Iterable[str] = (), labels: Mapping[str, str] | None = None, page: int = PAGE
) -> Iterator[ThreadInfo]:
    """Threads, the newest first, read page by page."""
    tools = opened_tools(store)
    reader, cursor = tools.reader, None
    choices = reader.bindings.label_choices(labels or {})
    while True:
        listing = run_blocking(
            tools.ports.perform(reader.backend.threads, reader.bindings.prefix, list(statuses), choices, cursor, page)
        )
        for thread, encoded in listing.heads:
            yield info_or_damage(reader, thread, encoded)
        cursor = listing.next
        if cursor is None:
            return


def read_thread(store: "Store", thread_id: str) -> ThreadInfo:
    """One thread; `NotFound` if there is none. A damaged one may be found only as it is listed."""
    tools = opened_tools(store)
    thread = tools.reader.key(thread_id)
    try:
        seen = run_blocking(tools.ports.perform(tools.reader.listed, thread))
        return listed_info(tools.reader, thread, seen.head)
    except UNREADABLE as error:
        return damaged_info(thread, error)
    except NotFound:
        for info in list_threads(store):
            if info.damaged is not None and info.thread_id == thread_id:
                return info
        raise


def presence_of(store: "Store", thread_id: str) -> Presence:
    """Whether there is a thread of this id. One whose head is damaged is listed."""
    tools = opened_tools(store)
    try:
        seen = run_blocking(tools.ports.perform(tools.reader.seen, tools.reader.key(thread_id)))
    except UNREADABLE:
        return "listed"
    if seen is None:
        return "none"
    return "deleted" if seen.head.deleted else "listed" if seen.head.listed_as else "empty"
