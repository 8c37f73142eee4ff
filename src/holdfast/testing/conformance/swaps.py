"""Heads and the one atomic operation: all or nothing, and only onto the expected head."""

from msgspec.structs import replace

from holdfast.records.rows import Drop
from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.samples import Line, blobs, head, key, row, rows


class Heads(Kit):
    """Test what `heads` promises."""

    def test_a_thread_that_never_was_has_no_head(self) -> None:
        """The answer for a thread without a head is None."""
        assert self.opened().heads([key()]) == [None]

    def test_heads_of_no_thread_are_no_heads(self) -> None:
        """Without threads nothing is returned."""
        assert self.opened().heads([]) == []

    def test_a_head_is_kept_byte_for_byte(self) -> None:
        """A head is opaque bytes, returned as they were given."""
        line = Line(self.opened())
        swap = line.put(head(owner="näme\0", summary=bytes(range(256))))
        assert line.encoded == swap.replacement

    def test_heads_come_in_the_order_asked_for(self) -> None:
        """There is one answer for each thread, in order, also where some are missing."""
        backend = self.opened()
        lines = [Line(backend, key(name)) for name in ("b", "a", "c")]
        for line in lines:
            line.put(head())
        asked = [key("c"), key("none"), key("a"), key("b"), key("a")]
        stored = {line.key: line.stored for line in lines}
        assert backend.heads(asked) == [stored.get(thread) for thread in asked]

    def test_a_read_after_an_acknowledged_swap_sees_it(self) -> None:
        """Every read after a swap sees the new head."""
        line = Line(self.opened())
        for seq in range(1, 30):
            swap = line.put(head(seq))
            assert line.encoded == swap.replacement


