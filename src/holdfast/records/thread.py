"""A thread as listings and `store.thread` show it, and the pages of listings."""

from collections.abc import Iterator
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from holdfast.records.words import Status

T = TypeVar("T")


class Lease(msgspec.Struct, frozen=True):
    """A claim on a thread: its owner, its token, and when it expires."""

    owner: str
    token: int
    expires_at: datetime


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A thread without its content. `seq` is its newest checkpoint, `row_count` and `stored_bytes` its size.

    If its head cannot be read, only `thread_id` and `damaged` are known: `status` is None, the times are in 1970, and
    all other fields are empty or 0.
    """

    thread_id: str
    status: Status | None
    seq: int
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    row_count: int
    stored_bytes: int
    lease: Lease | None = None
    error: str | None = None
    pinned: tuple[int, ...] = ()
    wake_at: datetime | None = None
    """When a thread that sleeps, or waits for an answer with a deadline, resumes by itself."""

    damaged: str | None = None
    """Why the thread's head cannot be read; None if it can. `delete` deletes such a thread."""

    queue: str | None = None
    """The queue of a thread that a durable function runs, or that was submitted."""

    priority: int = 0
    function: str | None = None
    """The name of the function that runs it, as the thread records it."""

    version: int = 0
    """The version of that function that began the thread; 0 if none has."""

    sealed_by: str | None = None
    """The id of the missing key that `labels` and `error` are encrypted under; None if no key is missing."""

    @property
    def owner(self) -> str | None:
        """The owner of the lease, if a run holds the thread."""
        return self.lease.owner if self.lease else None


class Page(Generic[T]):
    """A page of a listing: its items, and `next`, an opaque cursor for the next page, or None on the last one.

    It holds no lock, cursor or connection.
    """

    __slots__ = ("items", "next")

    def __init__(self, items: list[T], next: str | None = None) -> None:  # noqa: A002  the public name of the field
        self.items = items
        self.next = next

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.items!r}, next={self.next!r})"
