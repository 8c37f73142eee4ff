"""Saving: exact, complete, in order, once."""

from datetime import UTC
from typing import Any

from holdfast.records.errors import Conflict, Deleted, HoldfastError, KeyReused, UnstorableValue
from holdfast.records.retention import Retention
from holdfast.records.words import Cause, Phase, Status
from holdfast.testing.conformance.store_kit import EVERYTHING, StoreKit, raises, seqs
from holdfast.testing.exact import assert_exact


class Saving(StoreKit):
    """Test what `save` promises."""

    def test_a_state_is_exactly_what_was_saved(self) -> None:
        """Types, order of keys, nan, -0.0: an accepted state is returned unchanged."""
        store = self.store()
        saved = store.save("t", EVERYTHING)
        for checkpoint in (saved, store.latest("t"), store.get("t", 1), store.load(saved.id), self.store().latest("t")):
            assert checkpoint is not None
            assert_exact(EVERYTHING, checkpoint.state)

    def test_any_value_is_a_state(self) -> None:
        """A state need not be a dict."""
        store = self.store()
        states: list[Any] = [None, 5, True, 1.0, "text", b"bytes", [], [1, [2]], {}, {1: 2}, (1,), {"a": 1}, {"a": {}}]
        for number, state in enumerate(states, 1):
            assert store.save("t", state).seq == number
        other = self.store()
        for number, state in enumerate(states, 1):
            assert_exact(state, other.get("t", number).state)

    def test_a_checkpoint_says_everything_about_itself(self) -> None:
        """Every field is there, and the same however it is loaded."""
        store = self.store()
        first = store.save("t", {"a": 1})
        self.clock.advance(1.5)
        saved = store.save(
            "t", {"a": 2}, metadata={"k": (1, 2)}, phase="post_llm", cause=Cause.EVENT, status=Status.WORKING
        )
        for found in (saved, store.latest("t"), store.get("t", 2), store.load(saved.id)):
            assert found is not None
            assert (found.id, found.checkpoint_id, found.thread_id, found.seq) == (saved.id, saved.id, "t", 2)
            assert (found.parent_id, found.status) == (first.id, Status.WORKING)
            assert (found.phase, found.cause, found.metadata) == (Phase.POST_LLM, Cause.EVENT, {"k": (1, 2)})
            assert (found.created_at - first.created_at).total_seconds() == 1.5
            assert found.created_at.tzinfo is UTC
            assert (found.steps, found.pending) == ([], [])
            assert found.version >= 1
        assert first.parent_id is None

    def test_seqs_count_without_gaps(self) -> None:
        """Each thread has 1, 2, 3."""
        store = self.store()
        for seq in range(1, 8):
            assert store.save("a", seq).seq == seq
            assert store.save("b", {"n": seq}).seq == seq
        assert seqs(store, "a") == [7, 6, 5, 4, 3, 2, 1]

    def test_every_checkpoint_stays_as_it_was(self) -> None:
        """Later saves do not change it."""
        store = self.store()
        state: dict[str, Any] = {"messages": [], "plan": {"step": 0}, "wide": {str(n): n for n in range(70)}}
        copies: list[str] = []
        for number in range(1, 60):
            state["messages"].append({"role": "user", "content": f"message {number} " * 20})
            state["plan"]["step"] = number
            if number % 7 == 0:
                state["messages"].reverse()
            if number % 11 == 0:
                del state["messages"][3:9]
            copies.append(repr(state))
            store.save("t", state)
        for number, copy in enumerate(copies, 1):
            assert repr(store.get("t", number).state) == copy
        assert store.verify().ok

    def test_a_state_is_a_copy(self) -> None:
        """Changing what was saved, or what was loaded, changes nothing that is stored."""
        store = self.store()
        state = {"list": [1], "dict": {"a": 1}}
        saved = store.save("t", state)
        state["list"].append(2)  # type: ignore[attr-defined]
        saved.state["dict"]["a"] = 2
        assert_exact({"list": [1], "dict": {"a": 1}}, store.get("t", 1).state)
        assert store.save("t", state).state == {"list": [1, 2], "dict": {"a": 1}}

    def test_one_and_true_and_one_point_zero_are_three_values(self) -> None:
        """A change of type alone is a change."""
        store = self.store()
        values: list[Any] = [1, True, 1.0, 1, {1: 1}, {True: 1}, {1: True}]
        for value in values:
            store.save("t", {"value": value})
        for seq, value in enumerate(values, 1):
            assert_exact({"value": value}, self.store().get("t", seq).state)

    def test_what_cannot_be_stored_is_refused_by_its_path(self) -> None:
        """Nothing is written, and the next save works."""
        store = self.store()
        store.save("t", {"plan": [1]})
        error = raises(UnstorableValue, store.save, "t", {"plan": [1, {"client": object()}]})
        assert isinstance(error, UnstorableValue)
        assert error.path == 'state["plan"][1]["client"]'
        raises(UnstorableValue, store.save, "t", {}, metadata={"f": print})
        assert store.save("t", {"plan": [2]}).seq == 2

    def test_words_that_are_none_are_refused(self) -> None:
        """An unknown status, cause or phase is refused with our error, and nothing is written."""
        store = self.store()
        unknown: list[dict[str, Any]] = [{"status": "busy"}, {"cause": "because"}, {"phase": "lunch"}]
        for words in unknown:
            raises(HoldfastError, store.save, "t", {}, **words)
        assert store.latest("t") is None

    def test_a_deleted_thread_refuses_saves(self) -> None:
        """A save raises `Deleted`, also through a handle that has written to it."""
        store, other = self.store(), self.store()
        store.save("t", 1)
        other.save("t", 2)
        other.delete("t")
        for handle in (store, other, self.store()):
            raises(Deleted, handle.save, "t", 3)
            raises(Deleted, handle.append, "t", "list", 3)

    def test_two_handles_take_turns(self) -> None:
        """Each sees what the other wrote, and continues from it."""
        handles = [self.store(), self.store()]
        for seq in range(1, 12):
            assert handles[seq % 2].save("t", {"n": seq, "same": "x" * 100}).seq == seq
        for seq in range(1, 12):
            assert handles[0].get("t", seq).state["n"] == seq


