"""How much is stored, and how the disk is brought to rest between the turns of two contenders."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_SQLITE_MAGIC = b"SQLite format 3\0"
_LOG_SUFFIXES = ("-wal", "-shm", "-journal")


def stored_bytes(directory: Path) -> int:
    """The bytes of all files; a SQLite file counts the pages that it has in use, wherever they lie.

    A write-ahead log is a buffer of fixed size that its owner reuses, so it is not counted as stored data; pages that
    are so far in the log only, are.
    """
    files = [path for path in directory.rglob("*") if path.is_file() and not path.name.endswith(_LOG_SUFFIXES)]
    return sum(_file_bytes(path) for path in files)


def file_bytes(directory: Path) -> int:
    """The plain sum of the sizes of all files, logs and free pages included."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def settle() -> None:
    """Write out what the last contender left dirty, and collect its garbage, so that the next does not pay for it."""
    gc.collect()
    gc.freeze()
    os.sync()


@contextmanager
def scratch_directory(parent: Path | None) -> Iterator[Path]:
    """A directory that is gone afterwards, however large it became."""
    path = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _file_bytes(path: Path) -> int:
    if not _is_sqlite(path):
        return path.stat().st_size
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
