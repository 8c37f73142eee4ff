"""What a rollback in the journal undoes, and what it leaves as it is."""

from holdfast.codec import decode, encode
from holdfast.history.entries import (
    Answered,
    Asked,
    Begun,
    Ended,
    Entry,
    Forked,
    Marked,
    Noted,
    Recorded,
    RolledBack,
    Slept,
    StepDone,
    StepError,
    encode_entry,
)
from holdfast.history.journal import Journal

NONE = encode(None)


def done(key: str, value: int = 0, at: int = 1) -> StepDone:
    return StepDone(key, b"f", key, encode(value), at, 1)


def recorded(action: str) -> Recorded:
    return Recorded("", encode({"action": action}), 1)


def journal(*entries: Entry) -> Journal:
    return Journal(entries)  # type: ignore[arg-type]


def back_to(length: int, kept: int = 0) -> RolledBack:
    return RolledBack(length, kept, 1, 1)


def actions(of: Journal) -> list[str]:
    return [step.action for step in of.lazy_steps()]


def test_steps_marks_and_sleeps_are_those_of_then() -> None:
    made = journal(
        done("a"),
        recorded("b"),
        Marked("m"),
        Slept("s", 5),
        done("c"),
        recorded("d"),
        Marked("n"),
        Slept("u", 6),
        back_to(4),
    )
    assert actions(made) == ["a", "b"]
    assert (set(made.memos), made.marks, made.timers) == ({"a"}, {"m"}, {"s": 5})
    assert (made.step_count, made.length) == (2, 9)
    made.add(recorded("e"))
    assert [step.index for step in made.lazy_steps()] == [0, 1, 2]


def test_a_result_that_was_undone_begins_a_new_epoch_each_time() -> None:
    made = journal(done("a"), done("b"), back_to(1), done("b"), back_to(1))
    assert made.epochs == {"b": 2}
    assert journal(done("a"), back_to(1)).epochs == {}


def test_an_effect_in_doubt_stays_in_doubt_with_its_key() -> None:
    begun = Begun("pay", b"f", 1, 1)
    made = journal(done("a"), begun, back_to(1))
    assert made.memos["pay"] is begun
    assert made.epochs == {}


def test_an_effect_that_was_in_doubt_then_and_ended_since_is_executed_anew() -> None:
    made = journal(Begun("pay", b"f", 1, 1), recorded("x"), done("pay"), back_to(2))
    assert "pay" not in made.memos
    assert made.epochs == {"pay": 1}


def test_a_step_that_failed_is_executed_again_with_the_same_key() -> None:
    made = journal(StepError("pay", b"f", "pay", "ValueError", "", 1, 1), back_to(0))
    assert (made.memos, made.epochs) == ({}, {})


def test_questions_after_the_target_are_asked_again_and_numbers_are_not_used_twice() -> None:
    asked = Asked("q", b"f", "q", NONE, (), 0, b"", 1)
    made = journal(asked, Answered(1, None, NONE, "", "", 1), back_to(0))
    assert made.number_of("q") == 0
    made.add(asked)
    assert made.number_of("q") == 2
    assert made.open_numbers() == [2]


def test_notes_and_the_end_are_not_undone() -> None:
    made = journal(Noted("usage", encode(5), 1), Ended("failed", NONE, "", "", (), 1), back_to(0))
    assert [decode(note.content) for note in made.notes] == [5]
    assert made.ended is not None


def test_a_rollback_to_what_a_rollback_undid_brings_it_back() -> None:
    made = journal(recorded("a"), recorded("b"), back_to(1), recorded("c"), back_to(2))
    assert actions(made) == ["a", "b"]
    assert actions(journal(recorded("a"), recorded("b"), back_to(1), recorded("c"), back_to(4), back_to(3))) == ["a"]


def test_a_fork_has_only_the_notes_that_are_steps_and_no_rollbacks() -> None:
    made = journal(recorded("a"), Noted("usage", encode(5), 1), recorded("b"), back_to(2), Forked("t@1.ab"))
    assert (made.notes, made.rollbacks, actions(made)) == ([], [], ["a"])


def test_a_rollback_is_stored_as_documented() -> None:
    assert decode(encode_entry(RolledBack(7, 3, 4, 9))) == ["rollback", 7, 3, 4, 9]
    assert decode(encode_entry(Noted("usage", b"x", 9)))[:4] == ["note", "usage", b"x", 9]
