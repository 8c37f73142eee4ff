"""Forking, comparing, exporting, importing, backing up."""

from typing import Any

from holdfast.records.checkpoint import Change
from holdfast.records.errors import Conflict, Corrupt, KeyUnavailable, LeaseHeld, NotFound
from holdfast.records.retention import Retention
from holdfast.stores.decisions import claimed
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.conformance.samples import Line, key
from holdfast.testing.conformance.store_kit import EVERYTHING, StoreKit, raises, seqs
from holdfast.testing.conformance.store_upkeep import grown, state_at
from holdfast.testing.exact import assert_exact

LEASE = 1 << 50


class Forking(StoreKit):
    """Test what `fork` and `diff` promise."""

    def test_a_fork_begins_with_the_checkpoint(self) -> None:
        """A fork of any checkpoint is exact, and the two threads are then independent."""
        store = self.store()
        grown(store, "t", 8)
        origin = store.get("t", 4)
        assert store.fork(origin.id, "f") == "f"
        fork = store.latest("f")
        assert fork is not None
        assert (fork.seq, fork.state, fork.parent_id) == (1, state_at(4), origin.id)
        store.append("f", "list", "only here")
        store.delete("t")
        assert store.get("f", 1).state == state_at(4)
        assert store.get("f", 2).state["list"][-1] == "only here"
        assert store.verify().ok

    def test_a_fork_without_a_name_gets_one(self) -> None:
        """It gets a new name each time."""
        store = self.store()
        names: set[str] = set()
        for thread_id in ("t", "t" * 512, "ü" * 256):
            checkpoint = store.save(thread_id, 1)
            names |= {store.fork(checkpoint.id) for _ in range(3)}
        assert len(names) == 9
        assert all(store.latest(name) for name in names)

    def test_a_fork_may_begin_with_another_state(self) -> None:
        """The state may also be None."""
        store = self.store()
        checkpoint = store.save("t", {"a": 1}, labels={"app": "x"}, metadata={"m": 1})
        store.fork(checkpoint.id, "f", state={"a": 2})
        latest = store.latest("f")
        assert latest is not None
        assert latest.state == {"a": 2}
        assert store.thread("f").labels == {"app": "x"}

    def test_a_fork_takes_no_place_that_is_taken(self) -> None:
        """A fork to an existing thread raises `Conflict`, and that thread is unchanged."""
        store = self.store()
        checkpoint = store.save("t", 1)
        store.save("taken", 2)
        raises(Conflict, store.fork, checkpoint.id, "taken")
        raises(Conflict, store.fork, checkpoint.id, "t")
        raises(NotFound, store.fork, "t@9.00000000", "f")
        assert store.get("taken", 1).state == 2

    def test_a_fork_has_its_own_keys(self) -> None:
        """Idempotency keys of the source have no effect in the fork."""
        store = self.store()
        checkpoint = store.save("t", 1, idempotency_key="k")
        store.fork(checkpoint.id, "f")
        assert store.save("f", 2, idempotency_key="k").seq == 2

    def test_a_diff_names_what_differs(self) -> None:
        """It has paths with old and new values, exactly."""
        store = self.store()
        one = store.save("t", {"a": 1, "b": [1, 2], "c": {"d": "x"}, "gone": 0})
        two = store.save("t", {"a": True, "b": [1, 2, 3], "c": {"d": "y"}, "new": None})
        assert store.diff(one.id, two.id) == [
            Change(("a",), "changed", 1, True),
            Change(("b", 2), "added", None, 3),
            Change(("c", "d"), "changed", "x", "y"),
            Change(("gone",), "removed", 0, None),
            Change(("new",), "added", None, None),
        ]
        assert store.diff(one.id, one.id) == []


