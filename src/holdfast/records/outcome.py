"""How a thread stands, and what a recovery did."""

from typing import Any

import msgspec

from holdfast.records.request import Request
from holdfast.records.words import Status


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where a thread stands: its result if it is complete, its error if it failed, its open requests if it waits."""

    status: Status
    thread_id: str
    result: Any = None
    error: str | None = None
    requests: tuple[Request, ...] = ()


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` did, by thread id: which came to an end, which wait again, which failed, and which it left alone.

    `open`: the handler left them so. `skipped`: nobody here knows how to go on with them, or another was faster.
    `damaged`: their heads cannot be read, or the store was opened without their key; `verify` says why.
    """

    completed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    suspended: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def resumed(self) -> tuple[str, ...]:
        """The threads that were resumed."""
        return (*self.completed, *self.open, *self.suspended, *self.failed)
