"""Room ahead in SQLite's write-ahead log.

A log that grows with each commit makes the file system record a new length with each fsync, which takes twice as long.
So it is lengthened in steps, by zeros: SQLite takes them for no frame of its own, and writes over them.
"""

import os
import sqlite3
from contextlib import suppress

from holdfast.stores.private_files import open_regular
from holdfast.stores.sqlite_pages import FRAME_HEADER_BYTES, LOG_HEADER_BYTES

STEP_BYTES = 256 << 10
MOST_BYTES = 4 << 20


class LogRoom:
    """The log of one database, as the one writing connection of this process leaves it."""

    def __init__(self, path: str, page_bytes: int) -> None:
        self._path = f"{path}-wal"
        self._frame_bytes = FRAME_HEADER_BYTES + page_bytes
        self._file = -1

    def keep(self, connection: sqlite3.Connection) -> None:
        """After a commit: if it reached the end of the log, lengthen it.

        It is all the same to SQLite, so that a failure is nobody's concern: the next commit is slower, that is all.
        """
        with suppress(OSError, sqlite3.Error):
            if self._file < 0:
                self._file = open_regular(self._path, os.O_RDWR)
            if self._is_full(self._end()):
                self._lengthen(connection)

    def _end(self) -> int:
        """How long the log is. `stat` would also ask for its times, and make each sync note the exact ones."""
        return os.lseek(self._file, 0, os.SEEK_END)

    def _is_full(self, end: int) -> bool:
        """True if the log ends with a frame: whoever lengthened it left an end that no frame has."""
        return end < MOST_BYTES and end % self._frame_bytes == LOG_HEADER_BYTES

    def _lengthen(self, connection: sqlite3.Connection) -> None:
        """By as much again, up to a step; under SQLite's own lock, since programs other than ours may write too.

        So zeros never fall on their frames. While one of them has the lock, the log is left as it is.
        """
        (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
        try:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("BEGIN IMMEDIATE")
            end = self._end()
            if self._is_full(end):
                os.pwrite(self._file, bytes(min(end, STEP_BYTES)), end)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute(f"PRAGMA busy_timeout = {patience}")

    def close(self) -> None:
        """Let go of the log."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
