"""Listings: pages of checkpoints and of threads. Blocking; every item is checked against its own digest."""

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.codec.keys import KeyRing
from holdfast.history.meta import checkpoint_info
from holdfast.records.arguments import mapping_or_none, text_or_none, whole_number
from holdfast.records.checkpoint import CheckpointInfo
from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    HoldfastWarning,
    IncompatibleCheckpoint,
    KeyUnavailable,
    LimitExceeded,
)
from holdfast.records.head import Head, decode_head
from holdfast.records.identity import shown_id_of, thread_id_of
from holdfast.records.reports import Stats
from holdfast.records.thread import Lease, Page, ThreadInfo
from holdfast.records.times import from_microseconds
from holdfast.records.words import Status
from holdfast.stores.backend import DAMAGED, all_heads, counts, readable_head
from holdfast.stores.bindings import Summary
from holdfast.stores.reader import Reader

T = TypeVar("T")

UNREADABLE = (Corrupt, IncompatibleCheckpoint)
"""The errors of a head that cannot be read."""
CHUNK = 256
SAMPLE = 16
"""The number of threads to look at before an empty answer: a missing key may be the reason."""
MAX_LIMIT = 10_000


def thread_info(reader: Reader, thread: bytes, head: Head) -> ThreadInfo:
    """Describe a thread; `KeyUnavailable` if the ring lacks its key."""
    return _described(thread, head, reader.summary(thread, head))


def listed_info(reader: Reader, thread: bytes, head: Head) -> ThreadInfo:
    """Describe a thread in a listing: without its labels and error if the ring lacks its key."""
    try:
        return thread_info(reader, thread, head)
    except KeyUnavailable:
        return _described(thread, head, Summary(), KeyRing.wrapped_by(head.data_key))


def _described(thread: bytes, head: Head, summary: Summary, sealed_by: str | None = None) -> ThreadInfo:
    """Describe a thread by its head and the unsealed summary."""
    lease = Lease(head.owner, head.token, from_microseconds(head.expires_at)) if head.owner else None
    return ThreadInfo(
        thread_id=thread_id_of(thread),
        status=Status(head.status),
        seq=head.checkpoint,
        labels=dict(summary.labels),
        created_at=from_microseconds(head.created_at),
        updated_at=from_microseconds(head.updated_at),
        row_count=head.row_count,
        stored_bytes=head.stored_bytes,
        lease=lease,
        error=summary.error,
        pinned=head.marks.pinned,
        wake_at=from_microseconds(head.expires_at) if head.expires_at and not head.owner else None,
        queue=head.queue or None,
        priority=head.priority,
        function=summary.function or None,
        version=summary.version,
        sealed_by=sealed_by,
    )


def damaged_info(thread: bytes, why: Exception) -> ThreadInfo:
    """Describe a thread whose head cannot be read."""
    unknown = from_microseconds(0)
    return ThreadInfo(
        thread_id=shown_id_of(thread),
        status=None,
        seq=0,
        labels={},
        created_at=unknown,
        updated_at=unknown,
        row_count=0,
        stored_bytes=0,
        damaged=str(why),
    )


def info_or_damage(reader: Reader, thread: bytes, encoded: bytes) -> ThreadInfo:
    """Describe a thread in a listing, given its head as it is stored."""
    try:
        return listed_info(reader, thread, decode_head(thread, encoded))
    except UNREADABLE as error:
        return damaged_info(thread, error)


def warn_of_sealed(what: str, info: ThreadInfo) -> None:
    """Warn that a result lacks threads whose key is missing."""
    warnings.warn(
        f"{what}: thread {info.thread_id!r}, and perhaps others, could not be searched, since the key"
        f" {info.sealed_by!r} is missing; open the store with that key",
        HoldfastWarning,
        stacklevel=2,
    )


def warn_of_damaged(what: str, thread_id: str, why: object) -> None:
    """Warn that a result lacks a thread that cannot be read."""
    hint = "" if isinstance(why, LimitExceeded) else "; `holdfast verify` lists all damage"
    warnings.warn(
        f"{what}: thread {thread_id!r}, and perhaps others, cannot be read: {why}{hint}", HoldfastWarning, stacklevel=2
    )


def check_limit(limit: int) -> int:
    """Check the size of a page."""
    return whole_number(limit, "limit", 1, MAX_LIMIT)


def _before(cursor: str | int | None) -> int | None:
    if cursor is None:
        return None
    try:
        return int(cursor) if isinstance(cursor, str) else whole_number(cursor, "cursor")
    except ValueError:
        raise ConfigurationError(f"`cursor` must be one that history() returned, got {cursor!r}") from None


