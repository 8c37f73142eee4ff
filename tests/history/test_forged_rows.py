"""Rows whose fields say what no save writes, under checksums and digests that are right: only errors of ours."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from zlib import crc32

import pytest
from msgspec.msgpack import encode
from msgspec.structs import replace

from holdfast import sync
from holdfast.history.binding import place_of
from holdfast.history.format import CRC_BYTES, Header, decode_header
from holdfast.records.head import decode_head, encode_head
from holdfast.records.rows import Row, Swap
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.handles import blocking_store

KEY = b"\0t"
WRONG: tuple[Any, ...] = (None, True, -1, 2**40, 2**63, 2**64 - 1, 1.5, "x", b"x", [], [5], [-1], [None], {})
FIELDS = [name for name in Header.__struct_fields__ if name not in {"seq", "back"}]


class Forger:
    """A memory store with two threads, and a way to replace the last row of one with all unkeyed checks recomputed."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.store = blocking_store(self.backend)
        for thread_id in ("t", "good"):
            for number in range(3):
                self.store.save(thread_id, {"n": number, "text": str(number) * 20_000}, metadata={"n": number})

    def forge(self, change: Callable[[Header], Header]) -> None:
        stored = self.backend.heads([KEY])[0] or b""
        head = decode_head(KEY, stored)
        row = self.backend.rows(KEY, head.seq)[-1]
        binding = self.store._store._reader.binding(KEY, head)
        place, found = place_of(row.seq, row.seq - row.base), decode_header(binding, row)
        changed = change(found)
        data = encode([getattr(changed, name) for name in FIELDS])
        header = data + crc32(data, crc32(place, binding.check_start)).to_bytes(CRC_BYTES, "big")
        given: object = changed.parent
        parent = given if isinstance(given, bytes) else found.parent
        digest = binding.digest(parent, place, header, row.body)
        forged = Row(row.seq, row.base, digest, header, row.body)
        after = replace(head, digest=digest)
        assert self.backend.swap([Swap(KEY, stored, encode_head(KEY, after), after, (forged,))]) == [True]


def attempts(store: sync.Store) -> list[Callable[[], object]]:
    return [
        lambda: repr(store.latest("t")),
        lambda: list(store.history("t", journal=True)),
        lambda: store.fork(store.get("t", 3).id, "forked"),
        lambda: store.pin(store.get("t", 2).id),
        lambda: store.erase("t"),
        lambda: store.save("t", {"n": 4}),
    ]


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_header_gives_another_error_than_ours(field: str) -> None:
    for value in WRONG:
        forger = Forger()
        forger.forge(lambda header, value=value: replace(header, **{field: value}))  # type: ignore[misc]
        store = forger.store
        assert [info.thread_id for info in store.threads()] == ["good", "t"]
        for attempt in attempts(store):
            with suppress(sync.HoldfastError):
                attempt()
        store.prune(sync.Retention(keep_last=1, max_age=10**9))
        assert not [each for each in store.verify().problems if each.thread_id == "good"]
        store.delete("t")
