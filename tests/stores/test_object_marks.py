"""Marks in an object store: threads of a status or label are found without reading the others, and none is missed."""

from random import Random
from typing import Any

import pytest

from holdfast.records.errors import OutcomeUnknown
from holdfast.records.head import Head, encode_head
from holdfast.records.identity import thread_key
from holdfast.records.rows import Drop, Swap
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects import ObjectBackend
from kinds import alike
from object_map import ObjectMap
from stores.object_scenes import SPACE, THREAD, TOMBSTONE, Crashed, Fault, counted, head, make, names, play, process

WORKING = head(1, status="working")
IDLE = head(2)


def listed(backend: ObjectBackend, *statuses: str, label: bytes = b"") -> list[bytes]:
    labels = [[label]] if label else []
    return [thread for thread, _ in backend.threads(SPACE, statuses, labels, None, 100).heads]


def begin(count: int, kept: ObjectMap, **fields: Any) -> None:
    for number in range(count):
        thread = thread_key(SPACE, f"thread {number}")
        new = head(1, **fields)
        play(process(kept), [Swap(thread, b"", encode_head(thread, new), new)])


def test_a_listing_by_status_reads_the_heads_of_those_threads_alone() -> None:
    kept = ObjectMap()
    begin(100, kept)
    play(process(kept), [make(None, WORKING)])
    backend, calls = counted(kept)
    assert listed(backend, "working") == [THREAD]
    assert [call for call, _ in calls] == ["list", "get"]
    calls.clear()
    assert listed(backend, "working", "failed", "input_required") == [THREAD]
    assert len(calls) == 4
    assert len(listed(backend, "idle")) == 100


def test_a_listing_by_label_reads_the_heads_of_those_threads_alone() -> None:
    kept = ObjectMap()
    begin(50, kept, labels=(b"other",))
    play(process(kept), [make(None, head(1, labels=(b"this", b"that")))])
    backend, calls = counted(kept)
    assert listed(backend, label=b"this") == [THREAD]
    assert len(calls) == 2
    assert listed(backend, "idle", label=b"that") == [THREAD]
    assert listed(backend, "working", label=b"that") == []


def test_threads_at_rest_cost_no_mark() -> None:
    kept = ObjectMap()
    begin(3, kept)
    assert names(kept, "marks/") == []


def test_a_mark_goes_with_what_it_says() -> None:
    kept = ObjectMap()
    backend = process(kept)
    play(backend, [make(None, WORKING)])
    assert len(names(kept, "marks/")) == 1
    play(backend, [make(WORKING, IDLE)])
    assert names(kept, "marks/") == []
    assert listed(backend, "working") == []
    play(backend, [make(IDLE, head(3, labels=(b"l",), status="failed"))])
    assert len(names(kept, "marks/")) == 2
    play(backend, [make(head(3, labels=(b"l",), status="failed"), TOMBSTONE, drop=Drop(everything=True))])
    assert names(kept, "marks/") == []


def test_a_mark_stays_if_the_reply_of_the_commit_that_speaks_of_it_was_lost() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, head(1))])
    lossy = process(kept, Fault(OSError("lost"), lambda it: it.startswith("put_if_match"), late=True))
    with pytest.raises(OutcomeUnknown):
        lossy.swap([make(head(1), head(2, status="working"))])
    assert listed(process(kept), "working") == [THREAD]
    assert process(kept).check() == []


def test_a_status_that_stays_costs_nothing() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, WORKING)])
    backend, calls = counted(kept)
    backend.heads([THREAD])
    calls.clear()
    play(backend, [make(WORKING, head(2, status="working"))])
    assert [call for call, _ in calls] == ["put_if_match"]


def test_what_a_crash_left_is_removed_by_the_listing_that_meets_it() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, head(1))])
    dying = process(kept, Fault(Crashed(), lambda it: it.startswith("put_if_match")))
    with pytest.raises(Crashed):
        dying.swap([make(head(1), WORKING)])
    assert len(names(kept, "marks/")) == 1
    assert listed(process(kept), "working") == []
    assert len(names(kept, "marks/")) == 1, "its commit may still be under way"
    play(process(kept), [make(head(1), IDLE)])
    assert listed(process(kept), "working") == []
    assert names(kept, "marks/") == []


def test_the_loser_of_a_race_takes_its_mark_back_and_leaves_the_winners() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, head(1))])
    winner, loser = process(kept), process(kept)
    winner.heads([THREAD])
    loser.heads([THREAD])
    play(winner, [make(head(1), WORKING)])
    assert loser.swap([make(head(1), head(2, status="working"))]) == [False]
    assert len(names(kept, "marks/")) == 1
    assert listed(loser, "working") == [THREAD]


def test_a_slow_removal_does_not_hit_the_mark_of_a_later_time() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, WORKING)])
    again = [make(IDLE, head(3, status="working"))]

    def hook(call: str, _name: str) -> None:
        if call == "delete" and again:
            play(process(kept), [again.pop()])

    play(process(kept, hook), [make(WORKING, IDLE)])
    assert not again
    assert listed(process(kept), "working") == [THREAD]


def test_a_mark_that_is_missing_is_found_by_a_check() -> None:
    kept = ObjectMap()
    backend = process(kept)
    play(backend, [make(None, WORKING)])
    assert backend.check() == []
    del kept.kept[names(kept, "marks/")[0]]
    assert "is missing: listings" in backend.check()[0]


@pytest.mark.parametrize("seed", alike(range(5)))
def test_listings_by_mark_are_those_of_a_memory_store(seed: int) -> None:
    random, kept, model = Random(seed), ObjectMap(), MemoryBackend()
    backends = [process(kept), process(kept)]
    threads = [thread_key(SPACE, str(number)) for number in range(12)]
    present: dict[bytes, Head | None] = dict.fromkeys(threads)
    for step in range(150):
        thread, old = (chosen := random.choice(threads)), present[chosen]
        labels = tuple(sorted(random.sample([b"a", b"b", b"c"], random.randrange(3))))
        status = random.choice(["idle", "working", "failed", "input_required"])
        new = Head(token=step, deleted=True) if random.random() < 0.1 else head(step, status=status, labels=labels)
        drop = Drop(everything=new.deleted)
        swap = make(old, new, thread=thread, drop=drop)
        assert random.choice(backends).swap([swap]) == model.swap([swap]) == [True]
        present[thread] = new
        wanted = random.sample(["idle", "working", "failed", "input_required"], random.randrange(3))
        tokens = [[random.choice([b"a", b"b", b"c"])]] if random.random() < 0.5 else []
        assert paged(random.choice(backends), wanted, tokens) == sorted(
            thread for thread, _ in model.threads(SPACE, wanted, tokens, None, 100).heads
        )


def paged(backend: ObjectBackend, statuses: list[str], labels: list[list[bytes]]) -> list[bytes]:
    found: list[bytes] = []
    cursor = None
    while True:
        page = backend.threads(SPACE, statuses, labels, cursor, 2)
        found += [thread for thread, _ in page.heads]
        cursor = page.next
        if cursor is None:
            return sorted(found)
