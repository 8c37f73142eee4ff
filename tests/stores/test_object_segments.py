"""Segments of rows in an object store: what is cut, what is spared, and who may read while they change."""

import pytest
from msgspec.structs import replace

from holdfast import sync
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.records.rows import Drop, Swap
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects import ObjectBackend, heads, swap
from holdfast.stores.objects import record as object_record
from holdfast.stores.objects.names import segment_version
from object_map import ObjectMap
from stores.object_scenes import (
    THREAD,
    Crashed,
    Fault,
    counted,
    head,
    make,
    names,
    play,
    process,
    row,
    segments,
    stored,
    view,
)

TAIL = 32768
KEYFRAME = make(head(8), head(9), row(9, base=9))


def riding(count: int = 8) -> list[Swap]:
    return [make(head(seq - 1) if seq > 1 else None, head(seq), row(seq)) for seq in range(1, count + 1)]


def with_a_segment() -> tuple[ObjectMap, ObjectBackend]:
    """Rows 1 to 8 in one segment, row 9 in the head."""
    kept = ObjectMap()
    backend = process(kept, tail_bytes=TAIL)
    play(backend, [*riding(), KEYFRAME])
    assert segments(kept) == [(1, 8)]
    return kept, backend


def dropping(*rows: tuple[int, int], secure: bool = False) -> Swap:
    return make(head(9), head(9, token=1), drop=Drop(rows=rows, secure=secure))


def modelled(*swaps: Swap) -> object:
    model = MemoryBackend()
    play(model, [*riding(), KEYFRAME, *swaps])
    return view(model)


def texts(kept: ObjectMap, *seqs: int) -> list[int]:
    """Those of the rows that can be read anywhere in the store."""
    return [seq for seq in seqs if any(row(seq).header in data for data, _ in kept.kept.values())]


# Cutting


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([(3, 6)], [(1, 2), (6, 8)]),
        ([(1, 5)], [(5, 8)]),
        ([(5, 9)], [(1, 4)]),
        ([(4, 5)], [(1, 3), (5, 8)]),
        ([(2, 3), (5, 7)], [(1, 1), (3, 4), (7, 8)]),
        ([(1, 9)], []),
        ([(9, 10)], [(1, 8)]),
    ],
)
def test_a_segment_that_loses_rows_is_cut_and_nothing_of_them_stays(
    rows: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    kept, backend = with_a_segment()
    play(backend, [dropping(*rows, secure=True)])
    assert segments(kept) == left
    assert view(backend) == view(process(kept)) == modelled(dropping(*rows))
    assert not texts(kept, *(seq for start, stop in rows for seq in range(start, min(stop, 9))))


def test_only_the_segments_at_the_edges_are_read_and_put() -> None:
    kept = ObjectMap()
    play(process(kept), [make(head(at) if at else None, head(at + 4), *rows_after(at)) for at in range(0, 40, 4)])
    backend, calls = counted(kept)
    backend.heads([THREAD])
    calls.clear()
    play(backend, [make(head(40), head(40, token=1), drop=Drop(rows=((7, 31),)))])
    done = [(call, name.rpartition("/")[2][:12]) for call, name in calls if call != "delete"]
    assert done[:2] == [("get", f"{2:012}"), ("get", f"{8:012}")]  # the versions of the records they were put for
    assert [call for call, _ in done[2:]] == ["put_if_absent"] * 2 + ["put_if_match", "list"]
    assert stored(kept) == [*range(1, 7), *range(31, 41)]
    assert [found.seq for found in backend.index(THREAD, None, None)] == [*range(40, 30, -1), *range(6, 0, -1)]


def rows_after(seq: int) -> list:  # type: ignore[type-arg]
    return [row(each) for each in range(seq + 1, seq + 5)]


def test_many_prunes_do_not_leave_many_segments() -> None:
    kept = ObjectMap()
    backend = process(kept, tail_bytes=TAIL)
    play(backend, riding(1))
    for seq in range(2, 200):
        base = seq - seq % 7 or 1
        drop = Drop(rows=((1, seq - 20),)) if seq % 5 == 0 and seq > 20 else Drop()
        play(backend, [make(head(seq - 1), head(seq), row(seq, base=base), drop=drop)])
    cached = backend._heads.cached(THREAD)
    assert cached is not None
    assert len(cached.record.segments) <= 4
    assert [found.seq for found in backend.index(THREAD, None, None)][-1] == 175


def test_rows_of_a_large_swap_are_put_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_record, "SEGMENT_BYTES", 3 * 40)
    kept, rows = ObjectMap(), [row(seq) for seq in range(1, 11)]
    backend = process(kept)
    play(backend, [make(None, head(10), *rows)])
    assert segments(kept)[0] == (1, 5)
    assert stored(kept) == [*range(1, 11)]
    assert backend.rows(THREAD, 10) == rows


