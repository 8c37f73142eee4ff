#!/usr/bin/env python3
"""Print the worked example of docs/storage-format.md: three rows, byte by byte, with the clock and the dice fixed."""

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import holdfast
from holdfast.codec import container, split
from holdfast.ports.awaitable import AsyncPorts
from holdfast.stores.sqlite import SQLiteBackend

HEAD = [
    *("format", "incarnation", "seq", "base", "checkpoint", "digest", "token", "owner", "expires_at", "status"),
    *("deleted", "created_at", "updated_at", "row_count", "stored_bytes", "marks", "labels", "summary", "data_key"),
    "mac",
]
HEADER = ["flags", "body_size", "meta", "since", "blobs", "blob_sizes", "parent"]
SCRIPT = ["paths", "cells", "sizes"]


class FixedPorts(AsyncPorts):
    """The same time and the same random bytes, each time."""

    @staticmethod
    def now() -> int:
        """Always the same moment."""
        return 1_800_000_000_000_000

    @staticmethod
    def entropy(count: int) -> bytes:
        """The bytes 00, 01, 02 and so on."""
        return bytes(range(count))


async def write(path: Path) -> None:
    """A thread of three rows: a keyframe, an append, and a keyframe with a blob."""
    backend = SQLiteBackend(str(path))
    async with holdfast.Store(backend, ports=FixedPorts(), compress=False) as store:
        await store.save("t1", {"goal": "tea", "notes": ["a", "b"]})
        await store.append("t1", "notes", "c")
        await store.save("t1", {"goal": "tea", "notes": ["a", "b", "c"], "page": "z" * 5000})


def fields(title: str, encoded: bytes, names: list[str], rest: dict[str, bytes] | None = None) -> Iterator[str]:
    """An array, one line for each of its items, and what follows it."""
    kind, count, start = container(encoded)
    end = len(encoded) - sum(map(len, (rest or {}).values()))
    if kind != "list":
        raise ValueError(f"{title} is not an array")
    yield f"{title}"
    yield f"  {encoded[:start].hex():<34} array of {count}"
    for name, item in zip(names, split("list", count, encoded[start:end]), strict=False):
        yield f"  {shortened(item):<34} {name}"
    for name, item in (rest or {}).items():
        yield f"  {item.hex():<34} {name}"


def short(header: bytes) -> Iterator[str]:
    """The short form of a header."""
    yield "header"
    for start, end, name in ((0, 1, "flags"), (1, 3, "body_size"), (3, 10, "created_at"), (10, 14, "CRC-32")):
        yield f"  {header[start:end].hex():<34} {name}"


def shortened(item: bytes) -> str:
    """All of it, on a line of its own if it is long."""
    text = item.hex()
    return text if len(text) <= 34 else f"{text}\n{'':<36}"


def report(database: sqlite3.Connection) -> Iterator[str]:
    """The example, line by line."""
    number, thread = database.execute("SELECT number, thread FROM threads").fetchone()
    *rows, (head_id, slot, _, head, _) = database.execute("SELECT id, back, digest, header, body FROM rows ORDER BY id")
    yield f"thread key  {thread.hex()}"
    yield f"number      {number}"
    yield ""
    for row_id, back, digest, header, body in rows:
        seq = row_id - (number << 28)
        yield f"row {seq}: id {row_id}, back {back}"
        yield f"place       {seq << 24 | back:016x}"
        yield f"digest      {digest.hex()}"
        yield from short(header) if seq == 2 else fields("header", header, HEADER, {"CRC-32": header[-4:]})
        yield f"body\n  {body[:1].hex():<34} tag"
        if seq == 2:
            yield f"  {body[1:2].hex():<34} index\n  {body[2:].hex():<34} item"
        else:
            yield from list(fields("body", body[1:], SCRIPT))[1:]
        yield ""
    for blob, data in database.execute("SELECT blob, data FROM blobs"):
        yield f"blob {blob.hex()}: {len(data)} bytes, {data[:8].hex()}..."
    yield ""
    yield from fields(f"head: id {head_id}, back {slot}", head, HEAD, {"digest": head[-16:]})


def main() -> None:
    """Print it."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "example.db")
        asyncio.run(write(path))
        database = sqlite3.connect(path)
        lines = "\n".join(report(database)).splitlines()
        database.close()
    sys.stdout.write("\n".join(line.rstrip() for line in lines) + "\n")


if __name__ == "__main__":
    main()