class AsyncPage(Page[T]):
    """A page of the awaitable API, which can fetch the next one."""

    __slots__ = ("_fetch",)

    def __init__(self, items: list[T], next: str | None, fetch: Callable[[str], Awaitable["AsyncPage[T]"]]) -> None:  # noqa: A002
        super().__init__(items, next)
        self._fetch = fetch

    async def next_page(self) -> "AsyncPage[T] | None":
        """Return the page after this one, None after the last."""
        return None if self.next is None else await self._fetch(self.next)


class Listings:
    """The listings of one store handle."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def info(self, thread: bytes) -> ThreadInfo:
        """Describe one thread; `NotFound` if it does not exist."""
        return thread_info(self._reader, thread, self._reader.listed(thread).head)

    def history(
        self, thread: bytes, cursor: str | int | None, limit: int, where: Mapping[str, Any] | None, journal: bool
    ) -> tuple[list[CheckpointInfo], str | None]:
        """List matching checkpoints below the cursor, newest first; also return the cursor for the next page."""
        before, where = _before(cursor), mapping_or_none(where, "where")
        # A row may cost a request: read no more than a page is likely to need.
        chunk = min(CHUNK, check_limit(limit) + 1)
        found: list[CheckpointInfo] = []
        while True:
            seen, headers = self._reader.survey(thread, before, chunk)
            head, binding = seen.head, self._reader.binding(thread, seen.head)
            for header in headers:
                if not head.marks.shows(header.seq) or not (journal or header.is_checkpoint):
                    continue
                info = checkpoint_info(binding, header, pinned=header.seq in head.marks.pinned)
                if where is None or _matches(info.metadata, where):
                    if len(found) == limit:
                        return found, str(found[-1].seq)
                    found.append(info)
            if len(headers) < chunk:
                return found, None
            before = headers[-1].seq

    def threads(
        self, statuses: Sequence[str], labels: Mapping[str, str], cursor: str | None, limit: int
    ) -> tuple[list[ThreadInfo], str | None]:
        """List a page of threads; also return the cursor for the next page."""
        bindings = self._reader.bindings
        choices = bindings.label_choices(labels)
        try:
            place = text_or_none(cursor, "cursor")
            listing = self._reader.backend.threads(bindings.prefix, statuses, choices, place, check_limit(limit))
        except ValueError as error:
            raise ConfigurationError(f"`cursor` must be one that threads() returned, got {cursor!r}") from error
        if labels and cursor is None and not listing.heads:
            self._warn_of_sealed("no thread with these labels was found")
        return [info_or_damage(self._reader, thread, head) for thread, head in listing.heads], listing.next

    def _warn_of_sealed(self, what: str) -> None:
        """Warn if the key of one of the newest threads is missing: then it was not searched."""
        newest = self._reader.backend.threads(self._reader.bindings.prefix, (), (), None, SAMPLE)
        infos = (info_or_damage(self._reader, *entry) for entry in newest.heads)
        if sealed := next((info for info in infos if info.sealed_by is not None), None):
            warn_of_sealed(what, sealed)

    def all_heads(self) -> list[tuple[bytes, bytes]]:
        """Return every listed thread of this namespace, with its head."""
        return list(all_heads(self._reader.backend, self._reader.bindings.prefix))

    def counts(self) -> dict[str, int]:
        """Count the threads of this namespace by status, and those that are `damaged`."""
        found = counts(self._reader.backend, self._reader.bindings.prefix)
        known = {status.value: found.pop(status.value) for status in Status if status.value in found}
        return known | ({DAMAGED: sum(found.values())} if found else {})

    def _readable(self, thread: bytes, encoded: bytes) -> Head | None:
        """Return the head, or None if it is damaged or forged."""
        head = readable_head(thread, encoded)
        try:
            return head and self._reader.authentic(thread, head)
        except UNREADABLE:
            return None

    def stats(self) -> Stats:
        """Add up the heads of all threads."""
        statuses: dict[str, int] = {}
        rows = size = 0
        for thread, encoded in self.all_heads():
            head = self._readable(thread, encoded)
            word = DAMAGED if head is None else head.status
            statuses[word] = statuses.get(word, 0) + 1
            if head is not None:
                rows, size = rows + head.row_count, size + head.stored_bytes
        return Stats(threads=sum(statuses.values()), rows=rows, bytes=size, statuses=statuses)


def _matches(metadata: dict[str, Any], where: Mapping[str, Any]) -> bool:
    return all(key in metadata and metadata[key] == value for key, value in where.items())