# Deleting and erasing through a store


def told(count: int) -> tuple[ObjectMap, sync.Store]:
    """A store with a thread whose rows left the head twice, with a secret in each."""
    kept = ObjectMap()
    store = sync.Store(ObjectBackend(kept), compress=False)
    store.save("t", {"list": []})
    for number in range(count):
        store.append("t", "list", f"SECRET {number};")
    return kept, store


def secrets(kept: ObjectMap) -> list[str]:
    return [name for name, (data, _) in kept.kept.items() if b"SECRET" in data]


def test_a_deleted_checkpoint_is_gone_and_those_beside_it_are_as_they_were() -> None:
    kept, store = told(120)
    ids = [info.id for info in store.history("t", limit=200).items]
    before = {each: store.load(each).state for each in ids}
    for gone in (ids[40], ids[90]):
        store.delete_checkpoint(gone)
        del before[gone]
    fresh = sync.Store(ObjectBackend(kept))
    assert {info.id for info in fresh.history("t", limit=200).items} == before.keys()
    assert {each: fresh.load(each).state for each in before} == before
    assert fresh.verify().ok


def test_an_erased_past_is_in_no_object() -> None:
    kept, store = told(120)
    store.save("t", {"list": ["clean"]})
    assert secrets(kept)
    store.erase("t")
    assert not secrets(kept)
    assert sync.Store(ObjectBackend(kept)).verify().ok


def test_a_prune_that_cuts_keeps_what_it_should() -> None:
    kept, store = told(120)
    store.prune(sync.Retention(keep_last=30))
    fresh = sync.Store(ObjectBackend(kept))
    found = fresh.history("t", limit=200).items
    assert [info.seq for info in found] == [*range(121, 91, -1)]
    assert [len(fresh.load(info.id).state["list"]) for info in found] == [*range(120, 90, -1)]
    assert fresh.verify().ok


# Races


def two_who_know(kept: ObjectMap) -> tuple[ObjectBackend, ObjectBackend]:
    play(process(kept, tail_bytes=TAIL), riding())
    both = process(kept, tail_bytes=TAIL), process(kept, tail_bytes=TAIL)
    for each in both:
        each.heads([THREAD])
    return both


def test_two_processes_at_the_same_keyframe_share_a_segment_and_the_loser_leaves_it() -> None:
    kept = ObjectMap()
    winner, loser = two_who_know(kept)
    play(winner, [KEYFRAME])
    assert loser.swap([make(head(8), head(9, token=5), row(9, "theirs", base=9))]) == [False]
    assert segments(kept) == [(1, 8)]
    assert view(loser) == view(process(kept)) == modelled()


def test_a_refused_keyframe_takes_back_the_segment_that_nobody_else_has_put() -> None:
    kept = ObjectMap()
    winner, loser = two_who_know(kept)
    play(winner, [make(head(8), head(9), row(9))])
    assert loser.swap([replace(KEYFRAME, replacement=b"x")]) == [False]
    assert segments(kept) == []
    assert [found.seq for found in winner.rows(THREAD, 9)] == [*range(1, 10)]


def test_a_segment_that_was_put_for_an_attempt_before_goes_when_the_swap_is_made() -> None:
    kept = ObjectMap()
    play(process(kept), riding())
    posting = ["k"]

    def post_first(call: str, name: str) -> None:
        if call == "put_if_match" and posting:
            assert process(kept).post(THREAD, posting.pop(), b"v")

    play(process(kept, post_first), [KEYFRAME])
    assert not posting
    assert stored(kept) == [*range(1, 10)]
    assert process(kept).rows(THREAD, 9) == [row(9, base=9)]


def test_a_crash_between_the_segment_and_the_head_leaves_what_the_next_prune_removes() -> None:
    kept = ObjectMap()
    play(process(kept, tail_bytes=TAIL), riding())
    dying = process(kept, Fault(Crashed(), lambda it: it.startswith("put_if_match")), tail_bytes=TAIL)
    dying.heads([THREAD])
    with pytest.raises(Crashed):
        dying.swap([KEYFRAME])
    survivor = process(kept, tail_bytes=TAIL)
    assert segments(kept) == [(1, 8)]
    assert [found.seq for found in survivor.rows(THREAD, 8)] == [*range(1, 9)]
    play(survivor, [make(head(8), head(9), row(9)), make(head(9), head(10), row(10, base=10))])
    assert segments(kept) == [(1, 8), (1, 9)]
    play(survivor, [make(head(10), head(10, token=1), drop=Drop(rows=((1, 2),)))])
    assert segments(kept) == [(2, 9)]


