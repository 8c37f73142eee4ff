"""The check of our wording finds what it is for."""

from wording import found_in


def test_a_phrase_that_we_do_not_use_is_found_with_its_line() -> None:
    assert [(line, phrase) for line, phrase, _ in found_in("x\nThe lease is given back.")] == [(2, "given back")]


def test_a_phrase_is_found_across_lines_and_in_any_case() -> None:
    assert [phrase for _, phrase, _ in found_in("# Go on\n    # with it")] == ["Go on # with"]


def test_plain_words_are_left_alone() -> None:
    assert list(found_in("Release the lease, resume the thread; as long as it runs, retry up to 3 times.")) == []
