# pyright: strict
"""A typical program of the blocking world: every method, as users type them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import holdfast.sync as holdfast


@holdfast.storable
@dataclass(frozen=True)
class Plan:
    """What the agent is up to."""

    goal: str
    steps: tuple[str, ...] = ()


def save_and_read(store: holdfast.Store) -> str:
    """Saving, appending, loading."""
    first: holdfast.Checkpoint = store.save(
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
    store.append("user-42", "messages", "hello")
    store.append("user-42", ("nested", "list"), 1)
    latest: holdfast.Checkpoint | None = store.latest("user-42")
    assert latest is not None
    state: Any = latest.state
    assert state["plan"].goal == "write"
    again: holdfast.Checkpoint = store.get("user-42", 1)
    assert again == first == store.load(first.id)
    return first.checkpoint_id


def look_around(store: holdfast.Store) -> int:
    """Listing."""
    count = 0
    page: holdfast.Page[holdfast.CheckpointInfo] = store.history("user-42", limit=1, where={"model": "a"})
    for info in page:
        seq: int = info.seq
        count += seq
    following = store.history("user-42", limit=1).next_page()
    assert following is not None
    assert len(following.items) == 1
    threads: holdfast.Page[holdfast.ThreadInfo] = store.threads(
        status=["working", holdfast.Status.IDLE], labels={"app": "demo"}
    )
    names: list[str] = [thread.thread_id for thread in threads]
    info_of: holdfast.ThreadInfo = store.thread(names[0])
    assert info_of.owner is None
    return count


def travel(store: holdfast.Store, checkpoint_id: str) -> None:
    """Forking, comparing, moving."""
    fork: str = store.fork(checkpoint_id, to="fork", state={"plan": Plan("read")})
    latest = store.latest(fork)
    assert latest is not None
    changes: list[holdfast.Change] = store.diff(checkpoint_id, latest.id)
    assert changes[0].path[0] == "plan"
    store.export(fork, "fork.bundle", keys=b"k" * 32)
    assert store.import_("fork.bundle", to="copy", keys=b"k" * 32) == "copy"
    store.backup("backup.db")


def keep_house(store: holdfast.Store, checkpoint_id: str) -> None:
    """Pins, prunes, deletes, reports."""
    store.pin(checkpoint_id)
    store.pin(checkpoint_id, pinned=False)
    freed: holdfast.Freed = store.prune(
        holdfast.Retention(keep_last=10, ttl=timedelta(hours=24), max_age=3600.0, delete_on=("complete",)), dry_run=True
    )
    assert freed.bytes == 0
    store.delete_checkpoint(store.history("user-42").items[0].id)
    store.erase("user-42")
    store.delete("copy")
    store.revive("copy")
    stats: holdfast.Stats = store.stats()
    report: holdfast.Report = store.verify()
    guarantee: holdfast.Guarantee = store.guarantee()
    assert report.ok
    assert stats.threads == 2
    assert guarantee.level is holdfast.Durability.DURABLE


def listen(store: holdfast.Store) -> list[str]:
    """Events, to plain functions."""
    heard: list[str] = []

    def hear(event: holdfast.StoreEvent) -> None:
        heard.append(event.kind)

    stop = store.on_event(hear)
    store.save("heard", None)
    stop()
    return heard


def fail(store: holdfast.Store) -> str:
    """Errors, by what can be done about them."""
    try:
        store.get("never", 1)
    except holdfast.NotFound as error:
        return str(error)
    except holdfast.StoreError:
        raise
    raise AssertionError


def main() -> None:
    """All of it."""
    with holdfast.open(
        "agents.db", retention=holdfast.Retention(keep_last=5), keys=holdfast.KeyRing.generate()
    ) as store:
        checkpoint_id = save_and_read(store)
        assert look_around(store) == 1
        travel(store, checkpoint_id)
        keep_house(store, checkpoint_id)
        assert listen(store) == ["saved"]
        assert store.rotate() == 0
        assert "never" in fail(store)
    for other in (
        holdfast.MemoryStore(namespace="n"),
        holdfast.SQLiteStore(":memory:"),
        holdfast.FileStore("directory"),
    ):
        with other:
            assert other.save("t", {1: (2, {3})}).seq == 1
    packed: bytes = holdfast.codec.encode({"a": (1, 2)})
    assert holdfast.codec.decode(packed) == {"a": (1, 2)}


if __name__ == "__main__":
    main()
