"""Check that all pages of a SQLite database are on disk: in its file, or in the write-ahead log next to it.

SQLite checks the length of its file only if there is no log. With a log it reads missing pages as zeros, and writes
those zeros at its next checkpoint. The database itself is never opened here: closing it would drop the locks that
SQLite has on it in this process.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO

LOG_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
LOCK_BYTE = 1 << 30
"""SQLite never writes the page of this byte: it takes its locks there."""


def size_of(path: str) -> int:
    """Return the length of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def has_log(path: str) -> bool:
    """True if there may be pages in the write-ahead log."""
    return size_of(f"{path}-wal") > LOG_HEADER_BYTES


def is_cut_short(path: str, page_count: int, page_bytes: int) -> bool:
    """True if a page that SQLite counts is neither in the file nor in the log. Call it while there is no writer.

    After a crash the file may be short without loss: the log is emptied only when the file is complete.
    """
    size = size_of(path)
    first = size // page_bytes + 1
    if first > max(page_count, bool(size)):
        return False
    logged = set(logged_pages(path))
    missing = range(first, max(page_count, first) + 1)
    return any(page not in logged for page in missing if page != LOCK_BYTE // page_bytes + 1)


def logged_pages(path: str) -> Iterator[int]:
    """Yield the pages in the write-ahead log, including those of an interrupted write."""
    if has_log(path):
        with open(f"{path}-wal", "rb") as log:
            yield from _frames(log)


def _frames(log: BinaryIO) -> Iterator[int]:
    """Yield the page of each frame, up to the first frame left over from an earlier use of the log."""
    header = log.read(LOG_HEADER_BYTES)
    page_bytes, salts = int.from_bytes(header[8:12]), header[16:24]
    while len(frame := log.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES and frame[8:16] == salts:
        yield int.from_bytes(frame[:4])
        log.seek(page_bytes, os.SEEK_CUR)
