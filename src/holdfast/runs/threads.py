"""What a runtime does to a thread that it has not claimed: find its store, claim it, delete it if it is over."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from holdfast.ports import Ports
from holdfast.records.arguments import check_labels
from holdfast.records.errors import ConfigurationError, Corrupt, IncompatibleCheckpoint, KeyUnavailable
from holdfast.records.head import Head
from holdfast.records.words import Status
from holdfast.runs.api import default_store
from holdfast.runs.block import RunBlock, Terms
from holdfast.runs.store import Store, tools_of
from holdfast.stores.maintenance import Maintenance

UNREADABLE = (Corrupt, IncompatibleCheckpoint, KeyUnavailable)
"""What says that a thread cannot be read."""


def claim(store: Store, thread_id: str, terms: Terms, labels: Mapping[str, str] | None = None) -> RunBlock:
    """Claim a thread for a block, which gives the run that a `Driver` is made of."""
    return RunBlock(tools_of(store), thread_id, check_labels(labels), terms)


def checked_store(store: Any) -> Store:
    """Return the store that a user gave; `ConfigurationError` if it is none."""
    if not isinstance(store, Store):
        raise ConfigurationError(f"store must be a store of holdfast, as holdfast.open returns it, got {store!r}")
    return store


def store_finder(store: Any) -> Callable[[], Store]:
    """Return what finds the store to work on: the given one, or the default store as it is when it is asked for."""
    if store is None:
        return default_store
    found = checked_store(store)
    return lambda: found


async def every(page: Any) -> AsyncIterator[Any]:
    """The items of a listing: those of this page, and of all that follow."""
    while page is not None:
        for item in page:
            yield item
        page = await page.next_page()


def fresh_id(store: Store, prefix: str) -> str:
    """An id for a new thread."""
    return f"{prefix}-{tools_of(store).ports.entropy(8).hex()}"


def ports_of(store: Store) -> Ports:
    """The ports of a store: its clock, and the world that it calls functions in."""
    return tools_of(store).ports


async def was_deleted(store: Store, thread_id: str) -> bool:
    """True if a thread of this id was deleted, and not revived."""
    tools = tools_of(store)
    await tools.open()
    seen = await tools.ports.perform(tools.reader.seen, tools.reader.key(thread_id))
    return seen is not None and seen.head.deleted


async def delete_ended(store: Store, thread_id: str, *statuses: Status) -> None:
    """Delete a thread that ended with one of these statuses, unless another process has started it again."""
    await _delete_if(store, thread_id, lambda head: head.status in statuses)


async def delete_expired(store: Store, thread_id: str, ttl: int) -> bool:
    """Delete a thread that nothing was written to for `ttl` microseconds, and that no process which may live holds.

    True if it was deleted. False also if another process was faster, and has perhaps started it again.
    """
    ports, now = ports_of(store), ports_of(store).now()

    def is_expired(head: Head) -> bool:
        is_held = head.held(now) and not ports.is_certainly_dead(head.owner)
        return not is_held and now - head.updated_at > ttl

    return await _delete_if(store, thread_id, is_expired)


async def _delete_if(store: Store, thread_id: str, condition: Callable[[Head], bool]) -> bool:
    """Delete a thread if its head still meets a condition at that moment. True if it was deleted."""
    tools = tools_of(store)
    await tools.open()
    delete_if = Maintenance(tools.reader).delete_if
    is_deleted = await tools.ports.perform(delete_if, tools.reader.key(thread_id), condition, tools.ports.now())
    if is_deleted:
        await tools.events.emit("deleted", thread_id)
    return is_deleted
