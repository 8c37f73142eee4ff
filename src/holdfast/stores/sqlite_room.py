"""Room ahead in SQLite's write-ahead log.

A log that grows with each commit makes the file system record a new length with each fsync, which takes twice as long.
So it is lengthened in steps, by zeros: SQLite takes them for no frame of its own, and writes over them.
"""

import os
import sqlite3
from contextlib import suppress

STEP_BYTES = 256 << 10
MOST_BYTES = 4 << 20


class LogRoom:
    """The log of one database, as the one writing connection of this process leaves it."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wal"
        self._file = -1
        self._size = 0

    def keep(self, connection: sqlite3.Connection) -> None:
        """After a commit: if it reached the end of the log, lengthen it by as much again, up to a step.

        It is all the same to SQLite, so that a failure is nobody's concern: the next commit is slower, that is all.
        """
        with suppress(OSError, sqlite3.Error):
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            size = self._end()
            if size != self._size:
                self._size = size
                if 0 < size < MOST_BYTES:
                    self._lengthen(connection)

    def _end(self) -> int:
        """How long the log is. `stat` would also ask for its times, and make each sync note the exact ones."""
        return os.lseek(self._file, 0, os.SEEK_END)

    def _lengthen(self, connection: sqlite3.Connection) -> None:
        """Under SQLite's own lock, since programs other than ours may write too: zeros never fall on their frames."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            size = self._end()
            self._size = size + os.pwrite(self._file, bytes(min(size, STEP_BYTES)), size)
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the log."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = -1, 0
