"""Backends that are wrong on purpose, to see that a test can fail: what passes with one of these proves nothing."""

from collections.abc import Collection, Mapping, Sequence
from random import Random

from msgspec.structs import replace

from holdfast.records.errors import StoreError
from holdfast.records.head import decode_head
from holdfast.records.rows import Row, Swap
from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.faults import FaultyBackend


class NoFencing(FaultyBackend):
    """Swaps whatever head is there: the last writer wins."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """Never refuses."""
        present = self.inner.heads([swap.thread for swap in swaps])
        return self.inner.swap(
            [replace(swap, expected=head or b"") for swap, head in zip(swaps, present, strict=True)], wait=wait
        )


class SeqOnly(FaultyBackend):
    """Compares the seq of the head and nothing else: blind to tokens, digests and former lives."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """Refuses only where the seq differs."""
        present = self.inner.heads([swap.thread for swap in swaps])
        return self.inner.swap([_loosened(swap, head) for swap, head in zip(swaps, present, strict=True)], wait=wait)


def _loosened(swap: Swap, present: bytes | None) -> Swap:
    expected = decode_head(swap.thread, swap.expected).seq if swap.expected else 0
    found = decode_head(swap.thread, present).seq if present else 0
    return replace(swap, expected=present or b"") if expected == found else swap


class Lossy(FaultyBackend):
    """Acknowledges a swap when it is in memory; it reaches the disk with the next one, as without an fsync.

    What a crash leaves is `disk`: everything but the last acknowledged swap. Both begin empty.
    """

    def __init__(self, disk: Backend) -> None:
        super().__init__(MemoryBackend())
        self.disk = disk
        self._pending: list[Swap] = []

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """Right as long as nothing happens."""
        outcomes = self.inner.swap(swaps, wait=wait)
        for swap in self._pending:
            self.disk.swap([swap])
        self._pending = [swap for swap, done in zip(swaps, outcomes, strict=True) if done]
        return outcomes


class Deaf(FaultyBackend):
    """Takes every refusal of its server for a success, as one that never reads the reply."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        """Never raises."""
        try:
            return self.inner.swap(swaps, wait=wait)
        except StoreError:
            return [True] * len(swaps)


class FlipsBits(FaultyBackend):
    """Flips one bit in what it reads, every so often, as a failing disk would."""

    def __init__(self, inner: Backend, seed: int = 0, *, often: float = 0.2) -> None:
        super().__init__(inner)
        self._random = Random(seed)
        self._often = often
        self.flipped = 0

    def _flip(self, data: bytes) -> bytes:
        if not data or self._random.random() > self._often:
            return data
        self.flipped += 1
        at = self._random.randrange(len(data))
        return data[:at] + bytes((data[at] ^ (1 << self._random.randrange(8)),)) + data[at + 1 :]

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        """Heads, some damaged."""
        return [self._flip(head) if head else head for head in self.inner.heads(threads)]

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        """Rows, some damaged."""
        return [self._flipped(row) for row in self.inner.rows(thread, seq)]

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        """The index, damaged here and there."""
        return [self._flipped(row) for row in self.inner.index(thread, before, limit)]

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Blobs, some damaged."""
        return {blob: self._flip(data) for blob, data in self.inner.blobs(thread, ids).items()}

    def _flipped(self, row: Row) -> Row:
        return replace(row, digest=self._flip(row.digest), header=self._flip(row.header), body=self._flip(row.body))
