# pyright: strict
"""A typical program of the awaitable world: every method, as users type them."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import holdfast


@holdfast.storable
@dataclass(frozen=True)
class Plan:
    """What the agent is up to."""

    goal: str
    steps: tuple[str, ...] = ()


async def save_and_read(store: holdfast.Store) -> str:
    """Saving, appending, loading."""
    first: holdfast.Checkpoint = await store.save(
        "user-42",
        {"plan": Plan("write"), "messages": list[str]()},
        metadata={"model": "a"},
        labels={"app": "demo"},
        phase=holdfast.Phase.POST_LLM,
        cause="event",
        status=holdfast.Status.WORKING,
        idempotency_key="first",
        expect_seq=0,
    )
    await store.append("user-42", "messages", "hello")
    await store.append("user-42", ("nested", "list"), 1)
    latest: holdfast.Checkpoint | None = await store.latest("user-42")
    assert latest is not None
    state: Any = latest.state
    assert state["plan"].goal == "write"
    again: holdfast.Checkpoint = await store.get("user-42", 1)
    assert again == first == await store.load(first.id)
    return first.checkpoint_id


async def look_around(store: holdfast.Store) -> int:
    """Listing."""
    count = 0
    page: holdfast.Page[holdfast.CheckpointInfo] = await store.history("user-42", limit=1, where={"model": "a"})
    for info in page:
        seq: int = info.seq
        count += seq
    following = await (await store.history("user-42", limit=1)).next_page()
    assert following is not None
    assert len(following.items) == 1
    threads: holdfast.Page[holdfast.ThreadInfo] = await store.threads(
        status=["working", holdfast.Status.IDLE], labels={"app": "demo"}
    )
    names: list[str] = [thread.thread_id for thread in threads]
    info_of: holdfast.ThreadInfo = await store.thread(names[0])
    assert info_of.owner is None
    return count


async def travel(store: holdfast.Store, checkpoint_id: str) -> None:
    """Forking, comparing, moving."""
    fork: str = await store.fork(checkpoint_id, to="fork", state={"plan": Plan("read")})
    latest = await store.latest(fork)
    assert latest is not None
    changes: list[holdfast.Change] = await store.diff(checkpoint_id, latest.id)
    assert changes[0].path[0] == "plan"
    await store.export(fork, "fork.bundle", keys=b"k" * 32)
    assert await store.import_("fork.bundle", to="copy", keys=b"k" * 32) == "copy"
    await store.backup("backup.db")


async def keep_house(store: holdfast.Store, checkpoint_id: str) -> None:
    """Pins, prunes, deletes, reports."""
    await store.pin(checkpoint_id)
    await store.pin(checkpoint_id, pinned=False)
    freed: holdfast.Freed = await store.prune(
        holdfast.Retention(keep_last=10, ttl=timedelta(hours=24), max_age=3600.0, delete_on=("complete",)), dry_run=True
    )
    assert freed.bytes == 0
    await store.delete_checkpoint((await store.history("user-42")).items[0].id)
    await store.erase("user-42")
    await store.delete("copy")
    await store.revive("copy")
    stats: holdfast.Stats = await store.stats()
    report: holdfast.Report = await store.verify()
    guarantee: holdfast.Guarantee = await store.guarantee()
    assert report.ok
    assert stats.threads == 2
    assert guarantee.level is holdfast.Durability.DURABLE


async def listen(store: holdfast.Store) -> list[str]:
    """Events, to plain and to async functions."""
    heard: list[str] = []

    async def hear(event: holdfast.StoreEvent) -> None:
        heard.append(event.kind)

    stop = store.on_event(hear)
    await store.save("heard", None)
    stop()
    return heard


async def fail(store: holdfast.Store) -> str:
    """Errors, by what can be done about them."""
    try:
        await store.get("never", 1)
    except holdfast.NotFound as error:
        return str(error)
    except holdfast.StoreError:
        raise
    raise AssertionError


async def main() -> None:
    """All of it."""
    async with holdfast.open(
        "agents.db", retention=holdfast.Retention(keep_last=5), keys=holdfast.KeyRing.generate()
    ) as store:
        checkpoint_id = await save_and_read(store)
        assert await look_around(store) == 1
        await travel(store, checkpoint_id)
        await keep_house(store, checkpoint_id)
        assert await listen(store) == ["saved"]
        assert await store.rotate() == 0
        assert "never" in await fail(store)
    for other in (
        holdfast.MemoryStore(namespace="n"),
        holdfast.SQLiteStore(":memory:"),
        holdfast.FileStore("directory"),
    ):
        async with other:
            assert (await other.save("t", {1: (2, {3})})).seq == 1
    packed: bytes = holdfast.codec.encode({"a": (1, 2)})
    assert holdfast.codec.decode(packed) == {"a": (1, 2)}


if __name__ == "__main__":
    asyncio.run(main())
