"""Heads, rows, blobs and swaps to test a backend with. The bytes have no meaning: a backend must not interpret them."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from holdfast.records.head import Head, decode_head, encode_head
from holdfast.records.identity import namespace_prefix, thread_key
from holdfast.records.rows import KEEP_ALL, Drop, Row, Swap
from holdfast.stores.agenda import swap_of
from holdfast.stores.backend import Backend

EVERY_BYTE = bytes(range(256))
_FIRST = Head(
    incarnation=EVERY_BYTE[:16], base=1, digest=EVERY_BYTE[16:32], status="idle", created_at=1_000, updated_at=1_000
)


def key(thread_id: str = "thread", namespace: str = "") -> bytes:
    """Return the key of a thread."""
    return thread_key(namespace_prefix(namespace), thread_id)


def head(seq: int = 1, **fields: Any) -> Head:
    """Return a head at `seq`; `fields` replace its defaults."""
    return replace(_FIRST, **{"seq": seq, "base": min(seq, 1), "checkpoint": seq, **fields})


def row(seq: int, base: int = 1, body: bytes | None = None) -> Row:
    """Return a row of made-up bytes, with every byte value."""
    header = b"header %d " % seq + EVERY_BYTE
    content = b"body %d " % seq + EVERY_BYTE if body is None else body
    return Row(seq, base, sha256(header + content).digest()[:16], header, content)


def rows(*seqs: int, base: int = 1) -> tuple[Row, ...]:
    """Return several rows on one base."""
    return tuple(row(seq, base) for seq in seqs)


def blob(number: int, size: int = 300) -> tuple[bytes, bytes]:
    """Return the id and the bytes of a blob."""
    data = (b"blob %d " % number + EVERY_BYTE * (size // 256 + 1))[:size]
    return number.to_bytes(5, "big") + sha256(data).digest()[:11], data


def blobs(*numbers: int) -> dict[bytes, bytes]:
    """Return several blobs by id."""
    return dict(map(blob, numbers))


class Line:
    """One thread of a backend under test, and its last head."""

    def __init__(self, backend: Backend, thread: bytes | None = None) -> None:
        self.backend = backend
        self.key = key() if thread is None else thread
        self.stored = b""

    def swap(
        self,
        after: Head,
        rows: tuple[Row, ...] = (),
        blobs: Mapping[bytes, bytes] | None = None,
        consumed: tuple[str, ...] = (),
        drop: Drop = KEEP_ALL,
    ) -> Swap:
        """Return the swap from the present head to this one."""
        before = decode_head(self.key, self.stored) if self.stored else Head()
        encoded = encode_head(self.key, after)
        return swap_of(self.key, before, self.stored, after, encoded, rows, blobs, consumed, drop)

    def put(
        self,
        after: Head,
        rows: tuple[Row, ...] = (),
        blobs: Mapping[bytes, bytes] | None = None,
        consumed: tuple[str, ...] = (),
        drop: Drop = KEEP_ALL,
    ) -> Swap:
        """Make that swap; it must be accepted."""
        swap = self.swap(after, rows, blobs, consumed, drop)
        assert self.backend.swap([swap]) == [True], "a swap onto the present head was refused"
        self.stored = swap.replacement
        return swap

    def refused(self, swap: Swap) -> None:
        """Try a swap; it must be refused."""
        assert self.backend.swap([swap]) == [False], "a swap onto another head was accepted"

    @property
    def encoded(self) -> bytes | None:
        """Return the head as the backend has it."""
        return self.backend.heads([self.key])[0]

    @property
    def head(self) -> Head:
        """Return the decoded head."""
        encoded = self.encoded
        assert encoded is not None, "the thread has no head"
        return decode_head(self.key, encoded)

    @property
    def seqs(self) -> list[int]:
        """Return the seqs of all rows, newest first."""
        return [entry.seq for entry in self.backend.index(self.key, None, None)]
