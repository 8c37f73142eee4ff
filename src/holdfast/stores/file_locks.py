"""Locks on files between processes: flock with a bounded wait, so that no other process can block a store forever."""

import fcntl
import os
from contextlib import suppress
from time import monotonic, sleep

from holdfast.records.errors import StoreUnavailable

LOCK_SECONDS = 30.0
"""As long as SQLite waits for its own locks. A writer of ours holds the lock for one commit."""
SHORTEST_PAUSE = 0.0001
LONGEST_PAUSE = 0.002
"""Short enough that a writer that has waited long still finds the moment at which another releases the lock."""
PAUSE_SHARE = 0.05
"""The next pause as a share of the time waited: writers that alternate leave the lock free 1/20 of a commit."""

_LOCKS = "/proc/locks"


def lock_file(fd: int, path: str, kind: int = fcntl.LOCK_EX) -> None:
    """Lock an open file; raise `StoreUnavailable` if another process holds the lock for `LOCK_SECONDS`.

    flock has no timeout: only a signal would end its wait.
    """
    started_at = monotonic()
    while not try_to_lock(fd, kind):
        waited = monotonic() - started_at
        if waited >= LOCK_SECONDS:
            raise StoreUnavailable(
                f"{path} was locked by {_holder(fd)} for {LOCK_SECONDS:g} s, and nothing can be written meanwhile;"
                " stop that process or let it finish, then retry"
            )
        sleep(min(max(waited * PAUSE_SHARE, SHORTEST_PAUSE), LONGEST_PAUSE))


def try_to_lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file; False if another process holds the lock."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Release the lock."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def _holder(fd: int) -> str:
    """Return the process that holds the lock, where Linux reports it."""
    status = os.fstat(fd)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError), open(_LOCKS) as locks:
        for line in locks:
            _, kind, *_, pid, where, _, _ = line.split()
            if kind == "FLOCK" and where == place:
                return f"process {pid}{_command(pid)}"
    return "another process"


def _command(pid: str) -> str:
    with suppress(OSError), open(f"/proc/{pid}/comm", errors="replace") as file:
        return f" ({file.read().strip()})"
    return ""
