"""Counting threads by status reads no heads where the store has an index of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.records import head as heads
from holdfast.stores.redis import RedisBackend
from holdfast.testing.conformance.samples import Line, head, key
from kinds import shared_kinds, url_of
from servers.redis import new_prefix, shared_server


@pytest.mark.parametrize("indexed", shared_kinds("sqlite", "postgres", "redis"))
def test_counts_decode_no_head(indexed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.open(url_of(indexed, tmp_path), durability="process") as store:
        for number in range(7):
            store.save(f"t{number}", 1, status="idle" if number % 2 else "failed")

        def refuse(_: bytes) -> Any:
            raise AssertionError("a head was decoded")

        monkeypatch.setattr(heads, "_decode", refuse)
        assert store.counts() == {"idle": 3, "failed": 4}


@pytest.mark.servers
def test_counts_in_redis_take_one_round_trip() -> None:
    backend = RedisBackend(shared_server().url(new_prefix()), holdfast.Durability.PROCESS)
    backend.open()
    for number in range(300):
        Line(backend, key(f"t{number}")).put(head(status="idle" if number % 3 else "complete"))
    before = backend.wire.round_trips
    assert backend.counts(key()[:1]) == {"idle": 200, "complete": 100}
    assert backend.wire.round_trips - before == 1
    backend.close()


def test_awaitable_stores_count_too() -> None:
    async def main() -> None:
        async with holdfast.open("memory:") as store:
            await store.save("t", 1, status="complete")
            assert await store.counts() == {"complete": 1}

    asyncio.run(main())
