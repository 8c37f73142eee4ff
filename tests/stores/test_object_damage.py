"""Damaged objects are found, and never taken for something else."""

from collections.abc import Callable, Iterator
from hashlib import sha256

import pytest

from holdfast.records.errors import (
    Corrupt,
)
from holdfast.records.head import LOST_HEAD
from holdfast.records.rows import Drop
from holdfast.stores.objects import ObjectBackend
from holdfast.stores.objects.names import head_name
from holdfast.stores.objects.record import Record, Segment, bind, rows_in, unbind
from object_map import ObjectMap
from stores.object_scenes import (
    IDS,
    OTHER,
    SPACE,
    THREAD,
    blob,
    head,
    leave_garbage,
    make,
    names,
    play,
    process,
    row,
    steps,
    stored,
)


def flips(kept: ObjectMap, name: str) -> Iterator[None]:
    """The object with one bit of each byte flipped, in turn."""
    data, tag = kept.kept[name]
    for at in range(len(data)):
        kept.kept[name] = (data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :], tag)
        yield
    kept.kept[name] = (data, tag)


def test_a_flipped_bit_in_a_head_object_is_found_by_all_who_read_it() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    process(kept).post(THREAD, "k", b"v")
    reads: list[Callable[[ObjectBackend], object]] = [
        lambda backend: backend.heads([THREAD]),
        lambda backend: backend.rows(THREAD, 1),
        lambda backend: backend.index(THREAD, None, None),
        lambda backend: backend.blobs(THREAD, IDS),
        lambda backend: backend.inbox(THREAD),
        lambda backend: backend.post(THREAD, "l", b"v"),
        lambda backend: backend.swap(steps(1, start=3)),
    ]
    for _ in flips(kept, head_name(THREAD)):
        assert process(kept).threads(SPACE, (), (), None, 10).heads == [(THREAD, LOST_HEAD)]
        for read in reads:
            with pytest.raises(Corrupt) as raised:
                read(process(kept))
            assert raised.value.record == f"object {head_name(THREAD)}"
        assert len(process(kept).check()) == 1
    assert process(kept).check() == []


def test_a_flipped_bit_in_a_segment_is_found_by_all_who_read_it() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, head(3), row(1), row(2), row(3), blobs=dict([blob(1, b"1")]))])
    reads: list[Callable[[ObjectBackend], object]] = [
        lambda backend: backend.rows(THREAD, 2),
        lambda backend: backend.index(THREAD, None, 1),
        lambda backend: backend.swap([make(head(3), head(3, token=1), drop=Drop(rows=((2, 3),)))]),
    ]
    (name,) = names(kept, "/rows/")
    for _ in flips(kept, name):
        for read in reads:
            with pytest.raises(Corrupt) as raised:
                read(process(kept))
            assert raised.value.record == f"object {name}"


@pytest.mark.parametrize("content", [b"\x91\x01", b"", b"\x90", b"\xc1"])
def test_a_segment_of_another_shape_is_damage_even_under_a_right_digest(content: bytes) -> None:
    record = Record(THREAD)
    digest = sha256(f"{record.segment_folder}{7:012}".encode() + content).digest()[:16]
    with pytest.raises(Corrupt, match="damaged"):
        rows_in(record, Segment(1, 2, 1, 7, digest), content)


def test_a_flipped_bit_in_a_post_is_found() -> None:
    kept = ObjectMap()
    process(kept).post(THREAD, "k", b"value")
    for _ in flips(kept, names(kept, "/posts/")[0]):
        with pytest.raises(Corrupt):
            process(kept).inbox(THREAD)


def test_objects_that_changed_places_are_found() -> None:
    kept = ObjectMap()
    play(process(kept), [*steps(2), *steps(2, thread=OTHER)])
    first, second = names(kept, f"{head_name(THREAD)[:-4]}")[-3:-1]
    kept.kept[first], kept.kept[second] = kept.kept[second], kept.kept[first]
    with pytest.raises(Corrupt, match="digest"):
        process(kept).index(THREAD, 2, None)
    kept.kept[head_name(THREAD)] = kept.kept[head_name(OTHER)]
    with pytest.raises(Corrupt, match="digest"):
        process(kept).heads([THREAD])


def test_a_record_of_another_thread_or_shape_is_damage_even_under_a_right_digest() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1, thread=OTHER))
    content = unbind(head_name(OTHER), kept.kept[head_name(OTHER)][0])
    for wrong, message in ((content, "another thread"), (b"\x93\x01\x02\x03", "damaged")):
        kept.kept[head_name(THREAD)] = (bind(head_name(THREAD), wrong), "1")
        with pytest.raises(Corrupt, match=message):
            process(kept).heads([THREAD])


def test_a_missing_row_is_left_out_and_no_other_is_taken_for_it() -> None:
    kept = ObjectMap()
    play(process(kept), steps(5))
    leave_garbage(kept, make(head(5), head(6), row(6, "lost")))
    kept.delete(names(kept, "/rows/")[2])
    backend = process(kept)
    assert [entry.seq for entry in backend.rows(THREAD, 5)] == [1, 2, 4, 5]
    assert [entry.seq for entry in backend.index(THREAD, None, None)] == [5, 4, 2, 1]
    assert backend.rows(THREAD, 3) == []
    play(backend, [make(head(5), head(5, token=1), drop=Drop(rows=((3, 4),)))])
    assert [entry.seq for entry in backend.index(THREAD, None, None)] == [5, 4, 2, 1]


def test_rows_beside_a_missing_one_in_its_segment_cannot_be_dropped() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, head(3), row(1), row(2), row(3))])
    (name,) = names(kept, "/rows/")
    kept.delete(name)
    with pytest.raises(Corrupt, match="rows 1 to 3 are lost") as raised:
        process(kept).swap([make(head(3), head(3, token=1), drop=Drop(rows=((2, 3),)))])
    assert raised.value.record == f"object {name}"


def test_a_row_that_goes_before_it_is_read_is_left_out() -> None:
    kept = ObjectMap()
    play(process(kept), steps(3))

    def hook(call: str, name: str) -> None:
        if call == "get" and f"/rows/{2:012}" in name:
            kept.delete(name)

    assert [entry.seq for entry in process(kept, hook).rows(THREAD, 3)] == [1, 3]


def test_a_winning_row_that_is_missing_keeps_the_blobs_of_the_loser() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    winning = steps(1, start=3)[0]

    def hook(call: str, name: str) -> None:
        if call == "put_if_match":
            play(process(kept), [winning])
        if call == "get" and "/rows/" in name:
            kept.delete(name)

    loser = process(kept, hook)
    loser.heads([THREAD])
    assert loser.swap([make(head(2), head(3, token=1), row(3, "lost"), blobs=winning.blobs)]) == [False]
    assert process(kept).blobs(THREAD, list(winning.blobs)) == winning.blobs


def test_a_missing_post_is_damage() -> None:
    kept = ObjectMap()
    process(kept).post(THREAD, "k", b"v")
    kept.delete(names(kept, "/posts/")[0])
    with pytest.raises(Corrupt, match="missing"):
        process(kept).inbox(THREAD)


def test_a_prune_of_a_damaged_thread_removes_no_row_that_counts() -> None:
    kept = ObjectMap()
    play(process(kept), steps(9))
    kept.delete(names(kept, "/rows/")[2])
    play(process(kept), [make(head(9), head(9, token=1), drop=Drop(rows=((6, 8),)))])
    assert stored(kept) == [1, 2, 4, 5, 8, 9]
