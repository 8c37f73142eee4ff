"""Reading: checkpoints and threads, page by page, and clear errors for what does not exist."""

from datetime import timedelta
from typing import Any

from holdfast.records.errors import ConfigurationError, InvalidId, NotFound, UnstorableValue
from holdfast.records.words import Status
from holdfast.testing.conformance.store_kit import StoreKit, raises, seqs


class Reading(StoreKit):
    """Test what `latest`, `get` and `load` promise."""

    def test_a_thread_that_never_was_has_no_latest(self) -> None:
        """`latest` returns None, and anything more specific raises `NotFound`."""
        store = self.store()
        assert store.latest("t") is None
        raises(NotFound, store.get, "t", 1)
        raises(NotFound, store.thread, "t")
        raises(NotFound, store.history, "t")

    def test_a_seq_that_is_not_there_is_not_found(self) -> None:
        """It raises for a seq before the first, after the last, or that is no seq."""
        store = self.store()
        store.save("t", 1)
        for seq in (0, -1, 2, 1 << 40):
            raises(NotFound, store.get, "t", seq)

    def test_an_id_that_is_none_is_not_found(self) -> None:
        """Any text that is no id is not found; what is not text is an invalid id."""
        store = self.store()
        checkpoint = store.save("t", 1)
        life = checkpoint.id.partition(".")[2]
        for text in (
            "",
            "t",
            "@",
            "t@",
            "t@1",
            "t@x.y",
            "t@1.",
            f"u@1.{life}",
            f"t@2.{life}",
            "t@1.ffffffff",
            f"t@٣.{life}",
        ):
            raises(NotFound, store.load, text)
        raises(InvalidId, store.load, 5)  # type: ignore[arg-type]

    def test_an_id_is_found_whatever_its_thread_is_called(self) -> None:
        """Thread ids may look like checkpoint ids."""
        store = self.store()
        for thread_id in ("a@1.ffff", "@", "a@b@c", "a.b", "@1."):
            checkpoint = store.save(thread_id, thread_id)
            assert store.load(checkpoint.id).state == thread_id
            assert store.load(checkpoint.id).thread_id == thread_id

    def test_latest_has_the_present_status(self) -> None:
        """It is the newest checkpoint, with the thread's status."""
        store = self.store()
        store.save("t", 1)
        store.save("t", 2, status="complete")
        latest = store.latest("t")
        assert latest is not None
        assert (latest.seq, latest.state, latest.status) == (2, 2, Status.COMPLETE)
        assert store.get("t", 1).status == Status.IDLE

    def test_checkpoints_are_equal_by_their_id(self) -> None:
        """It does not matter how they were loaded."""
        store = self.store()
        one, two = store.save("t", 1), store.save("t", 2)
        assert one == store.get("t", 1)
        assert one != two
        assert len({one, store.get("t", 1), two}) == 2
        assert one.id in repr(one)


class Histories(StoreKit):
    """Test what `history` promises."""

    def test_history_is_newest_first_in_pages(self) -> None:
        """Each checkpoint is listed once, for any page size."""
        store = self.store()
        for number in range(1, 24):
            store.save("t", number, metadata={"n": number})
        for limit in (1, 2, 5, 22, 23, 24):
            found: list[int] = []
            page: Any = store.history("t", limit=limit)
            while page is not None:
                assert len(page) == len(page.items) <= limit
                found += [info.metadata["n"] for info in page]
                page = page.next_page()
            assert found == list(range(23, 0, -1))

    def test_a_cursor_may_be_a_seq(self) -> None:
        """A page starts before this seq, or where the last page's `next` points."""
        store = self.store()
        for number in range(1, 8):
            store.save("t", number)
        assert [info.seq for info in store.history("t", cursor=4)] == [3, 2, 1]
        page = store.history("t", limit=3)
        assert [info.seq for info in store.history("t", cursor=page.next)] == [4, 3, 2, 1]
        assert list(store.history("t", cursor=1)) == []

    def test_where_compares_metadata(self) -> None:
        """All given top-level keys must be equal; pages hold only matches."""
        store = self.store()
        for number in range(1, 13):
            store.save("t", number, metadata={"even": number % 2 == 0, "third": number % 3, "n": [number]})
        assert [info.seq for info in store.history("t", where={"even": True})] == [12, 10, 8, 6, 4, 2]
        assert [info.seq for info in store.history("t", where={"even": True, "third": 0})] == [12, 6]
        assert [info.seq for info in store.history("t", where={"n": [5]})] == [5]
        assert list(store.history("t", where={"missing": None})) == []
        page: Any = store.history("t", where={"even": True}, limit=4)
        assert [info.seq for info in page] == [12, 10, 8, 6]
        assert [info.seq for info in page.next_page()] == [4, 2]

    def test_history_shows_what_a_checkpoint_does(self) -> None:
        """Ids lead to checkpoints, parents form a chain, and pins are shown."""
        store = self.store()
        for number in range(1, 5):
            store.save("t", {"n": number}, metadata={"n": number})
        store.pin(store.get("t", 2).id)
        infos = store.history("t").items
        for info, older in zip(infos, [*infos[1:], None], strict=True):
            assert info.parent_id == (older.id if older else None)
            assert store.load(info.id).state == {"n": info.metadata["n"]}
            assert info.pinned == (info.seq == 2)

    def test_a_page_has_bounds(self) -> None:
        """A limit that is too small or too large, and an invalid cursor, are refused."""
        store = self.store()
        store.save("t", 1)
        for limit in (0, -1, 10**9):
            raises(ConfigurationError, store.history, "t", limit=limit)
            raises(ConfigurationError, store.threads, limit=limit)
        raises(ConfigurationError, store.history, "t", cursor="nonsense")

    def test_a_long_history_is_whole(self) -> None:
        """Hundreds of rows are read, page by page."""
        store = self.store()
        for number in range(1, 301):
            store.append("t", "list", number)
        assert seqs(store, "t") == list(range(300, 0, -1))
        assert [info.seq for info in store.history("t", limit=299)] == list(range(300, 1, -1))
        for seq in (1, 2, 128, 129, 255, 256, 257, 300):
            assert store.get("t", seq).state == {"list": list(range(1, seq + 1))}


