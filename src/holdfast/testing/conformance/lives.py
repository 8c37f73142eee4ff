"""Opening, closing and reopening: acknowledged writes are kept, and a closed backend raises an error."""

from collections.abc import Callable

from holdfast.history.tuning import Tuning
from holdfast.records.errors import StoreClosed
from holdfast.records.rows import Drop
from holdfast.records.words import Durability
from holdfast.testing.conformance.kit import Kit, needs_reopen
from holdfast.testing.conformance.listings import listed
from holdfast.testing.conformance.samples import Line, blobs, head, key, rows


class Lives(Kit):
    """Test what `open` and `close` promise, and what survives them."""

    def test_a_backend_says_what_it_is(self) -> None:
        """It has a kind, a tuning, a guarantee, and says if it fits an event loop."""
        backend = self.opened()
        assert backend.kind
        assert isinstance(backend.tuning, Tuning)
        assert isinstance(backend.inline, bool)
        guarantee = backend.guarantee()
        assert guarantee.store == backend.kind
        assert guarantee.level in Durability

    def test_opening_twice_is_opening_once(self) -> None:
        """The second `open` keeps what is stored."""
        line = Line(self.opened())
        line.put(head(), rows(1))
        line.backend.open()
        assert line.encoded == line.stored

    def test_closing_twice_is_closing_once(self) -> None:
        """The second `close` does nothing."""
        backend = self.opened()
        backend.close()
        backend.close()

    def test_a_healthy_backend_finds_nothing_wrong_with_itself(self) -> None:
        """`check` returns no problems, in an empty and in a full store."""
        line = Line(self.opened())
        assert line.backend.check() == []
        line.put(head(3), rows(1, 2, 3), blobs(1, 2))
        line.backend.post(line.key, "k", b"v")
        line.put(head(3, base=3), drop=Drop(((1, 3),), tuple(blobs(1))))
        assert line.backend.check() == []

    def test_after_close_every_call_raises_store_closed(self) -> None:
        """No call works, and none raises another error."""
        line = Line(self.opened())
        line.put(head(), rows(1))
        backend, swap = line.backend, line.swap(head(2), rows(2))
        backend.close()
        calls: list[Callable[[], object]] = [
            lambda: backend.heads([line.key]),
            lambda: backend.swap([swap]),
            lambda: backend.rows(line.key, 1),
            lambda: backend.blobs(line.key, [b"i" * 16]),
            lambda: backend.index(line.key, None, None),
            lambda: backend.threads(b"", (), (), None, 1),
            lambda: backend.post(line.key, "k", b"v"),
            lambda: backend.inbox(line.key),
        ]
        for call in calls:
            try:
                call()
            except StoreClosed:
                continue
            raise AssertionError("a closed backend answered")

    def _full(self) -> Line:
        line = Line(self.opened())
        line.put(head(4, labels=(b"x",), status="working"), rows(1, 2, 3, 4), blobs(1, 2))
        line.put(head(5, base=3, labels=(b"x",), status="failed"), rows(5, base=3), blobs(3), drop=Drop(((1, 3),)))
        line.backend.post(line.key, "left", b"message")
        return line

    def _is_all_there(self, line: Line) -> None:
        assert line.encoded == line.stored
        assert line.seqs == [5, 4, 3]
        assert line.backend.rows(line.key, 5) == [*rows(3, 4), *rows(5, base=3)]
        assert line.backend.blobs(line.key, list(blobs(1, 2, 3))) == blobs(1, 2, 3)
        assert line.backend.inbox(line.key) == {"left": b"message"}
        assert listed(line.backend, statuses=["failed"], labels=[[b"x"]]) == [line.key]
        assert line.backend.check() == []

    @needs_reopen
    def test_what_was_acknowledged_is_there_after_a_close(self) -> None:
        """Head, rows, blobs, messages and listings survive."""
        line = self._full()
        line.backend.close()
        line.backend = self.reopened(line.backend)
        self._is_all_there(line)
        line.put(head(6, base=3), rows(6, base=3), consumed=("left",))
        assert line.seqs == [6, 5, 4, 3]

    @needs_reopen
    def test_what_was_acknowledged_is_there_for_another_process(self) -> None:
        """A second backend on the same place sees everything while the first is open."""
        line = self._full()
        first = line.backend
        line.backend = self.reopened(first)
        self._is_all_there(line)
        line.put(head(6, base=3), rows(6, base=3))
        assert first.heads([line.key]) == [line.stored]
        assert [entry.seq for entry in first.index(line.key, None, 1)] == [6]

    @needs_reopen
    def test_two_backends_on_one_place_take_turns(self) -> None:
        """Each sees the other's swaps at once, and a swap onto an outdated head is refused."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        sides = [line.backend, self.reopened(line.backend)]
        for seq in range(2, 20):
            stale = line.swap(head(seq, token=99), rows(seq))
            line.backend = sides[seq % 2]
            line.put(head(seq), rows(seq))
            line.backend = sides[1 - seq % 2]
            line.refused(stale)
            assert line.head.seq == seq
            assert line.seqs[0] == seq

    @needs_reopen
    def test_a_drop_by_one_is_seen_by_the_other(self) -> None:
        """It is seen even if the first has files or pages of the old rows open."""
        line = Line(self.opened())
        line.put(head(5), rows(1, 2, 3, 4, 5), blobs(1, 2))
        first = line.backend
        assert len(first.rows(line.key, 5)) == 5
        line.backend = self.reopened(first)
        line.put(head(5, base=5), (rows(5, base=5)), drop=Drop(((1, 5),), tuple(blobs(1))))
        line.backend = first
        assert line.seqs == [5]
        assert first.blobs(line.key, list(blobs(1, 2))) == blobs(2)
        line.put(head(6, base=5), rows(6, base=5))
        assert line.seqs == [6, 5]

    @needs_reopen
    def test_a_message_left_by_one_is_read_by_the_other(self) -> None:
        """The other backend reads it, once."""
        first = self.opened()
        second = self.reopened(first)
        assert first.post(key(), "k", b"v") is True
        assert second.post(key(), "k", b"w") is False
        assert second.inbox(key()) == {"k": b"v"}