class Expecting(StoreKit):
    """Test what `expect_seq` and `idempotency_key` promise."""

    def test_expect_seq_lets_one_of_two_in(self) -> None:
        """A save raises `Conflict` and writes nothing unless the newest checkpoint is the expected one."""
        store, other = self.store(), self.store()
        store.save("t", "a", expect_seq=0)
        raises(Conflict, store.save, "t", "b", expect_seq=0)
        other.save("t", "b", expect_seq=1)
        raises(Conflict, store.save, "t", "c", expect_seq=1)
        raises(Conflict, store.save, "t", "c", expect_seq=3)
        store.save("t", "c", expect_seq=2)
        assert seqs(store, "t") == [3, 2, 1]
        raises(Conflict, store.save, "new", "c", expect_seq=1)
        assert store.latest("new") is None

    def test_the_same_key_with_the_same_content_is_one_checkpoint(self) -> None:
        """The first checkpoint is returned, however often and through whichever handle it is saved."""
        store = self.store()
        first = store.save("t", {"a": 1}, idempotency_key="k", metadata={"m": 1})
        store.save("t", {"a": 2})
        for handle in (store, self.store()):
            again = handle.save("t", {"a": 1}, idempotency_key="k", metadata={"m": 1})
            assert (again.id, again.seq, again.created_at) == (first.id, 1, first.created_at)
            assert_exact({"a": 1}, again.state)
            assert again.metadata == {"m": 1}
        assert seqs(store, "t") == [2, 1]

    def test_the_same_key_with_other_content_is_refused(self) -> None:
        """It raises `KeyReused`; 1 and True are different content, and so is other metadata."""
        store = self.store()
        store.save("t", {"a": 1}, idempotency_key="k")
        for handle in (store, self.store()):
            raises(KeyReused, handle.save, "t", {"a": True}, idempotency_key="k")
            raises(
                KeyReused,
                lambda handle=handle: handle.save("t", {"a": 1}, idempotency_key="k", metadata={"m": 1}),  # type: ignore[misc]
            )
        assert seqs(store, "t") == [1]

    def test_keys_survive_pruning_and_erasing(self) -> None:
        """A retry after a prune or an erase is still a retry."""
        store = self.store()
        first = store.save("t", 1, idempotency_key="k")
        for number in range(2, 6):
            store.save("t", number)
        store.prune(Retention(keep_last=1))
        assert store.save("t", 1, idempotency_key="k").id == first.id
        store.erase("t")
        assert self.store().save("t", 1, idempotency_key="k").id == first.id
        raises(KeyReused, self.store().save, "t", 2, idempotency_key="k")

    def test_keys_belong_to_their_thread_and_its_life(self) -> None:
        """Another thread, or the same id after delete and revive, does not know them, through any handle."""
        store, other = self.store(), self.store()
        store.save("t", 1, idempotency_key="k")
        assert store.save("u", 2, idempotency_key="k").thread_id == "u"
        other.delete("t")
        raises(Deleted, store.save, "t", 1, idempotency_key="k")
        other.revive("t")
        again = store.save("t", 1, idempotency_key="k")
        latest = other.latest("t")
        assert latest is not None
        assert (again.seq, again.id) == (1, latest.id)

    def test_a_key_must_be_text(self) -> None:
        """An empty key, or one that is not a str, is refused."""
        store = self.store()
        for key in ("", 5, b"k"):
            raises(HoldfastError, store.save, "t", 1, idempotency_key=key)  # type: ignore[arg-type]


