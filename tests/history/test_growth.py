"""Lists that grow by one item a row."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.scenes import Thread
from holdfast.codec import Limits, Seal, encode
from holdfast.history import growth
from holdfast.history.binding import Binding
from holdfast.history.cells import Path
from holdfast.history.entries import JOURNAL
from holdfast.history.log import Log, Revision, append_flat
from holdfast.history.meta import Meta, encode_meta
from holdfast.history.restore import read_state
from holdfast.history.tuning import Tuning
from holdfast.records.errors import LimitExceeded

WIDE = Tuning()
META = encode_meta(Meta(1_000, 1))
ONE: Path = ("state", "one")
OTHER: Path = ("state", "other")


def grown(log: Log, path: Path, item: Any) -> Log:
    done = append_flat(log, path, encode(item), META)
    assert done is not None
    return done.log


def state(log: Log) -> Any:
    return read_state(log.binding, log.document)


@pytest.fixture
def log() -> Log:
    thread = Thread(WIDE)
    thread.save({"one": [0], "other": [0]})
    return thread.log


def test_a_log_has_its_own_items_only_whatever_grew_after_it(log: Log) -> None:
    first = grown(log, ONE, 1)
    second = grown(first, ONE, 2)
    assert state(second)["one"] == [0, 1, 2]
    assert state(first)["one"] == [0, 1]
    assert state(log)["one"] == [0]
    assert state(second)["one"] == [0, 1, 2]


def test_two_logs_that_grow_from_one_do_not_mix(log: Log) -> None:
    first = grown(log, ONE, 1)
    left, right = grown(first, ONE, "left"), grown(first, ONE, "right")
    assert state(grown(left, ONE, 3))["one"] == [0, 1, "left", 3]
    assert state(right)["one"] == [0, 1, "right"]
    assert state(first)["one"] == [0, 1]


def test_a_list_that_grows_after_another_keeps_what_that_one_has(log: Log) -> None:
    for number in range(1, 4):
        log = grown(grown(log, ONE, number), OTHER, -number)
    assert state(log) == {"one": [0, 1, 2, 3], "other": [0, -1, -2, -3]}


def test_a_document_that_is_asked_for_again_is_the_same(log: Log) -> None:
    log = grown(log, ONE, 1)
    assert log.document is log.document


def with_limits(log: Log, **limits: int) -> Log:
    binding = Binding(log.binding.thread, log.binding.incarnation, Seal(limits=Limits(**limits)))
    return msgspec.structs.replace(log, binding=binding)


@pytest.mark.parametrize("name", ["memory", "size"])
def test_near_the_limits_each_append_is_looked_at(name: str, log: Log) -> None:
    near = with_limits(log, **{name: 4000})
    count = 0
    while (written := append_flat(near, ONE, encode(b"x"), META)) is not None:
        near, count = written.log, count + 1
    assert 0 < count < 4000
    assert len(state(near)["one"]) == 1 + count


def append_anyhow(log: Log, item: bytes) -> Log:
    written = append_flat(log, ONE, item, META)
    if written is None:
        revision = Revision(log)
        revision.append(ONE, item)
        written = revision.write(META)
    return written.log


@pytest.mark.parametrize("name", ["memory", "size"])
def test_whatever_was_appended_can_be_read_again(name: str, log: Log) -> None:
    near, count, refused = with_limits(log, **{name: 4000}), 0, ""
    while not refused:
        try:
            near, count = append_anyhow(near, encode(b"x")), count + 1
        except LimitExceeded as error:
            refused = str(error)
        assert len(state(near)["one"]) == 1 + count
    assert f"limits=holdfast.Limits({name}=" in refused
    assert count > 4000 // 200


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from([ONE, OTHER]), st.integers(0, 9)), max_size=25))
def test_any_log_of_a_tree_of_appends_has_what_was_appended_on_its_way(appends: list[tuple[int, Path, int]]) -> None:
    thread = Thread(WIDE)
    thread.save({"one": [0], "other": [0]})
    logs: list[tuple[Log, dict[str, list[int]]]] = [(thread.log, {"one": [0], "other": [0]})]
    for parent, path, item in appends:
        log, content = logs[parent % len(logs)]
        logs.append((grown(log, path, item), {**content, path[1]: [*content[path[1]], item]}))
    for log, content in [*logs, *reversed(logs)]:
        assert state(log) == content


def test_a_state_is_read_without_what_the_journal_has_grown_by(log: Log) -> None:
    revision = Revision(log)
    revision.append(JOURNAL, encode(["a"]))
    journal = grown(revision.write(META).log, JOURNAL, ["b"])
    assert journal.state_cells is journal.cells
    assert journal.document[JOURNAL].count == 2
    assert read_state(log.binding, journal.state_cells) == {"one": [0], "other": [0]}
    assert read_state(log.binding, grown(journal, ONE, 1).state_cells)["one"] == [0, 1]


def test_a_list_that_was_folded_and_given_up_grows_again_from_where_it_was(log: Log) -> None:
    first = grown(log, ONE, 1)
    abandoned = grown(first, OTHER, "lost")
    again = grown(grown(first, OTHER, "kept"), ONE, 2)
    assert state(abandoned) == {"one": [0, 1], "other": [0, "lost"]}
    assert state(again) == {"one": [0, 1, 2], "other": [0, "kept"]}
    assert state(first) == {"one": [0, 1], "other": [0]}


def test_an_item_as_long_as_a_blob_is_none_for_a_short_row(log: Log) -> None:
    longest = WIDE.inline_max - 1
    assert append_flat(log, ONE, b"x" * longest, META) is not None
    assert append_flat(log, ONE, b"x" * (longest + 1), META) is None


def test_a_long_item_for_one_list_does_not_fold_the_other(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs what it is, however long the list that grew before."""
    first = grown(log, ONE, 1)
    monkeypatch.setattr(Log, "folded", lambda _log: pytest.fail("folded in vain"))
    assert append_flat(first, OTHER, b"x" * WIDE.inline_max, META) is None


def test_what_cannot_be_appended_to_in_the_short_form(log: Log) -> None:
    thread = Thread(WIDE)
    thread.save({"text": "a", "map": {}, "empty": [], **{f"k{number}": [0] for number in range(300)}})
    short = [path for path in thread.log.document if append_flat(thread.log, path, encode(1), META) is not None]
    assert ("state", "k0") in short
    assert {("state", "text"), ("state", "map"), ("state", "empty")}.isdisjoint(short)
    assert all(thread.log.index[path] <= growth.MAX_INDEX for path in short)
    assert append_flat(thread.log, ("state", "none"), encode(1), META) is None


def test_a_list_that_grows_again_after_another_is_not_copied_at_each_append(log: Log) -> None:
    log = grown(grown(log, ONE, 1), OTHER, 1)
    first = grown(log, OTHER, 2)
    second = grown(first, OTHER, 3)
    assert first.growth is second.growth
    assert second.grown == 3
