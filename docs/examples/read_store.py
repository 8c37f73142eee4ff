#!/usr/bin/env python3
"""Read an unencrypted SQLite store without holdfast: the proof of docs/storage-format.md.

    python read_store.py agents.db                 the threads
    python read_store.py agents.db THREAD [SEQ]    the state of a thread, as it is or as it was at a checkpoint
    python read_store.py agents.db THREAD journal  what its runs did, asked and received

Every digest on the way is checked. Beside the standard library only zstd is needed, where something is compressed.
"""

import sqlite3
import struct
import sys
from hashlib import sha256
from pathlib import Path
from pprint import pformat
from typing import Any, NamedTuple
from zlib import crc32

NUMBERS = dict(zip(range(0xCA, 0xD4), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True))
SIZES = dict.fromkeys((0xC4, 0xC7, 0xD9), ">B") | dict.fromkeys((0xC5, 0xC8, 0xDA, 0xDC, 0xDE), ">H")
SIZES |= dict.fromkeys((0xC6, 0xC9, 0xDB, 0xDD, 0xDF), ">I")
SEQUENCES = {1: tuple, 2: set, 3: frozenset, 6: list}
KINDS = {1: (0x90, b"\xdd"), 2: (0x80, b"\xdf")}  # list and map: the short header's first byte, and the long one's
LEFT_OUT: tuple[Any, ...] = (0, b"", [], b"")  # since, blobs, their sizes, parent: where a row's header ends early
LAST = (1 << 28) - 1  # the largest seq there can be
ENTRIES = {"start": " e", "done": "   e", "step": " e", "ask": "   e  e", "answer": "  e", "end": " e", "turn": "  e"}
ENTRIES |= {"note": " e"}
"""Which items of a journal's entries are encodings, by the entry's kind."""
HIDDEN = "is deleted, pruned, or never was"


class Ext(NamedTuple):
    """An extension that is not opened here: a date, a Decimal, an object of the program's own."""

    code: int
    data: bytes


class Unpacker:
    """A msgpack decoder that knows Holdfast's containers."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def _take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def value(self) -> Any:
        """The next value."""
        first = self._take(1)[0]
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first in {0xC0, 0xC2, 0xC3}:
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in NUMBERS:
            return self._number(NUMBERS[first])
        if 0xD4 <= first <= 0xD8:
            return self._extension(1 << (first - 0xD4))
        size = self._number(SIZES[first]) if first >= 0xC0 else first & (0x1F if first >= 0xA0 else 0x0F)
        if first < 0x90 or first in {0xDE, 0xDF}:
            return {self.value(): self.value() for _ in range(size)}
        if first < 0xA0 or first in {0xDC, 0xDD}:
            return [self.value() for _ in range(size)]
        if first < 0xC0 or first >= 0xD9:
            return self._take(size).decode()
        return self._take(size) if first <= 0xC6 else self._extension(size)

    def _extension(self, size: int) -> Any:
        code, data = self._number(">b"), self._take(size)
        if code not in {1, 2, 3, 4, 6, 7, 8, 9}:
            return Ext(code, data)
        items = Unpacker(data).value()
        if code in {6, 7}:  # a deque or a defaultdict: its limit or factory, then what it holds
            items = items[1]
        return SEQUENCES[code](items) if code in SEQUENCES else dict(zip(items[::2], items[1::2], strict=True))


def unpack(data: bytes) -> Any:
    """The value of an encoding."""
    return Unpacker(data).value()


def opened(mark: str, item: Any) -> Any:
    """An item of a journal's entry; an encoding (marked e) is decoded, if there is one."""
    return unpack(item) if mark == "e" and item else item


def digest(*parts: bytes, size: int = 16) -> bytes:
    """A digest, as everything here has one."""
    return sha256(b"".join(parts)).digest()[:size]


def unseal(data: bytes) -> bytes:
    """What was sealed, without a key."""
    if data[:1] == b"\x0f":
        return data[1:]
    require(data[:1] == b"\x33", "it is encrypted")
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.decompress(data[1:])


def require(condition: object, problem: str) -> None:
    """Refuse what is not as the format says."""
    if not condition:
        raise ValueError(problem)