@pytest.mark.parametrize(
    ("part", "late", "error"),
    [("/rows/", True, StoreUnavailable), ("match", False, OutcomeUnknown), ("match", True, OutcomeUnknown)],
)
def test_a_doubtful_write_leaves_nothing_that_was_erased_meanwhile(
    part: str, late: bool, error: type[Exception]
) -> None:
    kept = ObjectMap()
    play(process(kept, tail_bytes=TAIL), riding())
    stale = process(kept, Fault(OSError("lost"), lambda it: part in it, late=late), tail_bytes=TAIL)
    stale.heads([THREAD])
    erase = make(head(8), head(9, token=1), row(9, "clean", base=9), drop=Drop(rows=((1, 9),), secure=True))
    play(process(kept, tail_bytes=TAIL), [erase])
    assert not texts(kept, *range(1, 9))
    with pytest.raises(error):
        stale.swap([KEYFRAME])
    assert not texts(kept, *range(1, 9))
    assert process(kept).rows(THREAD, 9) == [row(9, "clean", base=9)]


# Readers


def test_who_knows_an_old_record_finds_rows_that_others_have_put_elsewhere() -> None:
    kept, pruning = with_a_segment()
    reader = process(kept)
    reader.heads([THREAD])
    play(pruning, [dropping((6, 9))])
    assert [found.seq for found in reader.rows(THREAD, 5)] == [1, 2, 3, 4, 5]
    assert reader.rows(THREAD, 7) == []


def test_who_knows_an_old_record_finds_all_rows_that_a_restore_needs() -> None:
    kept = ObjectMap()
    pruning = process(kept)
    first, second = [row(seq, base=5 if seq > 4 else 1) for seq in range(1, 9)], [row(9, base=5), row(10, base=5)]
    play(pruning, [make(None, head(8), *first), make(head(8), head(10), *second)])
    reader = process(kept)
    reader.heads([THREAD])
    play(pruning, [make(head(10), head(10, token=1), drop=Drop(rows=((1, 5),)))])
    assert segments(kept) == [(5, 8), (9, 10)]
    assert reader.rows(THREAD, 10) == [*first[4:], *second]


def test_a_reader_that_meets_a_prune_misses_no_row_that_is_kept() -> None:
    kept, pruning = with_a_segment()
    prunes: list[Swap] = []

    def prune_first(call: str, name: str) -> None:
        if call == "get" and "/rows/" in name and prunes:
            play(pruning, [prunes.pop()])

    reader = process(kept, prune_first)
    reader.heads([THREAD])
    prunes.append(dropping((2, 4)))
    assert [found.seq for found in reader.index(THREAD, None, None)] == [9, 8, 7, 6, 5, 4, 1]
    prunes.append(make(head(9, token=1), head(9, token=2), drop=Drop(rows=((7, 9),))))
    assert [found.seq for found in reader.index(THREAD, None, None)] == [9, 6, 5, 4, 1]
    assert not prunes


def test_a_restore_reads_no_more_than_the_segments_of_its_keyframe() -> None:
    kept = ObjectMap()
    play(process(kept), [make(head(at) if at else None, head(at + 4), *framed(at)) for at in range(0, 400, 4)])
    backend, calls = counted(kept)
    backend.heads([THREAD])
    calls.clear()
    assert [found.seq for found in backend.rows(THREAD, 103)] == [101, 102, 103]
    assert [call for call, _ in calls] == ["get"]


def framed(seq: int) -> list:  # type: ignore[type-arg]
    return [row(each, base=seq + 1) for each in range(seq + 1, seq + 5)]


# Damage


def test_a_prune_spares_the_segments_beside_one_that_is_missing() -> None:
    kept = ObjectMap()
    swaps = [make(head(at) if at else None, head(at + 4), *rows_after(at)) for at in range(0, 20, 4)]
    play(process(kept), swaps)
    kept.delete(names(kept, "/rows/")[2])
    play(process(kept), [make(head(20), head(20, token=1), drop=Drop(rows=((18, 19),)))])
    assert stored(kept) == [*range(1, 9), *range(13, 18), 19, 20]