class Moving(StoreKit):
    """Test what `export`, `import_` and `backup` promise."""

    def _bundle(self, **keys: Any) -> str:
        store = self.store()
        grown(store, "t", 8)
        store.save("t", EVERYTHING, labels={"app": "x"}, metadata={"m": 1}, status="failed", idempotency_key="k")
        store.pin(store.get("t", 2).id)
        store.prune(Retention(keep_last=4))
        path = str(self.directory / "thread.bundle")
        store.export("t", path, **keys)
        return path

    def test_a_thread_travels_with_its_history(self) -> None:
        """Another store gets every visible checkpoint, labels, status, pins and keys."""
        path = self._bundle()
        here, there = self.store(), self.store(MemoryBackend())
        assert there.import_(path) == "t"
        assert seqs(there, "t") == seqs(here, "t") == [9, 8, 7, 6, 2]
        for info in here.history("t"):
            assert_exact(here.load(info.id).state, there.load(info.id).state)
        assert [*there.history("t")] == [*here.history("t")]
        assert there.thread("t").labels == {"app": "x"}
        assert there.thread("t").status == "failed"
        again = there.save("t", EVERYTHING, idempotency_key="k", metadata={"m": 1})
        assert again.seq == 9
        assert there.save("t", {"goes": "on"}).seq == 10
        report = there.verify()
        assert report.ok, report.problems

    def test_an_import_under_another_name_is_another_life(self) -> None:
        """It has the same history; ids of the old thread do not lead to it."""
        path = self._bundle()
        store = self.store()
        assert store.import_(path, to="copy") == "copy"
        assert seqs(store, "copy") == seqs(store, "t")
        for seq in seqs(store, "t"):
            assert_exact(store.get("t", seq).state, store.get("copy", seq).state)
            assert store.get("copy", seq).id.partition("@")[2] != store.get("t", seq).id.partition("@")[2]
        assert store.verify().ok

    def test_an_import_takes_no_place_that_is_taken(self) -> None:
        """It raises `Conflict`, also for a deleted thread."""
        path = self._bundle()
        store = self.store()
        raises(Conflict, store.import_, path)
        store.delete("t")
        raises(Conflict, store.import_, path)
        store.revive("t")
        assert store.import_(path) == "t"
        assert store.get("t", 8).state == state_at(8)

    def test_a_bundle_may_be_encrypted(self) -> None:
        """It opens only with the key; and a plain one is refused where keys are given."""
        path = self._bundle(keys=b"k" * 32)
        store = self.store(MemoryBackend())
        raises(KeyUnavailable, store.import_, path)
        raises(KeyUnavailable, store.import_, path, keys=b"x" * 32)
        assert store.import_(path, keys=b"k" * 32) == "t"
        plain = str(self.directory / "plain")
        store.export("t", plain)
        raises(Corrupt, store.import_, plain, to="u", keys=b"k" * 32)

    def test_a_damaged_bundle_is_refused(self) -> None:
        """One that is cut short, changed, or no bundle raises `Corrupt`, and nothing is imported."""
        path = self._bundle()
        with open(path, "rb") as file:  # noqa: PTH123
            whole = file.read()
        store = self.store(MemoryBackend())
        damaged = self.directory / "damaged"
        places = [0, 5, 20, 30, len(whole) // 2, len(whole) - 1]
        for data in (
            *(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :] for at in places),
            *(whole[:at] for at in places),
            whole + b"more",
        ):
            damaged.write_bytes(data)
            raises(Corrupt, store.import_, damaged)
        raises(NotFound, store.import_, self.directory / "missing")
        assert list(store.threads()) == []

    def test_what_is_not_there_cannot_be_exported(self) -> None:
        """It raises `NotFound`, and writes no file."""
        raises(NotFound, self.store().export, "never", self.directory / "file")
        assert not (self.directory / "file").exists()

    def test_a_backup_is_held_by_nobody(self) -> None:
        """A run that holds a thread here does not hold its copy, which can be resumed at once."""
        from holdfast.stores.sqlite import SQLiteBackend

        store, path = self.store(), self.directory / "backup.db"
        store.save("t", 1)
        line = Line(self.base, key("t"))
        line.stored = line.encoded or b""
        line.put(claimed(line.head, "t", "somebody", LEASE, line.head.updated_at))
        store.backup(path)
        copy = self.store(self._keep(SQLiteBackend(str(path))))
        assert copy.thread("t").lease is None
        assert copy.save("t", 2).seq == 2
        raises(LeaseHeld, store.save, "t", 2)

    def test_a_backup_is_a_store(self) -> None:
        """It is a SQLite file with all namespaces; `Conflict` if the file exists."""
        from holdfast.stores.sqlite import SQLiteBackend

        store, other = self.store(), self.store(namespace="other")
        grown(store, "t", 12)
        other.save("t", {"a": 1}, labels={"app": "x"})
        store.save("gone", 1)
        store.delete("gone")
        path = self.directory / "backup.db"
        store.backup(path)
        raises(Conflict, store.backup, path)
        backend = self._keep(SQLiteBackend(str(path)))
        copy, copied = self.store(backend), self.store(backend, namespace="other")
        assert seqs(copy, "t") == seqs(store, "t")
        for seq in range(1, 13):
            assert copy.get("t", seq).state == state_at(seq)
        assert [info.thread_id for info in copied.threads(labels={"app": "x"})] == ["t"]
        assert [info.thread_id for info in copy.threads()] == ["t"]
        assert copy.verify().ok
