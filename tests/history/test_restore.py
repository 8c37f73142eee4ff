"""Rows become the state again; rows that do not belong together are found out, each in its way."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from harness.random_states import States
from history.scenes import TIGHT, Thread, binding
from holdfast.codec import Limits
from holdfast.history.binding import BODY, place_of
from holdfast.history.cells import Cell, Document, rope
from holdfast.history.format import APPEND_FLAGS, DELTA_FLAGS, Header, Script, encode_header, encode_script
from holdfast.history.keyframes import is_due, live_bytes, repack
from holdfast.history.log import Log
from holdfast.history.restore import fill, fold, read_keys, read_state
from holdfast.history.tuning import Tuning
from holdfast.records.errors import Corrupt, UnknownType
from holdfast.records.rows import Row
from holdfast.testing.exact import assert_exact


def grown(count: int = 20, tuning: Tuning = TIGHT) -> tuple[Thread, dict[int, Any]]:
    thread, states = Thread(tuning), {}
    for number in range(1, count + 1):
        state = {"n": number, "list": [f"{index} " * 5 for index in range(number)], "big": str(number // 4) * 700}
        states[thread.save(state).row.seq] = state
    return thread, states


@pytest.mark.parametrize("seed", range(8))
def test_every_row_is_a_whole_state(seed: int) -> None:
    import copy

    source, thread, states = States(Random(seed)), Thread(), dict[int, Any]()
    state = source.fresh()
    for _ in range(40):
        states[thread.save(state).row.seq] = copy.deepcopy(state)
        state = source.edit(state)
    for seq, expected in states.items():
        assert_exact(expected, thread.state(seq), f"row {seq}")


def test_keyframes_come_when_the_rules_say_so() -> None:
    thread, _ = grown(40)
    lengths = [row.seq - row.base for row in thread.rows.values()]
    assert max(lengths) < TIGHT.keyframe_rows_max
    assert lengths.count(0) >= 40 // TIGHT.keyframe_rows_max


@pytest.mark.parametrize(
    ("expected", "rows", "row_bytes", "manifest", "inserted", "state_bytes"),
    [
        (False, 3, 10, 50, 0, 0),
        (True, 3, 600, 50, 0, 0),
        (False, 3, 600, 500, 0, 0),
        (True, 6, 50, 50, 0, 0),
        (False, 6, 49, 50, 0, 0),
        (True, 9, 0, 50, 0, 0),
        (True, 2, 0, 50, 100, 199),
        (False, 2, 0, 50, 100, 200),
        (False, 2, 0, 50, 60, 60),
    ],
)
def test_each_rule_for_a_keyframe(
    expected: bool, rows: int, row_bytes: int, manifest: int, inserted: int, state_bytes: int
) -> None:
    document: Document = {("state",): Cell("value", 0, state_bytes, rope([]), rope([]))}
    assert is_due(TIGHT, rows, row_bytes, manifest, inserted, document) is expected


def test_a_keyframe_refers_to_blobs_and_copies_only_what_lies_inline() -> None:
    thread = Thread(Tuning(inline_max=100, keyframe_rows=4, keyframe_rows_max=4, keyframe_bytes=1 << 20))
    big = "".join(map(str, range(20_000)))
    thread.save({"big": big, "n": 0})
    sizes = [sum(map(len, thread.save({"big": big, "n": number}).blobs.values())) for number in range(1, 12)]
    assert max(sizes) < 1000
    assert thread.state(12)["big"] == big


def test_blobs_that_are_mostly_dead_are_left_behind() -> None:
    thread = Thread()
    thread.save({"list": [f"item {number} " * 9 for number in range(40)]})
    for _ in range(25):
        thread.save({"list": thread.state(thread.log.seq)["list"][1:] or [1]})
    live = live_bytes(thread.log.document.values())
    assert len(live) < len(thread.blobs)


def test_a_fresh_keyframe_shares_no_blob_with_the_past() -> None:
    thread, states = grown()
    before = set(thread.blobs)
    written = thread.save(states[20], fresh=True)
    assert written.row.base == written.row.seq
    assert written.blobs
    assert not before & set(live_bytes(written.log.document.values()))
    thread.blobs = dict(written.blobs)
    assert thread.state(21) == states[20]


def test_a_pack_has_at_most_its_size() -> None:
    thread, states = grown()
    inserted: list[bytes] = []

    def insert(data: bytes) -> Any:
        inserted.append(data)
        return thread.log.document[("state", "big")].pieces.all()[0]

    repack(thread.log.document, TIGHT, insert, copy_all=True)
    assert inserted
    assert max(map(len, inserted)) <= TIGHT.pack_max
    assert states


def refold(thread: Thread, rows: list[Row], seq: int) -> None:
    fold(thread.log.binding, rows, seq)


def test_rows_that_do_not_lead_up_are_found_out() -> None:
    thread, _ = grown()
    seq = next(seq for seq, row in thread.rows.items() if seq - row.base == 3)
    rows = thread.leading_to(seq)
    for wrong in ([], rows[1:], rows[:-1], [rows[0], *rows[2:]], rows[::-1], [*rows, rows[-1]]):
        with pytest.raises(Corrupt, match=f"row {seq} of 't'"):
            refold(thread, wrong, seq)


@pytest.mark.parametrize("part", ["digest", "header", "body"])
def test_a_changed_row_is_found_out(part: str) -> None:
    thread, _ = grown()
    for seq in thread.rows:
        rows = thread.leading_to(seq)
        data = getattr(rows[-1], part)
        changed = replace(rows[-1], **{part: bytes((data[0] ^ 1,)) + data[1:]})
        with pytest.raises(Corrupt):
            refold(thread, [*rows[:-1], changed], seq)


def test_a_row_of_another_life_is_found_out() -> None:
    one, other = Thread(), Thread(bound=binding("t", b"o" * 16))
    for number in range(3):
        one.save({"n": number})
        other.save({"n": number})
    with pytest.raises(Corrupt):
        refold(one, [*one.leading_to(2), other.rows[3]], 3)


def forged(log: Log, seq: int, base: int, flags: int, content: bytes, parent: bytes) -> Row:
    """A row that is sound in itself, digest and all."""
    bound = log.binding
    body = bound.seal(content, seq, BODY)
    place = place_of(seq, seq - base)
    header = encode_header(
        Header(flags, len(body), b"", parent=parent if seq == base else b""), place, bound.check_start
    )
    return Row(seq, base, bound.digest(parent, place, header, body), header, body)


@pytest.mark.parametrize(
    ("flags", "content"),
    [
        (DELTA_FLAGS, encode_script(Script(None, [(9, "value", 0, [b"x"])]))[0]),
        (DELTA_FLAGS, encode_script(Script(None, [(0, "value", 0, [(0, 99)])]))[0]),
        (DELTA_FLAGS, encode_script(Script([("state", "missing")], []))[0]),
        (DELTA_FLAGS, b"\xc1"),
        (APPEND_FLAGS, b"\x09x"),
        (APPEND_FLAGS, b""),
    ],
)
def test_a_sound_row_that_makes_no_sense_is_damage(flags: int, content: bytes) -> None:
    thread = Thread()
    thread.save({"n": 1})
    row = forged(thread.log, 2, 1, flags, content, thread.rows[1].digest)
    with pytest.raises(Corrupt, match="row 2 of 't'"):
        refold(thread, [thread.rows[1], row], 2)


def test_a_row_of_another_keyframe_is_found_out() -> None:
    """A keyframe in the middle, or a first row that is none."""
    thread = Thread()
    thread.save({"n": 1})
    keyframe = forged(thread.log, 2, 1, DELTA_FLAGS | 1, encode_script(Script([], []))[0], thread.rows[1].digest)
    with pytest.raises(Corrupt):
        refold(thread, [thread.rows[1], keyframe], 2)
    lone = forged(thread.log, 1, 1, DELTA_FLAGS, encode_script(Script([], []))[0], b"")
    with pytest.raises(Corrupt):
        refold(thread, [lone], 1)


def test_a_missing_or_damaged_blob_is_named() -> None:
    thread, _ = grown()
    folded = fold(thread.log.binding, thread.leading_to(20), 20)
    assert folded.blobs()
    name = folded.blobs()[0]
    for stored in ({}, {**thread.blobs, name: thread.blobs[name][:-1]}):
        with pytest.raises(Corrupt, match="blob") as caught:
            fill(folded, stored, TIGHT)
        assert name.hex() in caught.value.record or not stored


def test_a_state_that_cannot_be_decoded_is_damage() -> None:
    thread = Thread()
    thread.save({"n": 1})
    cell = thread.log.document["state", "n"]
    cell.chunks = rope([b"\xc1"])
    with pytest.raises(Corrupt, match="cannot be decoded"):
        read_state(thread.log.binding, thread.log.document)


def test_a_type_that_is_not_registered_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are good; the program lacks the class, and is told which."""
    from holdfast.history import restore

    def unknown(_data: bytes, _limits: Limits) -> Any:
        raise UnknownType("stored by a class that is not registered here", name="Plan")

    thread = Thread()
    thread.save({"n": 1})
    monkeypatch.setattr(restore, "decode_weighed", unknown)
    with pytest.raises(UnknownType):
        read_state(thread.log.binding, thread.log.document)


def test_keys_that_are_not_there_are_none() -> None:
    assert read_keys(Thread().log.binding, {}) == []


def test_an_empty_cell_writes_no_blob_however_small_one_may_be() -> None:
    thread = Thread(Tuning(inline_max=0))
    thread.save({"a": [], "b": {}})
    assert thread.blobs == {}
    assert thread.state(1) == {"a": [], "b": {}}