class Threads(StoreKit):
    """Test what `threads`, `thread` and `stats` promise."""

    def test_threads_are_listed_by_status_and_labels(self) -> None:
        """A thread is listed if it has any of the statuses and all of the labels."""
        store = self.store()
        store.save("a", 1, status="working", labels={"app": "x", "user": "ü"})
        store.save("b", 1, status="failed", labels={"app": "x"})
        store.save("c", 1)

        def listed(**filters: Any) -> set[str]:
            return {info.thread_id for info in store.threads(**filters)}

        assert listed() == {"a", "b", "c"}
        assert listed(status="failed") == {"b"}
        assert listed(status=Status.FAILED) == {"b"}
        assert listed(status=["failed", Status.WORKING]) == {"a", "b"}
        assert listed(labels={"app": "x"}) == {"a", "b"}
        assert listed(labels={"app": "x", "user": "ü"}) == {"a"}
        assert listed(labels={"app": "y"}) == set()
        assert listed(labels={"app": "x"}, status="failed") == {"b"}

    def test_pages_of_threads_hold_each_once(self) -> None:
        """Each is listed once, for any page size."""
        store = self.store()
        names = {f"thread {number}" for number in range(11)}
        for name in sorted(names):
            store.save(name, name)
        for limit in (1, 3, 10, 11, 12):
            found: list[str] = []
            page: Any = store.threads(limit=limit)
            while page is not None:
                found += [info.thread_id for info in page]
                page = page.next_page()
            assert len(found) == 11
            assert set(found) == names

    def test_a_thread_shows_its_status_and_sizes(self) -> None:
        """It has status, newest checkpoint, labels, times and sizes."""
        store = self.store()
        store.save("t", {"a": "x" * 1000}, labels={"app": "x"})
        self.clock.advance(10)
        store.save("t", {"a": "y" * 1000}, status="input_required", labels={"user": "u"})
        info = store.thread("t")
        assert (info.thread_id, info.status, info.seq) == ("t", Status.INPUT_REQUIRED, 2)
        assert info.labels == {"app": "x", "user": "u"}
        assert info.updated_at - info.created_at == timedelta(seconds=10)
        assert info.row_count == 2
        assert info.stored_bytes > 0
        assert (info.lease, info.owner, info.error, info.pinned) == (None, None, None, ())
        assert store.threads().items == [info]

    def test_labels_stay_until_they_are_changed(self) -> None:
        """A save without labels keeps them; a new value replaces the old."""
        store, other = self.store(), self.store()
        store.save("t", 1, labels={"app": "x"})
        other.save("t", 2)
        other.append("t", "l", 3) if isinstance(store.get("t", 2).state, dict) else other.save("t", 3)
        assert store.thread("t").labels == {"app": "x"}
        store.save("t", 4, labels={"app": "z"})
        assert [info.labels for info in other.threads(labels={"app": "z"})] == [{"app": "z"}]
        assert list(store.threads(labels={"app": "x"})) == []

    def test_labels_are_text(self) -> None:
        """Anything else is refused."""
        store = self.store()
        for labels in ({"app": 1}, {1: "x"}):
            raises(UnstorableValue, store.save, "t", 1, labels=labels)  # type: ignore[arg-type]

    def test_stats_count_what_is_there(self) -> None:
        """They count threads, rows, bytes, and threads by status."""
        store = self.store()
        assert (store.stats().threads, store.stats().rows, store.stats().bytes) == (0, 0, 0)
        store.save("a", {"x": "y" * 100})
        store.save("a", 2)
        store.save("b", 3, status="failed")
        stats = store.stats()
        assert (stats.threads, stats.rows, stats.statuses) == (2, 3, {"idle": 1, "failed": 1})
        assert stats.bytes == store.thread("a").stored_bytes + store.thread("b").stored_bytes
        store.delete("a")
        assert store.stats().threads == 1

    def test_counts_say_how_many_threads_have_each_status(self) -> None:
        """They count this namespace, by plain words, without empty statuses and without deleted threads."""
        store, other = self.store(), self.store(namespace="another")
        assert store.counts() == {}
        for number in range(3):
            store.save(f"idle {number}", 1)
        store.save("b", 3, status="failed")
        other.save("b", 3, status="complete")
        assert store.counts() == {"idle": 3, "failed": 1} == store.stats().statuses
        assert {type(status) for status in store.counts()} == {str}
        store.save("idle 1", 2, status="failed")
        store.delete("idle 2")
        store.save("at work", 1, status="working")
        assert store.counts() == {"working": 1, "idle": 1, "failed": 2}
        assert other.counts() == {"complete": 1}

    def test_a_healthy_store_verifies(self) -> None:
        """It counts everything and reports no problem."""
        store = self.store()
        assert store.verify().ok
        for number in range(30):
            store.save("t", {"n": number, "text": "x" * 5000})
        report = store.verify()
        assert (report.ok, report.problems) == (True, [])
        assert report.checked > 30
