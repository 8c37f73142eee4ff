"""The outcome of a thread, of a recovery, and of a check."""

from typing import Any, Literal

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


class ThreadCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How an open thread fits the code of a program, as `check` found it.

    `fits`: the code asks for everything that the thread recorded. `differs`: it does not, and `reason` says what to do.
    `unserved`: the program does not declare the thread's function, or not the version that began it.
    """

    thread_id: str
    verdict: Literal["fits", "differs", "unserved"]
    function: str
    version: int = 0
    reason: str = ""
