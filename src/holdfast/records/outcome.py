"""The outcome of a thread, and of a recovery."""

from typing import Any

import msgspec

from holdfast.records.request import Request
from holdfast.records.words import Status


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A thread's status, with its result if complete, its error if failed, its open requests if it waits."""

    status: Status
    thread_id: str
    result: Any = None
    error: str | None = None
    requests: tuple[Request, ...] = ()


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What `recover` did, by thread id: which threads completed, wait again, failed, or were skipped.

    `open`: the handler left them open. `skipped`: this program cannot resume them, or another process took them first.
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
