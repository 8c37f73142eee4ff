"""Small file stores, and ways to damage and watch them."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.records.errors import (
    Corrupt,
)
from holdfast.records.head import LOST_HEAD, Head, encode_head
from holdfast.records.identity import namespace_prefix, thread_key
from holdfast.records.rows import KEEP_ALL, Drop, Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Listing
from holdfast.stores.file import FileBackend
from holdfast.stores.file.frames import DIGEST_BYTES, FOOTER_BYTES
from holdfast.stores.file.listing import placeholder_key

SPACE = namespace_prefix("")
THREAD = thread_key(SPACE, "a")
OTHER = thread_key(SPACE, "b")


def head(seq: int, thread: bytes = THREAD, status: str = "working", **fields: Any) -> bytes:
    return encode_head(thread, Head(seq=seq, status=status, **fields))


def row(seq: int, body: bytes | None = None, base: int = 1) -> Row:
    return Row(seq, base, b"d%d" % seq, b"header %d" % seq, b"body %d" % seq if body is None else body)


def step(seq: int, thread: bytes = THREAD, drop: Drop = KEEP_ALL, **fields: Any) -> Swap:
    """The swap that adds row `seq` to a thread that has the rows before it."""
    expected = head(seq - 1, thread) if seq > 1 else b""
    return Swap(thread, expected, head(seq, thread), Head(), rows=(row(seq),), drop=drop, **fields)


def opened(path: Path, level: Durability = Durability.PROCESS) -> FileBackend:
    backend = FileBackend(str(path), level)
    backend.open()
    return backend


def lent(path: Path, level: Durability = Durability.PROCESS) -> Iterator[FileBackend]:
    """For fixtures: a store that is closed in the end."""
    backend = opened(path, level)
    yield backend
    backend.close()


def log_of(root: Path, thread: bytes = THREAD) -> Path:
    name = sha256(thread).hexdigest()
    return root / "threads" / name[:2] / f"{name}.log"


def names_in(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def open_files(directory: Path) -> int:
    """How many files of that directory this process has open; others come and go with what earlier tests left."""
    found = 0
    for name in names_in(Path("/proc/self/fd")):
        with suppress(OSError):
            found += str(Path(f"/proc/self/fd/{name}").readlink()).startswith(str(directory))
    return found


def frames_of(path: Path) -> list[bytes]:
    """The frames of a sound log, found from its end by their lengths."""
    data, frames = path.read_bytes(), list[bytes]()
    while data:
        length = int.from_bytes(data[-FOOTER_BYTES:-DIGEST_BYTES], "little")
        frames.insert(0, data[-length:])
        data = data[:-length]
    return frames


def rewrite(backend: FileBackend, path: Path, data: bytes) -> None:
    """Put other bytes in a log's place, and let the backend forget what it has read."""
    backend._pool.drop()
    path.write_bytes(data)


def everything(backend: FileBackend, thread: bytes = THREAD) -> list[object]:
    """All that can be read of a thread, each as a value or as `Corrupt`."""
    reads: list[Callable[[], object]] = [
        lambda: backend.heads([thread]),
        lambda: backend.rows(thread, 3),
        lambda: backend.blobs(thread, [b"one", b"two"]),
        lambda: backend.index(thread, None, None),
        lambda: backend.inbox(thread),
        lambda: _listed(backend, thread),
    ]
    return [_outcome(read) for read in reads]


def _listed(backend: FileBackend, thread: bytes) -> Listing:
    """All threads; `Corrupt` if the listing names this one as lost, by its key or by its file."""
    listing = backend.threads(b"", (), (), None, 10)
    names = (thread, placeholder_key(sha256(thread).digest(), b""))
    if any((name, LOST_HEAD) in listing.heads for name in names):
        raise Corrupt("its head was lost", record="listing")
    return listing


def _outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except Corrupt as error:
        return Corrupt if error.record else error


def fill(backend: FileBackend) -> None:
    """A small log with a bit of everything."""
    assert backend.post(THREAD, "early", b"first message")
    assert backend.swap([step(1, blobs={b"one": b"blob one"})]) == [True]
    assert backend.swap([step(2, blobs={b"two": b"blob two"}, consumed=("early",))]) == [True]
    assert backend.post(THREAD, "late", b"second message")
    assert backend.swap([step(3)]) == [True]


def fail(error: BaseException) -> Callable[..., Any]:
    def failing(*_: object, **__: object) -> None:
        raise error

    return failing


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls that write or sync from now on, each with the name of its file."""
    calls: list[tuple[str, str]] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def call(fd: int, *rest: Any) -> Any:
            calls.append((name, Path(f"/proc/self/fd/{fd}").readlink().name))
            return real(fd, *rest)

        monkeypatch.setattr(os, name, call)

    for name in ("pwrite", "fsync", "fdatasync", "ftruncate"):
        record(name)
    return calls
