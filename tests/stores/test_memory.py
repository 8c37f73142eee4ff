"""The memory backend under an interrupt, after which a notebook or a console goes on."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.records.head import Head
from holdfast.records.rows import Row, Swap
from holdfast.stores.memory import MemoryBackend


class Struck(tuple[str, ...]):
    """Messages to be consumed, at which the interrupt strikes."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        raise KeyboardInterrupt


def test_an_interrupted_swap_changes_nothing_that_can_be_seen() -> None:
    backend, row = MemoryBackend(), Row(1, 1, b"digest", b"header", b"body")
    swap = Swap(b"\0t", b"", b"head", Head(seq=1, status="idle"), (row,), consumed=Struck())
    with pytest.raises(KeyboardInterrupt):
        backend.swap([swap])
    assert backend.heads([b"\0t"]) == [None]
    assert backend.swap([replace(swap, consumed=())]) == [True]
    assert backend.rows(b"\0t", 1) == [row]