def test_a_segment_of_a_lost_race_with_the_same_rows_is_never_read() -> None:
    kept = ObjectMap()
    _, loser = two_who_know(kept)
    crashing = process(kept, Fault(Crashed(), lambda it: it.startswith("put_if_match")), tail_bytes=TAIL)
    crashing.heads([THREAD])
    with pytest.raises(Crashed):
        crashing.swap([replace(KEYFRAME, rows=(row(9, "lost", base=9), row(10, "x" * TAIL, base=9)))])
    assert segments(kept) == [(1, 10)]
    play(loser, [KEYFRAME, make(head(9), head(10), row(10, "y" * TAIL, base=9))])
    backend = process(kept)
    assert backend.rows(THREAD, 10) == [row(9, base=9), row(10, "y" * TAIL, base=9)]
    assert [found.seq for found in backend.index(THREAD, None, None)] == [*range(10, 0, -1)]


def test_an_erase_that_could_not_remove_everything_says_so_and_the_next_one_does_it() -> None:
    kept, _ = with_a_segment()
    fault = Fault(OSError("no route"), lambda item: item.startswith("delete"))
    with pytest.raises(StoreUnavailable, match="erase again"):
        process(kept, fault, tail_bytes=TAIL).swap([dropping((1, 9), secure=True)])
    assert texts(kept, *range(1, 9)) == [*range(1, 9)]
    again = make(head(9, token=1), head(9, token=2), drop=Drop(secure=True))
    assert process(kept, tail_bytes=TAIL).swap([again]) == [True]
    assert texts(kept, *range(1, 9)) == []


def test_an_erase_removes_what_a_slow_writer_put_into_an_earlier_life() -> None:
    kept, backend = with_a_segment()
    (segment,) = names(kept, "/rows/")
    put_late = kept.kept[segment]
    play(backend, [make(head(9), head(0, token=5), drop=Drop(everything=True))])
    assert texts(kept, *range(1, 10)) == []
    kept.kept[segment] = put_late
    play(backend, [make(head(0, token=5), head(0, token=6), drop=Drop(secure=True))])
    assert texts(kept, *range(1, 10)) == []


def test_a_swap_that_gives_up_takes_back_what_it_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "pause", lambda _attempt: None)
    kept, _ = with_a_segment()
    marks, posted = names(kept, "marks/"), list[bool]()

    def post_first(call: str, _name: str) -> None:
        if call == "put_if_match":
            posted.append(process(kept).post(THREAD, f"k{len(posted)}", b""))

    unlucky = process(kept, post_first)
    with pytest.raises(StoreUnavailable, match=r"gave up after \d+ conflicting writes to thread"):
        unlucky.swap([make(head(9), head(10, status="running"), row(10, base=9))])
    assert len(posted) == heads.ATTEMPTS
    assert segments(kept) == [(1, 8)]
    assert names(kept, "marks/") == marks


@pytest.mark.parametrize(
    "name",
    [f"{'0' * 11}1-{'a' * 31}", f"{'0' * 11}1-{'a' * 33}", f"{'0' * 11}x-{'a' * 32}", f"{'1' * 13}-{'a' * 32}", ""],
)
def test_a_name_that_no_segment_can_have_has_no_version(name: str) -> None:
    folder = object_record.Record(THREAD).segment_folder
    assert segment_version(f"{folder}{1:012}-{'a' * 32}") == 1
    assert segment_version(folder + name) == 0


def test_what_is_left_of_many_ranges_is_found_in_one_pass() -> None:
    every_second = [(seq, seq + 1) for seq in range(2, 200_000, 2)]
    assert len(object_record.without(1, 200_000, every_second)) == 100_000
    assert object_record.without(1, 9, [(5, 7), (2, 4), (3, 6), (8, 8)]) == [(1, 1), (7, 9)]
    assert object_record.without(3, 4, [(1, 4)]) == [(4, 4)]
    assert object_record.without(3, 4, [(1, 9)]) == object_record.without(3, 4, [(3, 5)]) == []
    assert object_record.without(3, 4, [(7, 9), (1, 2)]) == [(3, 4)]


def test_parts_of_ranges_are_found() -> None:
    ranges = [(1, 3), (5, 5), (8, 20)]
    assert object_record.overlap(ranges, 2, 9) == [(2, 3), (5, 5), (8, 9)]
    assert object_record.overlap(ranges, 9, 10) == [(9, 10)]
    assert object_record.overlap(ranges, 6, 7) == object_record.overlap(ranges, 21, 30) == []
