"""Lists that grow by one item a row."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.scenes import Thread
from holdfast.codec import Limits, Seal, encode
from holdfast.history.binding import Binding
from holdfast.history.cells import Path
from holdfast.history.format import APPEND_FLAGS, MAX_APPEND_INDEX, decode_header
from holdfast.history.log import Change, Log, NotACell, Written, next_row
from holdfast.history.meta import Meta, encode_meta
from holdfast.history.restore import read_state
from holdfast.history.tuning import Tuning
from holdfast.records.errors import LimitExceeded

WIDE = Tuning()
META = encode_meta(Meta(1_000, 1))
ONE: Path = ("state", "one")
OTHER: Path = ("state", "other")


def appended(log: Log, path: Path, item: bytes) -> Written:
    return next_row(log, Change(appends=((path, item),)), META)


def grown(log: Log, path: Path, item: Any) -> Log:
    return appended(log, path, encode(item)).log


def is_short(written: Written) -> bool:
    return decode_header(written.log.binding, written.row).flags == APPEND_FLAGS


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


def with_limits(log: Log, **limits: int) -> Log:
    binding = Binding(log.binding.thread, log.binding.incarnation, Seal(limits=Limits(**limits)))
    return msgspec.structs.replace(log, binding=binding)


@pytest.mark.parametrize("name", ["memory", "size"])
def test_whatever_was_appended_can_be_read_again(name: str, log: Log) -> None:
    near, count, refused = with_limits(log, **{name: 4000}), 0, ""
    while not refused:
        try:
            near, count = grown(near, ONE, b"x"), count + 1
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


def test_a_list_grows_again_from_a_log_whose_next_row_was_given_up(log: Log) -> None:
    first = grown(log, ONE, 1)
    abandoned = grown(first, OTHER, "lost")
    again = grown(grown(first, OTHER, "kept"), ONE, 2)
    assert state(abandoned) == {"one": [0, 1], "other": [0, "lost"]}
    assert state(again) == {"one": [0, 1, 2], "other": [0, "kept"]}
    assert state(first) == {"one": [0, 1], "other": [0]}


def test_an_item_as_long_as_a_blob_has_no_short_row(log: Log) -> None:
    longest = WIDE.inline_max - 1
    assert is_short(appended(log, ONE, b"x" * longest))
    assert not is_short(appended(log, ONE, b"x" * (longest + 1)))


def test_only_a_list_that_is_not_empty_among_the_first_cells_has_the_short_form() -> None:
    thread = Thread(WIDE)
    thread.save({"text": "a", "map": {}, "empty": [], **{f"k{number}": [0] for number in range(300)}})
    lists = [path for path, cell in thread.log.document.items() if cell.kind == "list"]
    short = [path for path in lists if is_short(appended(thread.log, path, encode(1)))]
    assert ("state", "k0") in short
    assert ("state", "empty") not in short
    assert max(thread.log.index[path] for path in short) == MAX_APPEND_INDEX
    assert not is_short(appended(thread.log, ("state", "none"), encode(1)))
    for path in (("state", "text"), ("state", "map")):
        with pytest.raises(NotACell):
            appended(thread.log, path, encode(1))


def test_a_list_that_grows_is_not_copied_at_each_append(log: Log) -> None:
    log = grown(grown(log, ONE, 1), OTHER, 1)
    first = grown(log, OTHER, 2)
    second = grown(first, OTHER, 3)
    assert first.document[OTHER].chunks.items is second.document[OTHER].chunks.items
    assert second.document[OTHER].count == 4


def test_a_row_may_change_nothing(log: Log) -> None:
    written = next_row(log, Change(checkpoint=log.checkpoint), META)
    assert not is_short(written)
    assert (written.log.seq, written.log.checkpoint) == (log.seq + 1, log.checkpoint)
    assert state(written.log) == state(log)
