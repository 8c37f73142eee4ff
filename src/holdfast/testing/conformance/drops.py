"""What a swap removes: rows by ranges, blobs by id, or everything except what it adds."""

from holdfast.records.rows import Drop
from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.samples import Line, blobs, head, key, row, rows


class Drops(Kit):
    """Test what `Swap.drop` promises."""

    def _nine(self) -> Line:
        line = Line(self.opened())
        line.put(head(9), rows(*range(1, 10)), blobs(1, 2, 3))
        return line

    def test_ranges_of_rows_are_half_open(self) -> None:
        """A range drops its first seq, and keeps its last."""
        line = self._nine()
        line.put(head(9, row_count=4), drop=Drop(((1, 3), (4, 6), (8, 9))))
        assert line.seqs == [9, 7, 6, 3]

    def test_a_range_may_reach_beyond_what_is_there(self) -> None:
        """Dropping what is not there is no error."""
        line = self._nine()
        line.put(head(9, row_count=1), drop=Drop(((0, 9), (50, 60)), (b"x" * 16,)))
        assert line.seqs == [9]

    def test_an_empty_range_drops_nothing(self) -> None:
        """A range from n to n has no row."""
        line = self._nine()
        line.put(head(9, row_count=8), drop=Drop(((3, 3),)))
        assert line.seqs == list(range(9, 0, -1))

    def test_blobs_go_by_their_ids(self) -> None:
        """A drop removes only the named blobs."""
        line = self._nine()
        line.put(head(9, token=1), drop=Drop(blobs=tuple(blobs(1, 3))))
        assert line.backend.blobs(line.key, list(blobs(1, 2, 3))) == blobs(2)
        assert line.seqs == list(range(9, 0, -1))

    def test_everything_leaves_nothing(self) -> None:
        """Dropping everything removes all rows, blobs and messages."""
        line = self._nine()
        line.backend.post(line.key, "message", b"m")
        line.put(head(9, deleted=True), drop=Drop(everything=True))
        assert line.seqs == []
        assert line.backend.rows(line.key, 9) == []
        assert line.backend.blobs(line.key, list(blobs(1, 2, 3))) == {}
        assert line.backend.inbox(line.key) == {}
        assert line.head.deleted

    def test_everything_leaves_what_the_same_swap_adds(self) -> None:
        """The rows and blobs of the swap itself stay, even if equal ones were there already."""
        line = self._nine()
        line.put(head(9, base=9), (row(9, 9),), blobs(3, 4), drop=Drop(everything=True))
        assert line.backend.rows(line.key, 9) == [row(9, 9)]
        assert line.seqs == [9]
        assert line.backend.blobs(line.key, list(blobs(1, 2, 3, 4))) == blobs(3, 4)

    def test_a_drop_may_come_with_new_rows(self) -> None:
        """One swap can drop and add."""
        line = self._nine()
        line.put(head(10, base=10), (row(10, 10),), blobs(4), drop=Drop(((1, 10),), tuple(blobs(1, 2, 3))))
        assert line.seqs == [10]
        assert line.backend.blobs(line.key, list(blobs(1, 2, 3, 4))) == blobs(4)

    def test_a_drop_does_not_reach_what_comes_with_it(self) -> None:
        """Rows and blobs that the same swap adds are there, whatever it drops."""
        line = self._nine()
        line.put(head(10, base=10), (row(10, 10),), blobs(4), drop=Drop(((1, 50),), tuple(blobs(1, 2, 3, 4))))
        assert line.seqs == [10]
        assert line.backend.blobs(line.key, list(blobs(1, 2, 3, 4))) == blobs(4)

    def test_a_secure_drop_drops_the_same(self) -> None:
        """`secure` changes how rows are dropped, not which."""
        line = self._nine()
        line.put(head(9, row_count=1), drop=Drop(((1, 9),), tuple(blobs(1)), secure=True))
        assert line.seqs == [9]
        assert line.backend.blobs(line.key, list(blobs(1, 2))) == blobs(2)

    def test_other_threads_keep_theirs(self) -> None:
        """A drop reaches no other thread, whatever its seqs and blobs are."""
        line = self._nine()
        other = Line(line.backend, key("thread2"))
        other.put(head(9), rows(*range(1, 10)), blobs(1, 2, 3))
        other.backend.post(other.key, "message", b"m")
        line.put(head(9, deleted=True), drop=Drop(everything=True))
        assert other.seqs == list(range(9, 0, -1))
        assert other.backend.blobs(other.key, list(blobs(1, 2, 3))) == blobs(1, 2, 3)
        assert other.backend.inbox(other.key) == {"message": b"m"}

    def test_dropped_seqs_can_be_written_again(self) -> None:
        """After everything was dropped, a thread begins again and reads only what is new."""
        line = self._nine()
        line.put(head(0, deleted=True, status=""), drop=Drop(everything=True))
        line.put(head(0, token=1, status=""))
        line.put(head(1), (row(1, 1, b"second life"),))
        assert line.backend.rows(line.key, 1) == [row(1, 1, b"second life")]
        assert line.seqs == [1]

    def test_a_drop_survives_further_swaps(self) -> None:
        """What was dropped does not come back."""
        line = self._nine()
        line.put(head(9, base=5), drop=Drop(((1, 5),), tuple(blobs(1))))
        for seq in range(10, 15):
            line.put(head(seq, base=5), rows(seq))
        assert line.seqs == list(range(14, 4, -1))
        assert line.backend.blobs(line.key, list(blobs(1, 2))) == blobs(2)
