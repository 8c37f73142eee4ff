"""Threads that never rest, caches that overflow, rows of the journal: the corners of the store."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness.random_walk import TIGHT
from holdfast import sync
from holdfast.records.errors import NotFound
from holdfast.records.rows import Swap
from holdfast.stores import writer as writers
from holdfast.stores.maintenance import SLICE_ROWS
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.faults import Crash, Fault, FaultyBackend
from holdfast.testing.handles import blocking_store


class Restless(FaultyBackend):
    """Somebody else is always faster."""

    def __init__(self, inner: MemoryBackend) -> None:
        super().__init__(inner)
        self.restless = False
        self.other = blocking_store(inner, closes=False)

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        if self.restless:
            self.other.save("t", {"by": "somebody else"})
        return self.inner.swap(swaps, wait=wait)


@pytest.fixture
def restless() -> Restless:
    backend = Restless(MemoryBackend())
    for number in range(5):
        backend.other.save("t", {"n": number})
    return backend


WRITES: dict[str, Callable[[sync.Store], Any]] = {
    "save": lambda store: store.save("t", {"mine": True}),
    "append": lambda store: store.append("t", "list", 1),
    "append within": lambda store: store.append("t", ("a", "b", "c", "d", "e"), 1),
    "pin": lambda store: store.pin(store.get("t", 2).id),
    "delete_checkpoint": lambda store: store.delete_checkpoint(store.get("t", 2).id),
    "delete": lambda store: store.delete("t"),
    "erase": lambda store: store.erase("t"),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_thread_that_never_rests_ends_in_a_conflict(restless: Restless, name: str) -> None:
    """After some attempts, not never; and nothing of it was done."""
    restless.restless = True
    store = blocking_store(restless, closes=False)
    with pytest.raises(sync.Conflict):
        WRITES[name](store)
    restless.restless = False
    latest = restless.other.latest("t")
    assert latest is not None
    assert latest.state == {"by": "somebody else"}
    assert restless.other.get("t", 2).state == {"n": 1}
    assert restless.other.verify().ok


def test_a_prune_leaves_a_thread_that_never_rests_to_the_next_one(restless: Restless) -> None:
    """The other threads are pruned: one in constant use does not stop them."""
    for number in range(5):
        restless.other.save("calm", {"n": number})
    restless.restless = True
    freed = blocking_store(restless, closes=False).prune(sync.Retention(keep_last=1))
    assert (freed.busy, freed.checkpoints) == (("t",), 4)
    restless.restless = False
    assert restless.other.get("t", 2).state == {"n": 1}
    assert restless.other.prune(sync.Retention(keep_last=1)).busy == ()


def test_a_revival_that_never_succeeds_ends_in_a_conflict() -> None:
    class Refusing(FaultyBackend):
        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            return [False] * len(swaps)

    memory = MemoryBackend()
    store = blocking_store(memory, closes=False)
    store.save("t", 1)
    store.delete("t")
    with pytest.raises(sync.Conflict):
        blocking_store(Refusing(memory), closes=False).revive("t")


def test_a_journal_row_is_no_checkpoint(memory_store: sync.Store) -> None:
    """Deleting the newest checkpoint leaves one behind."""
    for number in range(1, 4):
        memory_store.save("t", number)
    memory_store.delete_checkpoint(memory_store.get("t", 3).id)
    with pytest.raises(NotFound, match="journal"):
        memory_store.get("t", 4)
    with pytest.raises(NotFound):
        memory_store.pin(memory_store.get("t", 2).id.replace("@2.", "@4."))
    assert [info.seq for info in memory_store.history("t")] == [2, 1]
    everything = memory_store.history("t", journal=True).items
    assert [(info.seq, info.journal) for info in everything] == [(4, True), (2, False), (1, False)]


def test_a_fork_of_steps_that_are_not_there_says_so(memory_store: sync.Store) -> None:
    checkpoint = memory_store.save("t", 1)
    with pytest.raises(sync.NotFound, match="search"):
        memory_store.fork(checkpoint.id, "f", results={"search": 1})
    assert memory_store.latest("f") is None


def test_a_prune_of_many_rows_goes_in_slices() -> None:
    memory = MemoryBackend()
    counting = FaultyBackend(memory)
    store = blocking_store(counting, closes=False)
    for number in range(SLICE_ROWS * 2 + 100):
        store.append("t", "list", number)
    counting.calls.clear()
    freed = store.prune(sync.Retention(keep_last=1))
    assert freed.checkpoints == SLICE_ROWS * 2 + 99
    assert 2 <= counting.calls.count("swap") <= 5
    assert store.verify().ok
    assert store.prune(sync.Retention(keep_last=1)) == sync.Freed()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_prune_cut_short_between_slices_is_completed_by_the_next(at: int) -> None:
    memory = MemoryBackend()
    faulty = FaultyBackend(memory)
    faulty.tuning = TIGHT
    store = blocking_store(faulty, closes=False)
    for number in range(SLICE_ROWS * 2 + 50):
        store.append("t", "list", f"{number} " * 50)
    faulty.plan = Fault(at, "crash before", frozenset({"swap"}))
    with pytest.raises(Crash):
        store.prune(sync.Retention(keep_last=1))
    faulty.plan = None
    other = blocking_store(memory, closes=False)
    assert other.verify().ok
    other.prune(sync.Retention(keep_last=1))
    kept = memory._threads[b"\0t"]
    named = {blob for row in memory.index(b"\0t", None, None) for blob in _blobs(memory, row.seq)}
    assert set(kept.blobs) == named, "blobs that no row names were left behind"
    latest = other.latest("t")
    assert latest is not None
    assert len(latest.state["list"]) == SLICE_ROWS * 2 + 50


def _blobs(memory: MemoryBackend, seq: int) -> list[bytes]:
    from zlib import crc32

    from holdfast.history.format import read_header
    from holdfast.records.head import decode_head

    row = next(row for row in memory.rows(b"\0t", seq) if row.seq == seq)
    head = decode_head(b"\0t", memory.heads([b"\0t"])[0] or b"")
    return read_header(row, "t", crc32(b"\0t" + head.incarnation)).blob_ids


def test_writers_that_hold_too_much_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """And come back when they are needed."""
    monkeypatch.setattr(writers, "CACHE_BYTES", 200_000)
    with sync.MemoryStore() as store:
        for turn in range(3):
            for number in range(30):
                store.save(f"t{number}", {"turn": turn, "text": str(number) * 20_000})
        held = store._store._saving.writers
        assert 1 <= len(held._writers) < 30
        for number in range(30):
            assert store.get(f"t{number}", 3).state["turn"] == 2


def test_a_lost_reply_is_found_out_by_looking(memory_store: sync.Store) -> None:
    """The same write is not made twice, and what did not land is not said to have."""
    for how, landed in (("lost reply", True), ("unavailable", False)):
        faulty = FaultyBackend(MemoryBackend())
        store = blocking_store(faulty, closes=False)
        store.save("t", 1)
        faulty.plan = Fault(1, how, frozenset({"swap"}))  # type: ignore[arg-type]
        if landed:
            assert store.save("t", 2).seq == 2
        else:
            with pytest.raises(sync.StoreUnavailable):
                store.save("t", 2)
        assert store.save("t", 3).seq == (3 if landed else 2)


def test_a_reply_lost_twice_leaves_the_outcome_unknown() -> None:
    class Silent(FaultyBackend):
        """Does nothing, and does not say so."""

        silent = False

        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            if self.silent:
                raise sync.OutcomeUnknown("no reply")
            return self.inner.swap(swaps, wait=wait)

    backend = Silent(MemoryBackend())
    store = blocking_store(backend, closes=False)
    store.save("t", 1)
    backend.silent = True
    with pytest.raises(sync.OutcomeUnknown):
        store.save("t", 2)
    backend.silent = False
    assert store.save("t", 2).seq == 2


def test_a_large_state_is_saved_like_any_other(memory_store: sync.Store) -> None:
    large = {"list": [f"{number} " * 50 for number in range(12_000)], "bytes": bytes(2_000_000)}
    memory_store.save("t", large)
    large["list"].append("more")  # type: ignore[attr-defined]
    memory_store.save("t", large)
    assert memory_store.get("t", 2).state == large


def test_a_listing_of_threads_goes_on_over_pages(memory_store: sync.Store) -> None:
    for number in range(1005):
        memory_store.save(f"t{number}", number)
    assert memory_store.stats().threads == 1005
    assert memory_store.prune(sync.Retention(ttl=0)).threads == 1005
