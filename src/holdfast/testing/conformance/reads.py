"""Reading rows, blobs and the index: exactly what is asked for, and nothing of another thread."""

from msgspec.structs import replace

from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.samples import EVERY_BYTE, Line, blob, blobs, head, key, row, rows


class Rows(Kit):
    """Test what `rows` and `blobs` promise."""

    def test_rows_begin_at_the_base_and_end_at_the_seq(self) -> None:
        """`rows` returns base..seq, in order: none before the base, none after the seq."""
        line = Line(self.opened())
        line.put(head(5, base=3), (*rows(1, 2), *rows(3, 4, 5, base=3)))
        line.put(head(6, base=6), (row(6, 6),))
        assert line.backend.rows(line.key, 5) == list(rows(3, 4, 5, base=3))
        assert line.backend.rows(line.key, 4) == list(rows(3, 4, base=3))
        assert line.backend.rows(line.key, 3) == list(rows(3, base=3))
        assert line.backend.rows(line.key, 2) == list(rows(1, 2))
        assert line.backend.rows(line.key, 6) == [row(6, 6)]

    def test_a_row_that_is_not_there_has_no_rows(self) -> None:
        """The list is empty for a seq that was never written, or cannot be."""
        line = Line(self.opened())
        line.put(head(3), rows(1, 2, 3))
        for seq in (4, 0, -1, 1 << 20, 1 << 40):
            assert line.backend.rows(line.key, seq) == []

    def test_a_thread_that_is_not_there_has_no_rows(self) -> None:
        """The list is empty for a new thread."""
        assert self.opened().rows(key(), 1) == []

    def test_a_gap_is_left_out(self) -> None:
        """The rows around a gap are returned."""
        line = Line(self.opened())
        line.put(head(5), rows(1, 3, 5))
        assert line.backend.rows(line.key, 5) == list(rows(1, 3, 5))

    def test_rows_above_the_head_are_rows(self) -> None:
        """A backend does not decide which rows count."""
        line = Line(self.opened())
        line.put(head(1), rows(1, 2))
        assert line.backend.rows(line.key, 1) == list(rows(1))

    def test_a_long_thread_is_read_in_its_order(self) -> None:
        """Seqs are numbers: 10 follows 9, and 300 follows 255."""
        line = Line(self.opened())
        for start in range(1, 301, 100):
            line.put(head(start + 99), rows(*range(start, start + 100)))
        assert [entry.seq for entry in line.backend.rows(line.key, 300)] == list(range(1, 301))

    def test_a_seq_may_be_large(self) -> None:
        """A hundred million rows are far from any limit."""
        line = Line(self.opened())
        first = 100_000_000
        line.put(head(first + 1, base=first), rows(first, first + 1, base=first))
        assert line.backend.rows(line.key, first + 1) == list(rows(first, first + 1, base=first))
        assert line.seqs == [first + 1, first]

    def test_a_missing_blob_is_left_out(self) -> None:
        """The other blobs are returned."""
        line = Line(self.opened())
        line.put(head(), rows(1), blobs(1, 2))
        assert line.backend.blobs(line.key, [*blobs(1, 2), b"?" * 16]) == blobs(1, 2)

    def test_no_ids_have_no_blobs(self) -> None:
        """Without ids nothing is returned; nor for a new thread."""
        backend = self.opened()
        assert backend.blobs(key(), []) == {}
        assert backend.blobs(key(), list(blobs(1))) == {}

    def test_many_blobs_are_read_at_once(self) -> None:
        """One call can read two thousand ids."""
        line = Line(self.opened())
        many = blobs(*range(1, 2001))
        line.put(head(), rows(1), many)
        assert line.backend.blobs(line.key, list(many)) == many

    def test_blob_ids_may_be_any_bytes(self) -> None:
        """Ids are opaque bytes, with NUL, quotes, slashes and 0xff."""
        line = Line(self.opened())
        odd = {EVERY_BYTE[at : at + 16]: EVERY_BYTE[at:] for at in range(0, 256, 16)}
        line.put(head(), rows(1), odd)
        assert line.backend.blobs(line.key, list(odd)) == odd

    def test_blobs_belong_to_their_thread(self) -> None:
        """The same id in two threads means two blobs."""
        backend = self.opened()
        one, other = Line(backend, key("one")), Line(backend, key("other"))
        name = blob(1)[0]
        one.put(head(), rows(1), {name: b"of one"})
        assert backend.blobs(other.key, [name]) == {}
        other.put(head(), rows(1), {name: b"of the other"})
        assert backend.blobs(one.key, [name]) == {name: b"of one"}
        assert backend.blobs(other.key, [name]) == {name: b"of the other"}


class Indexes(Kit):
    """Test what `index` promises."""

    def _twelve(self) -> Line:
        line = Line(self.opened())
        line.put(head(12), rows(*range(1, 13)))
        return line

    def test_the_index_is_newest_first_with_empty_bodies(self) -> None:
        """The index has everything of a row except its body."""
        line = self._twelve()
        wanted = [replace(entry, body=b"") for entry in reversed(rows(*range(1, 13)))]
        assert line.backend.index(line.key, None, None) == wanted

    def test_before_is_not_included(self) -> None:
        """It lists rows with seq < before."""
        line = self._twelve()
        assert [entry.seq for entry in line.backend.index(line.key, 5, None)] == [4, 3, 2, 1]
        assert [entry.seq for entry in line.backend.index(line.key, 2, None)] == [1]
        assert line.backend.index(line.key, 1, None) == []

    def test_before_may_lie_beyond_the_rows(self) -> None:
        """Any number works."""
        line = self._twelve()
        assert len(line.backend.index(line.key, 1 << 40, None)) == 12
        assert line.backend.index(line.key, 0, None) == []
        assert line.backend.index(line.key, -5, None) == []

    def test_a_limit_takes_the_newest(self) -> None:
        """It lists up to `limit` rows, from the newest on."""
        line = self._twelve()
        assert [entry.seq for entry in line.backend.index(line.key, None, 3)] == [12, 11, 10]
        assert [entry.seq for entry in line.backend.index(line.key, 10, 2)] == [9, 8]
        assert len(line.backend.index(line.key, None, 99)) == 12

    def test_gaps_are_not_filled(self) -> None:
        """Only rows that are there count towards the limit."""
        line = Line(self.opened())
        line.put(head(9), rows(1, 4, 9))
        assert [entry.seq for entry in line.backend.index(line.key, None, 2)] == [9, 4]
        assert [entry.seq for entry in line.backend.index(line.key, 9, 2)] == [4, 1]

    def test_a_thread_that_is_not_there_has_no_index(self) -> None:
        """The list is empty."""
        assert self.opened().index(key(), None, None) == []

    def test_neighbours_are_not_listed(self) -> None:
        """Threads with similar keys have their own index."""
        backend = self.opened()
        for name in ("a", "aa", "b"):
            Line(backend, key(name)).put(head(2), rows(1, 2))
        Line(backend, key("a\0")).put(head(1), rows(1))
        assert [entry.seq for entry in backend.index(key("a"), None, None)] == [2, 1]
        assert [entry.seq for entry in backend.index(key("a\0"), None, None)] == [1]
