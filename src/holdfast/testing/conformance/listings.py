"""Listing threads: by namespace, status and label, in pages that neither repeat nor skip."""

from collections.abc import Collection, Sequence

from holdfast.records.head import decode_head
from holdfast.records.identity import namespace_prefix
from holdfast.stores.backend import Backend, Listing, count_listed, counts
from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.samples import Line, head, key, rows


def listed(
    backend: Backend,
    prefix: bytes = b"",
    statuses: Collection[str] = (),
    labels: Sequence[Collection[bytes]] = (),
    limit: int = 1000,
) -> list[bytes]:
    """Return the keys of a listing, over all of its pages."""
    found: list[bytes] = []
    cursor: str | None = None
    while True:
        listing = backend.threads(prefix, statuses, labels, cursor, limit)
        assert len(listing.heads) <= limit, "a page is longer than its limit"
        found += [thread for thread, _ in listing.heads]
        cursor = listing.next
        if cursor is None:
            return found
        assert isinstance(cursor, str), "a cursor is a str"
        assert listing.heads, "an empty page says that there is a next one"


class Listings(Kit):
    """Test what `threads` promises."""

    def _lines(self, *names: str, namespace: str = "") -> list[Line]:
        backend = self.opened()
        lines = [Line(backend, key(name, namespace)) for name in names]
        for line in lines:
            line.put(head(), rows(1))
        return lines

    def test_an_empty_store_lists_nothing(self) -> None:
        """It returns no thread and no next page."""
        assert self.opened().threads(b"", (), (), None, 10) == Listing([], None)

    def test_a_listing_shows_each_thread_with_its_head(self) -> None:
        """Each thread is listed once, with the head that `heads` returns."""
        lines = self._lines("a", "b", "c")
        listing = lines[0].backend.threads(b"", (), (), None, 10)
        assert sorted(listing.heads) == sorted((line.key, line.stored) for line in lines)
        assert listing.next is None

    def test_a_namespace_lists_its_own(self) -> None:
        """A prefix lists nothing of another namespace, even if that begins with the same letters."""
        backend = self.opened()
        names = ("", "n", "nn", "m", "\0", "n\0")
        for namespace in names:
            Line(backend, key("n", namespace)).put(head())
        for namespace in names:
            assert listed(backend, namespace_prefix(namespace)) == [key("n", namespace)]
        assert len(listed(backend)) == len(names)

    def test_a_status_lists_those_that_have_it(self) -> None:
        """A thread is listed if it has any of the given statuses; without statuses, all are."""
        lines = self._lines("a", "b", "c")
        lines[0].put(head(status="failed"))
        lines[1].put(head(status="complete"))
        backend = lines[0].backend
        assert listed(backend, statuses=["failed"]) == [lines[0].key]
        assert set(listed(backend, statuses=["failed", "complete"])) == {lines[0].key, lines[1].key}
        assert listed(backend, statuses=["working"]) == []
        assert len(listed(backend)) == 3

    def test_counts_are_those_of_the_listing(self) -> None:
        """Counts are right for every prefix, by the newest status, without threads that are not listed."""
        backend = self.opened()
        assert counts(backend, b"") == {}
        for namespace in ("", "n", "nn"):
            for number, status in enumerate(("idle", "failed", "idle", "complete", "working")):
                Line(backend, key(f"t{number}", namespace)).put(head(status=status))
        gone, moved = (Line(backend, key(name)) for name in ("gone", "moved"))
        gone.put(head())
        gone.put(head(deleted=True, status=""))
        backend.post(key("only a message"), "k", b"v")
        for status in ("idle", "input_required"):
            moved.put(head(status=status))
        prefixes = [b"", *(namespace_prefix(name) for name in ("", "n", "nn", "none")), key("t1"), key("t", "n")]
        for prefix in prefixes:
            assert counts(backend, prefix) == count_listed(backend, prefix), prefix
        assert counts(backend, namespace_prefix("n")) == {"idle": 2, "failed": 1, "complete": 1, "working": 1}
        assert counts(backend, namespace_prefix(""))["input_required"] == 1

    def test_a_status_is_the_newest(self) -> None:
        """A thread is listed under its newest status only."""
        (line,) = self._lines("a")
        for status in ("working", "idle", "input_required", "complete"):
            line.put(head(status=status))
            assert listed(line.backend, statuses=[status]) == [line.key]
        assert listed(line.backend, statuses=["working", "idle", "input_required"]) == []

    def test_a_status_changes_with_a_row(self) -> None:
        """The swap of a single row, the most common one, changes it too."""
        (line,) = self._lines("a")
        for seq, status in enumerate(("working", "failed", "idle"), 2):
            line.put(head(seq, status=status), rows(seq))
            assert listed(line.backend, statuses=[status]) == [line.key]

    def test_labels_list_those_that_have_them_all(self) -> None:
        """A thread is listed if it has a token of each collection."""
        one, two, three = self._lines("a", "b", "c")
        one.put(head(labels=(b"x", b"y")))
        two.put(head(labels=(b"x",)))
        backend = three.backend
        assert set(listed(backend, labels=[[b"x"]])) == {one.key, two.key}
        assert listed(backend, labels=[[b"x"], [b"y"]]) == [one.key]
        assert set(listed(backend, labels=[[b"y", b"x"]])) == {one.key, two.key}
        assert listed(backend, labels=[[b"z"]]) == []
        assert listed(backend, labels=[[b"x"], [b"z"]]) == []
        assert listed(backend, labels=[[b"x\0"]]) == []

    def test_labels_are_the_newest(self) -> None:
        """A removed label is no longer found; an added one is."""
        (line,) = self._lines("a")
        line.put(head(2, labels=(b"old", b"kept")), rows(2))
        line.put(head(3, labels=(b"kept", b"new")), rows(3))
        assert listed(line.backend, labels=[[b"old"]]) == []
        assert listed(line.backend, labels=[[b"kept"], [b"new"]]) == [line.key]
        line.put(head(4), rows(4))
        assert listed(line.backend, labels=[[b"kept"]]) == []

    def test_labels_and_statuses_go_together(self) -> None:
        """Both conditions must hold."""
        one, two = self._lines("a", "b")
        one.put(head(status="failed", labels=(b"x",)))
        two.put(head(status="idle", labels=(b"x",)))
        assert listed(one.backend, statuses=["idle"], labels=[[b"x"]]) == [two.key]
        assert listed(one.backend, namespace_prefix("other"), ["idle"], [[b"x"]]) == []

    def test_a_tombstone_is_not_listed(self) -> None:
        """A deleted thread keeps its head, and is in no listing."""
        one, two = self._lines("a", "b")
        one.put(head(0, deleted=True, status="idle", labels=(b"x",)))
        assert listed(one.backend) == [two.key]
        assert listed(one.backend, labels=[[b"x"]]) == []
        assert listed(one.backend, statuses=["idle"]) == [two.key]
        assert one.head.deleted

    def test_a_head_without_status_is_not_listed_until_it_has_one(self) -> None:
        """A revived thread is not listed before its first row."""
        (line,) = self._lines("a")
        line.put(head(0, status=""))
        assert listed(line.backend) == []
        line.put(head(1, status="idle"), rows(1))
        assert listed(line.backend) == [line.key]

    def test_a_message_does_not_make_a_thread(self) -> None:
        """A thread that only has messages is not listed."""
        backend = self.opened()
        backend.post(key("a"), "k", b"v")
        assert listed(backend) == []

    def test_pages_hold_every_thread_once(self) -> None:
        """Pages of any size have the same order."""
        lines = self._lines(*(f"t{number}" for number in range(23)))
        backend = lines[0].backend
        whole = listed(backend)
        assert sorted(whole) == sorted(line.key for line in lines)
        for limit in (1, 2, 5, 22, 23, 24):
            assert listed(backend, limit=limit) == whole

    def test_pages_of_a_filtered_listing_hold_every_thread_once(self) -> None:
        """Threads that do not match neither count nor end the listing."""
        lines = self._lines(*(f"t{number}" for number in range(20)))
        for line in lines[::3]:
            line.put(head(status="failed", labels=(b"x",)))
        wanted = sorted(line.key for line in lines[::3])
        for limit in (1, 2, 7, 8):
            assert sorted(listed(lines[0].backend, statuses=["failed"], limit=limit)) == wanted
            assert sorted(listed(lines[0].backend, labels=[[b"x"]], limit=limit)) == wanted

    def test_paging_is_stable_under_writes(self) -> None:
        """Threads that exist throughout are listed once each, whatever else is written between the pages."""
        lines = self._lines(*(f"t{number:02}" for number in range(12)))
        backend, found, cursor, turn = lines[0].backend, list[bytes](), None, 0
        while True:
            listing = backend.threads(b"", (), (), cursor, 2)
            found += [thread for thread, _ in listing.heads]
            cursor = listing.next
            if cursor is None:
                break
            turn += 1
            Line(backend, key(f"new{turn}")).put(head())
            for line in lines:
                line.put(head(turn + 1, status=("idle", "working")[turn % 2]), rows(turn + 1))
        kept = [thread for thread in found if thread in {line.key for line in lines}]
        assert sorted(kept) == [line.key for line in lines]
        assert len(set(found)) == len(found)

    def test_paging_is_stable_under_deletes(self) -> None:
        """A thread that is deleted between two pages hides no other."""
        lines = self._lines(*(f"t{number:02}" for number in range(10)))
        backend = lines[0].backend
        first = backend.threads(b"", (), (), None, 4)
        seen = [thread for thread, _ in first.heads]
        for line in lines:
            if line.key in {seen[0], seen[-1]}:
                line.put(head(0, deleted=True, status=""))
        rest: list[bytes] = []
        cursor = first.next
        while cursor is not None:
            listing = backend.threads(b"", (), (), cursor, 4)
            rest += [thread for thread, _ in listing.heads]
            cursor = listing.next
        assert sorted(seen + rest) == [line.key for line in lines]

    def test_listed_heads_can_be_swapped(self) -> None:
        """A listed head can be given as the expected one."""
        lines = self._lines("a", "b")
        backend = lines[0].backend
        for thread, encoded in backend.threads(b"", (), (), None, 10).heads:
            line = Line(backend, thread)
            line.stored = encoded
            line.put(head(decode_head(thread, encoded).seq + 1), rows(2))
