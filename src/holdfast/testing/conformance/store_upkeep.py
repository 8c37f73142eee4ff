"""Deleting, hiding, pinning, pruning, erasing: what is removed is gone, and the rest is exact."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from holdfast import sync
from holdfast.records.errors import ConfigurationError, Conflict, NotFound
from holdfast.records.retention import Freed, Retention
from holdfast.testing.conformance.store_kit import StoreKit, raises, seqs

LONG = "x" * 6000


def grown(store: sync.Store, thread_id: str, count: int) -> None:
    """Save `count` checkpoints, with small and large changes."""
    for number in range(1, count + 1):
        store.save(thread_id, state_at(number))


def state_at(number: int) -> dict[str, Any]:
    """Return the state that `grown` saves as checkpoint `number`."""
    return {
        "n": number,
        "list": [f"item {index}" for index in range(number)],
        "large": f"{number // 5} {LONG}",
        "random": [f"{number * 31 % 17} {LONG[:500]}"] * 3,
    }


class Deleting(StoreKit):
    """Test what `delete`, `revive` and `delete_checkpoint` promise."""

    def test_a_deleted_thread_is_gone(self) -> None:
        """No call finds it, and its bytes are gone. Deleting again, or deleting a new id, is no error."""
        store = self.store()
        checkpoint = store.save("t", {"a": LONG})
        store.save("other", 1)
        store.delete("t")
        store.delete("t")
        store.delete("never")
        for handle in (store, self.store()):
            assert handle.latest("t") is None
            raises(NotFound, handle.get, "t", 1)
            raises(NotFound, handle.load, checkpoint.id)
            raises(NotFound, handle.history, "t")
            assert [info.thread_id for info in handle.threads()] == ["other"]
        assert store.verify().ok

    def test_a_revived_thread_begins_again(self) -> None:
        """It is empty, begins at seq 1, and old ids stay gone."""
        store, other = self.store(), self.store()
        old = store.save("t", {"a": 1})
        other.delete("t")
        other.revive("t")
        assert store.latest("t") is None
        assert list(store.threads()) == []
        new = store.save("t", {"a": 2})
        assert new.seq == 1
        assert new.id != old.id
        assert new.parent_id is None
        raises(NotFound, store.load, old.id)
        assert store.get("t", 1).state == {"a": 2}

    def test_only_the_deleted_can_be_revived(self) -> None:
        """An existing thread, and one that never existed, raise `NotFound`."""
        store = self.store()
        store.save("t", 1)
        raises(NotFound, store.revive, "t")
        raises(NotFound, store.revive, "never")

    def test_a_deleted_checkpoint_is_hidden(self) -> None:
        """Only that one is hidden; the others are unchanged."""
        store = self.store()
        grown(store, "t", 6)
        gone = store.get("t", 3).id
        store.delete_checkpoint(gone)
        assert seqs(store, "t") == [6, 5, 4, 2, 1]
        raises(NotFound, store.get, "t", 3)
        raises(NotFound, store.load, gone)
        raises(NotFound, store.delete_checkpoint, gone)
        for seq in (1, 2, 4, 5, 6):
            assert store.get("t", seq).state == state_at(seq)

    def test_deleting_the_newest_checkpoint_brings_back_the_one_before(self) -> None:
        """The thread has that state, and the next save continues from it; the only one raises `Conflict`."""
        store = self.store()
        grown(store, "t", 3)
        store.delete_checkpoint(store.get("t", 3).id)
        for handle in (store, self.store()):
            latest = handle.latest("t")
            assert latest is not None
            assert (latest.seq, latest.state) == (2, state_at(2))
            assert handle.thread("t").seq == 2
        added = store.append("t", "list", "added")
        assert added.state["list"] == [*state_at(2)["list"], "added"]
        assert added.parent_id == store.get("t", 2).id
        assert seqs(store, "t") == [added.seq, 2, 1]
        for seq in (added.seq, 2):
            store.delete_checkpoint(store.get("t", seq).id)
        raises(Conflict, store.delete_checkpoint, store.get("t", 1).id)
        latest = store.latest("t")
        assert latest is not None
        assert latest.state == state_at(1)
        assert store.verify().ok


class Pruning(StoreKit):
    """Test what `prune`, `pin` and `erase` promise."""

    def _kept(self, store: sync.Store, *kept: int, total: int) -> None:
        for handle in (store, self.store()):
            assert seqs(handle, "t") == sorted(kept, reverse=True)
            for seq in range(1, total + 1):
                if seq in kept:
                    assert handle.get("t", seq).state == state_at(seq)
                else:
                    raises(NotFound, handle.get, "t", seq)
        report = store.verify()
        assert report.ok, report.problems

    def test_keep_last_keeps_the_newest(self) -> None:
        """Each is exact; a second prune has nothing to do; the thread can be saved to."""
        store = self.store()
        grown(store, "t", 20)
        freed = store.prune(Retention(keep_last=3))
        assert freed.checkpoints == 17
        self._kept(store, 18, 19, 20, total=20)
        assert store.prune(Retention(keep_last=3)) == Freed()
        store.save("t", state_at(21))
        assert seqs(store, "t") == [21, 20, 19, 18]
        assert store.get("t", 21).state == state_at(21)

    def test_pruning_frees_bytes(self) -> None:
        """It reports how many."""
        store = self.store()
        for number in range(1, 60):
            store.save("t", {"text": f"{number} " * 3000})
        before = store.thread("t").stored_bytes
        planned = store.prune(Retention(keep_last=1), dry_run=True)
        assert store.thread("t").stored_bytes == before
        freed = store.prune(Retention(keep_last=1))
        assert freed == planned
        assert store.thread("t").stored_bytes == before - freed.bytes
        assert freed.bytes > before // 2

    def test_a_dry_run_changes_nothing(self) -> None:
        """Everything is still there."""
        store = self.store()
        grown(store, "t", 6)
        assert store.prune(Retention(keep_last=1), dry_run=True).checkpoints == 5
        assert store.prune(Retention(delete_on=("idle",)), dry_run=True).threads == 1
        self._kept(store, *range(1, 7), total=6)

    def test_pinned_checkpoints_stay(self) -> None:
        """They stay through any prune, until they are unpinned."""
        store = self.store()
        grown(store, "t", 12)
        for seq in (2, 7):
            store.pin(store.get("t", seq).id)
        store.prune(Retention(keep_last=2))
        self._kept(store, 2, 7, 11, 12, total=12)
        assert store.thread("t").pinned == (2, 7)
        store.pin(store.get("t", 7).id, pinned=False)
        store.prune(Retention(keep_last=2))
        self._kept(store, 2, 11, 12, total=12)
        store.prune(Retention(keep_last=1, keep_pinned=False))
        self._kept(store, 12, total=12)

    def test_unpinning_takes_nothing_that_the_retention_keeps(self) -> None:
        """A pin that was not needed leaves no trace."""
        store = self.store()
        grown(store, "t", 4)
        store.pin(store.get("t", 1).id)
        store.prune(Retention(keep_last=8))
        store.pin(store.get("t", 1).id, pinned=False)
        self._kept(store, 1, 2, 3, 4, total=4)

    def test_unpinning_hides_nothing_by_itself(self) -> None:
        """The next prune drops what only the pin kept; never the newest checkpoint."""
        store = self.store()
        grown(store, "t", 6)
        store.pin(store.get("t", 2).id)
        store.prune(Retention(keep_last=1))
        store.pin(store.get("t", 2).id, pinned=False)
        self._kept(store, 2, 6, total=6)
        store.delete_checkpoint(store.get("t", 6).id)
        latest = store.latest("t")
        assert latest is not None
        assert (latest.seq, latest.state) == (2, state_at(2))
        store.prune(Retention(keep_last=1))
        self._kept(store, 2, total=6)

    def test_max_age_keeps_the_young(self) -> None:
        """Older checkpoints are dropped, the newest stays whatever its age."""
        store = self.store()
        for number in range(1, 5):
            store.save("t", state_at(number))
            self.clock.advance(60)
        store.prune(Retention(max_age=timedelta(seconds=150)))
        self._kept(store, 3, 4, total=4)
        self.clock.advance(10_000)
        store.prune(Retention(max_age=1))
        self._kept(store, 4, total=4)

    def test_a_ttl_takes_whole_threads(self) -> None:
        """It deletes threads without a write for that long."""
        store = self.store()
        store.save("old", 1)
        self.clock.advance(100)
        store.save("young", 1)
        assert store.prune(Retention(ttl=100)).threads == 1
        assert [info.thread_id for info in store.threads()] == ["young"]

    def test_delete_on_takes_threads_of_that_status(self) -> None:
        """The others stay."""
        store = self.store()
        for status in ("complete", "failed", "idle"):
            store.save(status, 1, status=status)
        assert store.prune(Retention(delete_on=("complete", "failed"))).threads == 2
        assert [info.thread_id for info in store.threads()] == ["idle"]

    def test_a_thread_with_a_pinned_checkpoint_stays(self) -> None:
        """Neither `ttl` nor `delete_on` deletes it, until the pin is removed, or a retention ignores pins."""
        store = self.store()
        for thread_id in ("idle too long", "complete"):
            grown(store, thread_id, 2)
            store.pin(store.get(thread_id, 1).id)
        store.save("complete", state_at(3), status="complete")
        self.clock.advance(1000)
        both = Retention(ttl=100, delete_on=("complete",))
        for retention in (Retention(ttl=100), Retention(delete_on=("complete",))):
            assert store.prune(retention, dry_run=True) == Freed()
            assert store.prune(retention) == Freed()
        assert {info.thread_id for info in store.threads()} == {"idle too long", "complete"}
        assert store.get("complete", 1).state == state_at(1)
        store.pin(store.get("complete", 1).id, pinned=False)
        assert store.prune(both).threads == 1
        assert [info.thread_id for info in store.threads()] == ["idle too long"]
        assert store.prune(replace(both, keep_pinned=False)).threads == 1
        assert list(store.threads()) == []

    def test_prune_takes_the_stores_own_retention(self) -> None:
        """Without one it raises an error that asks for it."""
        raises(ConfigurationError, self.store().prune)
        store = self.store(retention=Retention(keep_last=1))
        grown(store, "t", 3)
        assert store.prune().checkpoints == 2

    def test_a_handle_that_wrote_before_a_prune_can_write_after_it(self) -> None:
        """What it remembers may have been pruned, and must not be referred to."""
        store, other = self.store(), self.store()
        grown(store, "t", 9)
        other.prune(Retention(keep_last=1))
        for number in range(10, 16):
            store.save("t", state_at(number))
            assert self.store().get("t", number).state == state_at(number)
        report = store.verify()
        assert report.ok, report.problems

    def test_an_erased_thread_has_only_its_present(self) -> None:
        """One checkpoint with the present state is left, and the thread can be saved to."""
        store = self.store()
        grown(store, "t", 9)
        store.pin(store.get("t", 2).id)
        store.erase("t")
        (info,) = store.history("t").items
        assert store.load(info.id).state == state_at(9)
        assert store.thread("t").row_count == 1
        assert len(self.base.index(_key("t"), None, None)) == 1
        assert store.append("t", "list", 1).state["list"] == [*state_at(9)["list"], 1]
        report = store.verify()
        assert report.ok, report.problems


def _key(thread_id: str) -> bytes:
    return b"\0" + thread_id.encode()