class Appending(StoreKit):
    """Test what `append` promises."""

    def test_an_append_is_a_checkpoint_with_one_item_more(self) -> None:
        """The rest of the state is unchanged."""
        store = self.store()
        store.save("t", {"messages": ["a"], "other": {"x": (1,)}})
        for number in range(2, 50):
            checkpoint = store.append("t", "messages", {"n": number})
            assert checkpoint.seq == number
        state = self.store().get("t", 49).state
        assert_exact({"messages": ["a", *({"n": n} for n in range(2, 50))], "other": {"x": (1,)}}, state)
        assert_exact({"messages": ["a", {"n": 2}], "other": {"x": (1,)}}, store.get("t", 2).state)

    def test_a_list_that_is_not_there_is_made(self) -> None:
        """It is created at the end of the state, in a new thread, in an empty state, and in dicts on the path."""
        store = self.store()
        assert store.append("new", "messages", 1).state == {"messages": [1]}
        store.save("t", {})
        assert store.append("t", "messages", 1).state == {"messages": [1]}
        assert store.append("t", ("a", "b"), 2).state == {"messages": [1], "a": {"b": [2]}}
        assert store.append("t", ("a", "b"), 3).state == {"messages": [1], "a": {"b": [2, 3]}}
        latest = self.store().latest("t")
        assert latest is not None
        assert_exact({"messages": [1], "a": {"b": [2, 3]}}, latest.state)

    def test_an_append_to_what_is_no_list_is_refused(self) -> None:
        """The error has the path, and nothing is written."""
        store = self.store()
        store.save("t", {"text": "x", "tuple": (1,), "dict": {"a": 1}})
        for path in ("text", "tuple", "dict", ("text", "x"), ("dict", "a"), ()):
            raises(UnstorableValue, store.append, "t", path, 1)
        raises(UnstorableValue, store.append, "t", "list", object())
        assert seqs(store, "t") == [1]

    def test_appends_and_saves_take_turns(self) -> None:
        """Both work through two handles, in any order."""
        store, other = self.store(), self.store()
        expected: dict[str, Any] = {"messages": [], "n": 0}
        for number in range(40):
            if number % 3 == 0:
                expected["n"] = number
                (store if number % 2 else other).save("t", expected)
            else:
                expected["messages"].append(number)
                (other if number % 4 else store).append("t", "messages", number)
        latest = store.latest("t")
        assert latest is not None
        assert_exact(expected, latest.state)
        assert latest.seq == 40

    def test_a_list_may_change_its_kind_under_another_handle(self) -> None:
        """A value that was no list when this handle last read may be one now, and vice versa."""
        store, other = self.store(), self.store()
        store.save("t", {"m": (1,)})
        other.append("t", "x", 1)
        store.save("t", {"m": [1]})
        assert other.append("t", "m", 2).state == {"m": [1, 2]}
        store.save("t", {"m": "text"})
        raises(UnstorableValue, other.append, "t", "m", 3)
