"""Rows that ride in the head object: one call for an append, none but the head's for a restore; and how they leave."""

import pytest

from holdfast import sync
from holdfast.records.rows import Drop
from holdfast.stores.objects import ObjectBackend
from holdfast.stores.objects.map import ObjectMap
from holdfast.stores.objects.record import decode_record
from stores.object_scenes import THREAD, Crashed, Fault, counted, head, make, names, play, process, row, steps, view

TAIL = 32768


def rows_only(count: int, start: int = 1) -> list:  # type: ignore[type-arg]
    return [make(head(seq - 1) if seq > 1 else None, head(seq), row(seq)) for seq in range(start, start + count)]


def tailed(kept: ObjectMap) -> tuple[ObjectBackend, list[tuple[str, str]]]:
    _, calls = counted(kept)
    return process(kept, lambda call, name: calls.append((call, name)), tail_bytes=TAIL), calls


def test_an_append_takes_one_call() -> None:
    kept = ObjectMap()
    backend, calls = tailed(kept)
    play(backend, rows_only(1))
    calls.clear()
    play(backend, rows_only(9, start=2))
    assert [call for call, _ in calls] == ["put_if_match"] * 9
    assert names(kept, "/rows/") == []


def test_a_restore_of_the_newest_takes_the_head_alone() -> None:
    kept = ObjectMap()
    play(tailed(kept)[0], rows_only(9))
    backend, calls = tailed(kept)
    backend.heads([THREAD])
    assert [found.seq for found in backend.rows(THREAD, 9)] == list(range(1, 10))
    assert backend.rows(THREAD, 5)[-1] == row(5)
    assert [call for call, _ in calls] == ["get"]


def after_keyframe(count: int) -> list:  # type: ignore[type-arg]
    """Five rows, a keyframe, and COUNT rows that build on it."""
    keyframe = make(head(5), head(6), row(6, base=6))
    return [*rows_only(5), keyframe, *(make(head(seq - 1), head(seq), row(seq, base=6)) for seq in range(7, 7 + count))]


def riding(kept: ObjectMap) -> list[int]:
    (name,) = names(kept, "/head")
    return [each.seq for each, _ in decode_record(name, kept.kept[name][0]).tail]


def test_after_a_keyframe_each_append_sends_one_row_away_that_came_before_it() -> None:
    kept = ObjectMap()
    backend, calls = tailed(kept)
    for number, swap in enumerate(after_keyframe(6)):
        calls.clear()
        play(backend, [swap])
        assert len(calls) <= 2
        assert len(names(kept, "/rows/")) == min(max(number - 4, 0), 5)
    calls.clear()
    assert [found.seq for found in backend.rows(THREAD, 12)] == [6, 7, 8, 9, 10, 11, 12]
    assert calls == []
    assert riding(kept) == [6, 7, 8, 9, 10, 11, 12]
    for other in (backend, process(kept)):
        assert [found.seq for found in other.rows(THREAD, 4)] == [1, 2, 3, 4]


def test_a_row_that_could_not_be_sent_away_rides_on_and_its_append_is_made() -> None:
    kept = ObjectMap()
    backend = process(kept, Fault(OSError("no"), lambda it: "/rows/" in it), tail_bytes=TAIL)
    swaps = after_keyframe(6)
    play(backend, swaps[:6])
    assert names(kept, "/rows/") == []
    play(backend, swaps[6:])
    assert len(names(kept, "/rows/")) == 5
    assert [found.seq for found in process(kept).rows(THREAD, 5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("late", [False, True], ids=["before it", "after it"])
def test_a_process_that_dies_as_a_row_is_sent_away_has_made_its_append(late: bool) -> None:
    kept = ObjectMap()
    swaps = after_keyframe(3)
    backend = process(kept, Fault(Crashed(), lambda it: "/rows/" in it, late=late), tail_bytes=TAIL)
    play(backend, swaps[:5])
    with pytest.raises(Crashed):
        backend.swap([swaps[5]])
    other = process(kept, tail_bytes=TAIL)
    play(other, swaps[6:])
    assert [found.seq for found in other.index(THREAD, None, None)] == list(range(9, 0, -1))
    assert [found.seq for found in process(kept).rows(THREAD, 5)] == [1, 2, 3, 4, 5]


def test_a_row_dropped_while_it_is_sent_away_is_taken_back() -> None:
    kept = ObjectMap()
    swaps = after_keyframe(3)
    pruning = make(head(6), head(6, token=1), drop=Drop(rows=((1, 6),), secure=True))
    backend = process(kept, tail_bytes=TAIL)
    play(backend, swaps[:6])
    play(process(kept), [pruning])
    assert backend.swap([swaps[6]]) == [False]
    assert not any(row(2).header in data for data, _ in kept.kept.values())


def test_large_rows_are_objects_of_their_own() -> None:
    kept = ObjectMap()
    backend, _ = tailed(kept)
    large = row(3, "x" * TAIL)
    play(backend, [*rows_only(2), make(head(2), head(3), large)])
    assert len(names(kept, "/rows/")) == 3
    assert riding(kept) == []
    assert backend.rows(THREAD, 3) == process(kept).rows(THREAD, 3) == [row(1), row(2), large]
    play(backend, rows_only(2, start=4))
    assert len(names(kept, "/rows/")) == 3
    assert [found.seq for found in backend.rows(THREAD, 5)] == [1, 2, 3, 4, 5]


def test_rows_that_ride_are_dropped_with_the_head_that_drops_them() -> None:
    kept = ObjectMap()
    backend, _ = tailed(kept)
    play(backend, [*rows_only(4), make(head(4), head(5), row(5, "kept"))])
    play(backend, [make(head(5), head(5, token=1), drop=Drop(rows=((2, 5),), secure=True))])
    assert [found.seq for found in backend.index(THREAD, None, None)] == [5, 1]
    assert not any(row(3).header in data for data, _ in kept.kept.values())


def test_processes_with_and_without_a_tail_share_a_store() -> None:
    kept = ObjectMap()
    with_tail, without = process(kept, tail_bytes=TAIL), process(kept, tail_bytes=0)
    for number, swap in enumerate(steps(12)):
        play([with_tail, without][number // 2 % 2], [swap])
    assert view(with_tail) == view(without) == view(process(kept))
    assert [found.seq for found in without.rows(THREAD, 12)] == list(range(1, 13))


def test_a_store_appends_with_about_one_call() -> None:
    kept, calls = ObjectMap(), list[str]()
    kept.hook = lambda call, name: calls.append(call)
    with sync.Store(ObjectBackend(kept)) as store:
        store.save("t", {"list": []})
        calls.clear()
        for number in range(20):
            store.append("t", "list", f"item {number}")
        assert calls == ["put_if_match"] * 20


@pytest.mark.parametrize("size", [10, 500, 3_000, 20_000])
def test_no_append_takes_more_than_two_calls(size: int) -> None:
    kept, calls = ObjectMap(), list[str]()
    kept.hook = lambda call, name: calls.append(call)
    with sync.Store(ObjectBackend(kept)) as store:
        store.save("t", {"list": []})
        for number in range(200):
            calls.clear()
            store.append("t", "list", f"{number:0{size}}")
            assert len(calls) <= 2
        latest = store.latest("t")
    assert latest is not None
    assert [int(item[-6:]) for item in latest.state["list"]] == list(range(200))