class Thread:
    """One thread of a store."""

    def __init__(self, database: sqlite3.Connection, thread_id: str, namespace: str = "") -> None:
        self.database = database
        self.key = bytes((len(namespace.encode()),)) + namespace.encode() + thread_id.encode()
        found = database.execute("SELECT number FROM threads WHERE thread = ?", (self.key,)).fetchone()
        require(found, f"thread {thread_id!r} {HIDDEN}")
        self.number = found[0]
        query = "SELECT id, back, digest, header FROM rows WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1"
        found = database.execute(query, (self.number << 28, self.number << 28 | LAST)).fetchone()
        require(found and found[1] == found[0] & LAST and found[2] == b"", "the head is missing")
        head = found[3]
        require(head != b"\0", f"thread {thread_id!r} {HIDDEN}")  # so far only messages were left for it
        require(head[-16:] == digest(self.key, head[:-16]), "the head is damaged")
        fields = unpack(head[:-16])
        require(fields[0] in {1, 2}, "it was written by another version")
        self.incarnation, self.seq, self.last_digest = fields[1], fields[2], fields[5]
        self.deleted, (self.floor, pinned, self.hidden, kept) = fields[10], fields[15]
        self.spared = {*pinned, *kept}
        self.identity = self.key + self.incarnation

    def journal(self) -> list[list[Any]]:
        """What the thread's runs did: entries, each a kind and its items; encodings within them are opened."""
        kind, count, body = self._cells(self.seq).get(("journal",), (1, 0, b"")) if self.seq else (1, 0, b"")
        entries = unpack(header_of(kind, count) + body)
        return [[entry[0], *map(opened, ENTRIES.get(entry[0], "").ljust(len(entry)), entry[1:])] for entry in entries]

    def state(self, seq: int | None = None) -> Any:
        """The state at a row, by default the newest."""
        seq = self.seq if seq is None else seq
        is_shown = (seq >= self.floor or seq in self.spared) and seq not in self.hidden
        require(not self.deleted and 1 <= seq <= self.seq and is_shown, f"checkpoint {seq} {HIDDEN}")
        cells = [(path, cell) for path, cell in self._cells(seq).items() if path[0] == "state"]
        state: dict[str, Any] = {}
        for path, (kind, count, body) in cells:
            value = unpack(header_of(kind, count) + body)
            if path == ("state",):  # a state that is not a dict of its own cells
                return value
            inner = state
            for key in path[1:-1]:
                inner = inner.setdefault(key, {})
            inner[path[-1]] = value
        return state

    def _cells(self, seq: int) -> dict[tuple[str, ...], tuple[int, int, bytes]]:
        """The cells at a row: kind, count and body by path."""
        last = self.number << 28 | seq
        (back,) = self.database.execute("SELECT back FROM rows WHERE id = ?", (last,)).fetchone() or (-1,)
        require(0 <= back < seq, "a row is damaged")
        cells: dict[tuple[str, ...], tuple[int, int, bytes]] = {}
        paths: list[tuple[str, ...]] = []
        parent = b""
        query = "SELECT digest, header, body FROM rows WHERE id BETWEEN ? AND ? ORDER BY id"
        found = self.database.execute(query, (last - back, last))
        for step, (stored_digest, header, body) in enumerate(found):
            place = ((seq - back + step) << 24 | step).to_bytes(8, "big")
            flags, blobs = self._header(place, parent, stored_digest, header, body)
            require(bool(flags & 1) == (step == 0), "it belongs to another keyframe")
            content, parent = unseal(body), stored_digest
            if flags & 2:  # the short form: one item more for one list
                kind, count, old = cells[paths[content[0]]]
                cells[paths[content[0]]] = kind, count + 1, old + content[1:]
                continue
            new_paths, scripts, _ = unpack(content)
            paths = paths if new_paths is None else [tuple(path) for path in new_paths]
            for index, kind, count, *operations in scripts:
                old = cells[paths[index]][2] if paths[index] in cells else b""
                cells[paths[index]] = kind, count, b"".join(self._piece(blobs, old, each) for each in operations)
            cells = {path: cells[path] for path in paths}
        require(seq != self.seq or parent == self.last_digest, "the newest row is not the one the head names")
        return cells

    def _header(
        self, place: bytes, parent: bytes, stored_digest: bytes, header: bytes, body: bytes
    ) -> tuple[int, bytes]:
        """The flags of a row and the ids of its blobs; the row is checked."""
        check = crc32(self.identity + place + header[:-4])
        require(check.to_bytes(4, "big") == header[-4:], "a header is damaged")
        fields: list[Any] = [header[0], None, None] if header[0] < 0x80 else unpack(header[:-4])  # short, or an array
        flags, _, _, _, blobs, _, kept_parent = [*fields, *LEFT_OUT[len(fields) - 3 :]]
        require(flags >> 4 == 1, "it was written by another version")
        found = digest(self.identity, kept_parent if flags & 1 else parent, place, header, body, size=8)
        require(found == stored_digest, "a row is damaged")
        return flags, blobs

    def _piece(self, blobs: bytes, old: bytes, operation: Any) -> bytes:
        """The bytes of one operation: the old body, a part of it, bytes, or a part of a blob."""
        if operation is None or isinstance(operation, bytes):
            return old if operation is None else operation
        *number, offset, length = operation
        if not number:
            return old[offset : offset + length]
        blob = blobs[16 * number[0] : 16 * number[0] + 16]
        query = "SELECT data FROM blobs WHERE number = ? AND blob = ?"
        (stored,) = self.database.execute(query, (self.number, blob)).fetchone()
        require(blob[5:] == digest(self.identity, stored, size=11), "a blob is damaged")
        return unseal(stored)[offset : offset + length]


def header_of(kind: int, count: int) -> bytes:
    """The msgpack header of a list or map of that many items; nothing for any other value."""
    if kind not in KINDS:
        return b""
    short, long = KINDS[kind]
    return bytes((short + count,)) if count < 16 else long + count.to_bytes(4, "big")


def main(file: str, thread_id: str = "", seq: str = "") -> None:
    """Print the threads of a store, or the state of one of them."""
    database = sqlite3.connect(f"{Path(file).absolute().as_uri()}?mode=ro", uri=True)
    if thread_id:
        thread = Thread(database, thread_id)
        shown = thread.journal() if seq == "journal" else thread.state(int(seq) if seq else None)
        output = pformat(shown, sort_dicts=False)
    else:
        keys = [key for (key,) in database.execute("SELECT thread FROM threads WHERE status <> '' ORDER BY birth")]
        output = "\n".join(repr(key[1 + key[0] :].decode()) for key in keys)
    sys.stdout.write(output + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