class Swaps(Kit):
    """Test what `swap` promises."""

    def test_no_swaps_have_no_outcomes(self) -> None:
        """An empty batch does nothing."""
        assert self.opened().swap([]) == []

    def test_nothing_expected_creates_a_thread(self) -> None:
        """A swap that expects nothing creates the thread."""
        line = Line(self.opened())
        line.put(head(), rows(1), blobs(1))
        assert line.head == head()
        assert line.seqs == [1]

    def test_nothing_expected_is_refused_where_a_head_is(self) -> None:
        """A swap that expects nothing leaves an existing head alone."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        line.refused(replace(line.swap(head(2), rows(2)), expected=b""))
        assert (line.encoded, line.seqs) == (line.stored, [1])

    def test_a_head_expected_where_none_is_is_refused(self) -> None:
        """A swap that expects a head does not create a thread."""
        backend = self.opened()
        line, other = Line(backend), Line(backend, key("other"))
        other.put(head())
        line.refused(replace(line.swap(head(2), rows(2), blobs(2)), expected=other.stored))
        assert line.encoded is None
        assert line.seqs == []
        assert backend.blobs(line.key, list(blobs(2))) == {}
        assert [thread for thread, _ in backend.threads(b"", (), (), None, 10).heads] == [other.key]

    def test_heads_are_compared_byte_by_byte(self) -> None:
        """A head that differs in any byte is not the expected one, even with the same seq."""
        line = Line(self.opened())
        line.put(head(3, token=7))
        stale = line.swap(head(4), rows(4))
        for fields in (
            {"digest": b"x" * 16},
            {"incarnation": b"y" * 16},
            {"token": 8},
            {"owner": "o", "expires_at": 9},
        ):
            line.put(head(3, **fields))
            line.refused(stale)
            assert line.encoded == line.stored
            assert line.seqs == []

    def test_a_refused_swap_changes_nothing(self) -> None:
        """A refused swap adds no row and no blob, drops nothing and consumes nothing."""
        line = Line(self.opened())
        line.put(head(1), rows(1), blobs(1))
        line.backend.post(line.key, "kept", b"message")
        for drop in (Drop(everything=True), Drop(((0, 9),), tuple(blobs(1)), secure=True)):
            swap = line.swap(head(2), rows(2), blobs(2), ("kept",), drop)
            line.refused(replace(swap, expected=swap.replacement))
        assert (line.encoded, line.seqs) == (line.stored, [1])
        assert line.backend.blobs(line.key, list(blobs(1, 2))) == blobs(1)
        assert line.backend.inbox(line.key) == {"kept": b"message"}

    def test_rows_and_blobs_come_with_their_head(self) -> None:
        """What an accepted swap adds is there, exactly."""
        line = Line(self.opened())
        line.put(head(3), rows(1, 2, 3), blobs(1, 2))
        assert line.backend.rows(line.key, 3) == list(rows(1, 2, 3))
        assert line.backend.blobs(line.key, list(blobs(1, 2))) == blobs(1, 2)

    def test_a_swap_may_change_the_head_alone(self) -> None:
        """Claims and marks are swaps without rows."""
        line = Line(self.opened())
        line.put(head(1), rows(1), blobs(1))
        line.put(head(1, token=1, owner="me", expires_at=5))
        assert line.head.owner == "me"
        assert line.backend.rows(line.key, 1) == list(rows(1))
        assert line.backend.blobs(line.key, list(blobs(1))) == blobs(1)

    def test_one_refused_does_not_touch_the_others(self) -> None:
        """The outcomes of a batch are in its order, and each is decided alone."""
        backend = self.opened()
        lines = [Line(backend, key(name)) for name in "abcde"]
        for line in lines:
            line.put(head(1), rows(1))
        swaps = [line.swap(head(2), rows(2), blobs(2)) for line in lines]
        wanted = [number not in {1, 4} for number in range(5)]
        batch = [swap if good else replace(swap, expected=b"?") for swap, good in zip(swaps, wanted, strict=True)]
        assert backend.swap(batch) == wanted
        for line, swap, good in zip(lines, swaps, wanted, strict=True):
            assert line.encoded == (swap.replacement if good else line.stored)
            assert line.seqs == ([2, 1] if good else [1])

    def test_a_batch_may_make_threads_and_change_others(self) -> None:
        """One batch can hold new and old threads."""
        backend = self.opened()
        old, new = Line(backend, key("a")), Line(backend, key("b"))
        old.put(head(1), rows(1))
        assert backend.swap([old.swap(head(2), rows(2)), new.swap(head(1), rows(1))]) == [True, True]
        assert (old.seqs, new.seqs) == ([2, 1], [1])

    def test_the_same_swap_after_a_lost_reply_is_refused_and_harmless(self) -> None:
        """A writer that lost the reply may send the same swap again: its head is there, once."""
        line = Line(self.opened())
        for swap in (line.swap(head(1), rows(1), blobs(1)), line.swap(head(2), rows(2), blobs(2))):
            current = replace(swap, expected=line.stored)
            assert line.backend.swap([current]) == [True]
            line.stored = swap.replacement
            line.refused(current)
            assert line.encoded == line.stored
        assert line.backend.rows(line.key, 2) == list(rows(1, 2))

    def test_rows_and_blobs_may_be_there_already(self) -> None:
        """A repeated write brings equal rows and blobs again, under another head."""
        line = Line(self.opened())
        line.put(head(1), rows(1), blobs(1))
        line.put(head(1, token=1), rows(1), blobs(1))
        assert line.backend.rows(line.key, 1) == list(rows(1))
        assert line.backend.blobs(line.key, list(blobs(1))) == blobs(1)
        assert line.seqs == [1]

    def test_a_swap_that_need_not_wait_does_not_need_to(self) -> None:
        """Without another writer, `wait=False` works like waiting."""
        line = Line(self.opened())
        first = line.swap(head(1), rows(1))
        assert line.backend.swap([first], wait=False) == [True]
        assert line.backend.swap([first], wait=False) == [False]

    def test_large_rows_and_blobs_are_exact(self) -> None:
        """Megabytes in one swap are returned unchanged."""
        line = Line(self.opened())
        large = bytes(range(256)) * 8192
        names = [number.to_bytes(16, "big") for number in range(3)]
        line.put(head(1), (row(1, body=large),), {name: large + name for name in names})
        assert line.backend.rows(line.key, 1) == [row(1, body=large)]
        assert line.backend.blobs(line.key, names) == {name: large + name for name in names}

    def test_many_rows_in_one_swap_are_all_there(self) -> None:
        """A queue of rows of one thread is one swap."""
        line = Line(self.opened())
        line.put(head(700), rows(*range(1, 701)))
        assert line.backend.rows(line.key, 700) == list(rows(*range(1, 701)))

    def test_an_empty_body_is_a_body(self) -> None:
        """A body may have no bytes."""
        line = Line(self.opened())
        line.put(head(1), (row(1, body=b""),), {b"i" * 16: b""})
        assert line.backend.rows(line.key, 1) == [row(1, body=b"")]
        assert line.backend.blobs(line.key, [b"i" * 16]) == {b"i" * 16: b""}
