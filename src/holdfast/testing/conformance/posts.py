"""Messages for a thread: posted once, read in order, consumed by a swap."""

from holdfast.records.rows import Drop
from holdfast.stores.backend import inboxes
from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.samples import EVERY_BYTE, Line, head, key, rows


class Posts(Kit):
    """Test what `post` and `inbox` promise."""

    def test_the_first_message_of_a_key_stays(self) -> None:
        """`post` returns True for the first, and False for any other, which changes nothing."""
        backend = self.opened()
        assert backend.post(key(), "k", b"first") is True
        assert backend.post(key(), "k", b"second") is False
        assert backend.post(key(), "k", b"first") is False
        assert backend.inbox(key()) == {"k": b"first"}

    def test_an_inbox_may_be_empty(self) -> None:
        """It is empty for a new thread, and for one without messages."""
        line = Line(self.opened())
        assert line.backend.inbox(line.key) == {}
        line.put(head())
        assert line.backend.inbox(line.key) == {}

    def test_many_inboxes_at_once_are_those_of_each(self) -> None:
        """They come in the order asked for, also for a new thread; a store that cannot batch reads one by one."""
        backend = self.opened()
        threads = [key(f"thread {number}") for number in range(20)]
        for number in range(0, 20, 3):
            backend.post(threads[number], "b", b"%d" % number)
            backend.post(threads[number], "a", b"first")
        found = inboxes(backend, threads)
        assert found == [backend.inbox(thread) for thread in threads]
        assert list(found[3]) == ["a", "b"]
        assert inboxes(backend, []) == []

    def test_messages_come_in_the_order_of_their_keys(self) -> None:
        """The order in which they were posted does not matter."""
        backend = self.opened()
        for name in ("b", "a", "ä", "B", "10", "9", "a\0", "aa", "\U0001f600", "\uffff"):
            backend.post(key(), name, name.encode())
        names = list(backend.inbox(key()))
        assert names == sorted(names)
        assert len(names) == 10

    def test_keys_and_messages_may_be_anything(self) -> None:
        """Keys are exact text, messages exact bytes."""
        backend = self.opened()
        odd = {
            "": b"",
            "../up": EVERY_BYTE,
            "a/b": b"\0",
            "nul\0": b"1",
            "\u00e9": b"composed",
            "e\u0301": b"decomposed",
            "'; drop table posts; --": b"2",
            "long" * 100: b"long" * 5000,
            "a%2Fb": b"3",
        }
        for name, value in odd.items():
            assert backend.post(key(), name, value)
        assert backend.inbox(key()) == odd

    def test_a_message_needs_no_thread(self) -> None:
        """It waits for a thread that begins later, and does not hinder it."""
        line = Line(self.opened())
        assert line.backend.post(line.key, "early", b"message")
        assert line.encoded is None
        assert line.seqs == []
        line.put(head(), rows(1))
        assert line.backend.inbox(line.key) == {"early": b"message"}

    def test_a_message_changes_no_head(self) -> None:
        """A writer that read the head earlier can still swap it."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        line.backend.post(line.key, "k", b"v")
        assert line.encoded == line.stored
        line.put(head(2), rows(2))

    def test_a_swap_consumes_what_it_names(self) -> None:
        """The others stay; naming a missing one is no error."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        for name in ("a", "b", "c"):
            line.backend.post(line.key, name, b"v")
        line.put(head(2), rows(2), consumed=("a", "c", "missing"))
        assert line.backend.inbox(line.key) == {"b": b"v"}

    def test_a_swap_may_consume_and_do_nothing_else(self) -> None:
        """A swap with only a new head can consume."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        line.backend.post(line.key, "a", b"v")
        line.put(head(1, token=1), consumed=("a",))
        assert line.backend.inbox(line.key) == {}
        assert line.seqs == [1]

    def test_a_consumed_key_is_free_again(self) -> None:
        """After it was consumed, a message of the same key is a new one."""
        line = Line(self.opened())
        line.backend.post(line.key, "k", b"first")
        line.put(head(1), rows(1), consumed=("k",))
        assert line.backend.post(line.key, "k", b"second") is True
        assert line.backend.inbox(line.key) == {"k": b"second"}

    def test_messages_belong_to_their_thread(self) -> None:
        """The same key in two threads means two messages."""
        backend = self.opened()
        assert backend.post(key("a"), "k", b"of a")
        assert backend.post(key("b"), "k", b"of b")
        Line(backend, key("a")).put(head(), rows(1), consumed=("k",))
        assert backend.inbox(key("a")) == {}
        assert backend.inbox(key("b")) == {"k": b"of b"}

    def test_dropping_everything_drops_messages(self) -> None:
        """Their keys can be used again."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        line.backend.post(line.key, "k", b"v")
        line.put(head(0, deleted=True, status=""), drop=Drop(everything=True))
        assert line.backend.inbox(line.key) == {}
        assert line.backend.post(line.key, "k", b"again") is True

    def test_other_drops_leave_messages(self) -> None:
        """Dropping rows and blobs keeps messages."""
        line = Line(self.opened())
        line.put(head(3), rows(1, 2, 3))
        line.backend.post(line.key, "k", b"v")
        line.put(head(3, base=3), drop=Drop(((1, 3),), secure=True))
        assert line.backend.inbox(line.key) == {"k": b"v"}
