"""Rows that ride in the head object: one call for an append, none but the head's for a restore; and how they leave."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.records.errors import OutcomeUnknown
from holdfast.records.rows import Drop
from holdfast.stores.objects import ObjectBackend
from object_map import ObjectMap
from patience import GIVE_UP_SECONDS
from stores.object_scenes import THREAD, Fault, counted, head, make, names, play, process, row, segments, steps, view

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


def test_a_keyframe_sends_the_rows_before_it_away() -> None:
    kept = ObjectMap()
    backend, calls = tailed(kept)
    play(backend, [*rows_only(5), make(head(5), head(6), row(6, base=6))])
    assert segments(kept) == [(1, 5)]
    calls.clear()
    assert backend.rows(THREAD, 6) == [row(6, base=6)]
    assert calls == []
    assert [found.seq for found in backend.rows(THREAD, 4)] == [1, 2, 3, 4]
    assert [call for call, _ in calls] == ["get"]


def test_a_large_row_goes_to_a_segment_at_once_and_takes_the_others_along() -> None:
    kept = ObjectMap()
    backend, _ = tailed(kept)
    large = row(3, "x" * TAIL)
    play(backend, [*rows_only(2), make(head(2), head(3), large)])
    assert segments(kept) == [(1, 3)]
    assert backend.rows(THREAD, 3) == process(kept).rows(THREAD, 3) == [row(1), row(2), large]
    play(backend, rows_only(2, start=4))
    assert segments(kept) == [(1, 3)]
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


def test_no_append_takes_more_than_two_calls_and_one_for_each_blob_it_writes() -> None:
    kept, calls, taken = ObjectMap(), list[str](), list[int]()
    kept.hook = lambda _call, name: calls.append(name)
    with sync.Store(ObjectBackend(kept)) as store:
        store.save("t", {"list": []})
        for number in range(1000):
            calls.clear()
            store.append("t", "list", {"text": f"item {number} " * 30})
            blobs = [name for name in calls if "/blobs/" in name]
            taken.append(len(calls))
            assert len(calls) <= 2 + len(blobs)
            assert len(calls) == 1 or sum("/rows/" in name for name in calls) == 1
    assert max(taken) > 1, "rows left the head"
    assert sum(taken) <= 1.1 * len(taken)


def erased_behind_its_back(kept: ObjectMap) -> sync.Store:
    """A store whose cached head carries 20 rows that another process has erased since."""
    stale, other = (sync.Store(ObjectBackend(kept.client())) for _ in range(2))
    stale.save("t", {"list": []})
    for number in range(20):
        stale.append("t", "list", f"SECRET {number}")
    stale.save("t", {"list": ["clean"]})
    other.erase("t")
    other.append("t", "list", "after")
    assert not secrets_in(kept)
    return stale


def secrets_in(kept: ObjectMap) -> list[str]:
    return [name for name, (data, _) in kept.kept.items() if b"SECRET" in data]


def test_a_refused_write_puts_nothing_back_that_was_erased_meanwhile() -> None:
    kept = ObjectMap()
    stale = erased_behind_its_back(kept)
    stale.append("t", "list", os.urandom(TAIL).hex())  # so large that the rows in the head have to leave it
    assert not secrets_in(kept)


def test_nor_does_one_of_which_nobody_knows_what_became() -> None:
    kept = ObjectMap()
    play(process(kept, tail_bytes=TAIL), rows_only(5))
    stale = process(kept, Fault(OSError("reset"), lambda it: it.startswith("put_if_match")), tail_bytes=TAIL)
    stale.heads([THREAD])
    play(process(kept), [make(head(5), head(5, token=1), drop=Drop(rows=((1, 5),), secure=True))])
    with pytest.raises(OutcomeUnknown):
        stale.swap([make(head(5), head(6), row(6, base=6))])
    assert not any(row(2).header in data for data, _ in kept.kept.values())


LATE = """
import threading
from holdfast import sync
from holdfast.stores.objects import ObjectBackend
from object_map import ObjectMap

store = sync.Store(ObjectBackend(ObjectMap()))
store.append("t", "list", 0)

def work():
    threading.main_thread().join()
    for number in range(1, 120):
        store.append("t", "list", number)
    print(store.latest("t").state["list"] == list(range(120)))

threading.Thread(target=work).start()
"""


def test_a_thread_that_outlives_the_main_one_can_still_write() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=GIVE_UP_SECONDS,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
