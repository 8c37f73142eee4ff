"""Whether all pages of a SQLite database are on disk: in its file, or in the write-ahead log beside it.

SQLite looks at the length of its file when there is no log, and not at all when there is one: it takes what is missing
for zeros, and fills the file up with them at its next checkpoint. The database itself is never opened here: closing it
would drop the locks that SQLite has on it in this process.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO

LOG_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
LOCK_BYTE = 1 << 30
"""The page of this byte is never written: SQLite's locks lie on it."""


def size_of(path: str) -> int:
    """How long a file is; 0 if it is not there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def has_log(path: str) -> bool:
    """True if there may be pages in the write-ahead log."""
    return size_of(f"{path}-wal") > LOG_HEADER_BYTES


def is_cut_short(path: str, page_count: int, page_bytes: int) -> bool:
    """True if one of the pages that SQLite counts is neither in the file nor in the log. Call it while nobody writes.

    Right after a crash the file may be short without loss, if the log has the rest: a log is emptied only when the file
    is whole.
    """
    size = size_of(path)
    first = size // page_bytes + 1
    if first > max(page_count, bool(size)):
        return False
    logged = set(logged_pages(path))
    missing = range(first, max(page_count, first) + 1)
    return any(page not in logged for page in missing if page != LOCK_BYTE // page_bytes + 1)


def logged_pages(path: str) -> Iterator[int]:
    """The pages in the write-ahead log, and perhaps some more, of a write that was cut off."""
    if has_log(path):
        with open(f"{path}-wal", "rb") as log:
            yield from _frames(log)


def _frames(log: BinaryIO) -> Iterator[int]:
    """The page of each frame, up to the first that an earlier use of the log left behind."""
    header = log.read(LOG_HEADER_BYTES)
    page_bytes, salts = int.from_bytes(header[8:12]), header[16:24]
    while len(frame := log.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES and frame[8:16] == salts:
        yield int.from_bytes(frame[:4])
        log.seek(page_bytes, os.SEEK_CUR)
