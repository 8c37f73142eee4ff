"""A thread as a whole: what listings and `store.thread` show."""

from datetime import datetime

import msgspec

from holdfast.records.words import Status


class Lease(msgspec.Struct, frozen=True):
    """A claim on a thread: who holds it, under which token, until when."""

    owner: str
    token: int
    expires_at: datetime


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A thread's standing. `seq` is its newest checkpoint, `row_count` and `stored_bytes` what it occupies.

    Of a thread whose head cannot be read, only `thread_id` and `damaged` are known: `status` is None, the times are
    those of 1970, and all else is empty or 0.
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
    """When a thread that sleeps, or waits for an answer with a deadline, may go on by itself."""

    damaged: str | None = None
    """Why the thread's head cannot be read; None if it can. `delete` removes such a thread."""

    sealed_by: str | None = None
    """The id of the key that the store was not opened with, and that `labels` and `error` need; None if it has it."""

    @property
    def owner(self) -> str | None:
        """Who holds the thread, if a run does."""
        return self.lease.owner if self.lease else None
