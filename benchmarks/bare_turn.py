"""The least that a turn's row can cost in Python: one function that makes its bytes and commits them, and nothing else.

No run or lease to look after, no limits, no events, no other threads, no errors handled, nothing kept to restore or to
resume from. What a turn of a session costs beyond this is what all of that costs.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import ormsgpack

from benchmarks.contender import PROCESS_CRASH, Contender

_SCHEMA = """
CREATE TABLE rows (id INTEGER PRIMARY KEY, back INTEGER NOT NULL, digest BLOB NOT NULL, header BLOB NOT NULL,
                   body BLOB NOT NULL);
CREATE VIEW swaps AS
    SELECT x'' AS expected, x'' AS head, 0 AS id, 0 AS back, x'' AS digest, x'' AS header, x'' AS body;
CREATE TRIGGER swap_head INSTEAD OF INSERT ON swaps BEGIN
    UPDATE rows SET back = NEW.back, digest = NEW.digest, header = NEW.header, body = NEW.body
     WHERE id = NEW.id AND header = NEW.expected;
    SELECT RAISE (ABORT, 'refused') WHERE changes () = 0;
    INSERT INTO rows VALUES (NEW.id + 1, NEW.id + 1, x'', NEW.head, x'');
END;
"""
_PRAGMAS = (
    "auto_vacuum = INCREMENTAL",
    "secure_delete = ON",
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "wal_autocheckpoint = 0",
)
_IDENTITY = bytes(40)
_CHECKPOINT_COMMITS = 250
_encode = msgspec.msgpack.Encoder().encode


class BareTurn(Contender):
    """The row of a turn with a key, usage and a price, and the head after it, as Holdfast stores them."""

    family = "raw"
    name = "the same bytes by a bare function"
    durability = PROCESS_CRASH

    def __init__(self, results: list[Any]) -> None:
        self.results = results

    def setup(self, directory: Path) -> None:
        self.directory = directory
        self.gate = os.open(directory / "bare.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.connection = sqlite3.connect(directory / "bare.db", isolation_level=None)
        for pragma in _PRAGMAS:
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.executescript(_SCHEMA)
        self.head, self.digest, self.stored_bytes, self.done = b"none", bytes(8), 0, dict[str, bytes]()
        self.connection.execute("INSERT INTO rows VALUES (1, 1, x'', ?, x'')", (self.head,))
        self.cursor = self.connection.cursor()

    def step(self, index: int) -> None:
        key, seq, started_at = f"turn-{index}", index + 1, time.time_ns() // 1000
        if key in self.done:
            return
        value = ormsgpack.packb(self.results[index % len(self.results)])
        now, usage = time.time_ns() // 1000, (2000, 900, 0, 0, 0)
        cost = round((usage[0] * 3 + usage[1] * 15) * 1e6)
        turn = ("turn", key, b"", value, "writer", "draft", "model-a", usage, cost, now, now - started_at)
        body = b"\x0f\0" + _encode((*turn, "", "", (), False))
        meta = b"\x0f" + _encode((now, 1, "working", "event", None, _encode({"turn": key}), ""))
        header, place = _encode((0x12, len(body), meta)), (seq << 24 | 1).to_bytes(8, "big")
        header += crc32(header, crc32(place)).to_bytes(4, "big")
        digest = sha256(b"".join((_IDENTITY, self.digest, place, header, body))).digest()[:8]
        self.stored_bytes += len(header) + len(body)
        head = self._head(seq, digest, now)
        columns = map(bytearray, (digest, header, body))
        fcntl.flock(self.gate, fcntl.LOCK_EX)
        swap = (bytearray(self.head), bytearray(head), seq, 1, *columns)
        self.cursor.execute("INSERT INTO swaps VALUES (?, ?, ?, ?, ?, ?, ?)", swap)
        if seq % _CHECKPOINT_COMMITS == 0:
            self.cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        fcntl.flock(self.gate, fcntl.LOCK_UN)
        self.head, self.digest, self.done[key] = head, digest, value

    def _head(self, seq: int, digest: bytes, now: int) -> bytes:
        owner, times = "vm:2273:232962:abf458d7:4026531836:067753f6", (now + 30_000_000, "working", False, 0, now)
        counts = (seq, self.stored_bytes, (0, (), (), ()), (), b"", b"")
        head = _encode((1, _IDENTITY[:16], seq, 1, seq, digest, 1, owner, *times, *counts))
        return head + sha256(_IDENTITY + head).digest()[:16]

    def finish(self) -> None:
        self.connection.close()
        os.close(self.gate)
