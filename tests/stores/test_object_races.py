"""Writers of one thread in an object store: the loser of a race does no harm, nor does what it leaves behind."""

from hashlib import sha256

import pytest

from holdfast.records.head import Head, encode_head
from holdfast.records.rows import Drop, Swap
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects import ObjectBackend
from object_map import ObjectMap
from stores.object_scenes import (
    THREAD,
    Crashed,
    Fault,
    blob,
    blobs_of,
    head,
    leave_garbage,
    make,
    names,
    play,
    process,
    row,
    steps,
    stored,
    view,
)


def race(first: Swap, second: Swap, kept: ObjectMap, count: int = 2) -> tuple[ObjectBackend, ObjectBackend]:
    """Two processes that both know the head; the first one wins."""
    play(process(kept), steps(count))
    winner, loser = process(kept), process(kept)
    winner.heads([THREAD])
    loser.heads([THREAD])
    assert winner.swap([first]) == [True]
    assert loser.swap([second]) == [False]
    return winner, loser


def test_the_loser_of_a_race_takes_its_objects_back() -> None:
    kept = ObjectMap()
    ours = make(head(2), head(3), row(3, "ours"), blobs=dict([blob(3, b"3")]))
    theirs = make(head(2), head(3, token=9), row(3, "theirs"), blobs=dict([blob(3, b"big")]))
    winner, loser = race(ours, theirs, kept)
    assert len(names(kept, "/rows/")) == len(names(kept, "/blobs/")) == 3
    assert winner.rows(THREAD, 3)[-1] == row(3, "ours")
    assert view(winner) == view(loser)


def test_a_blob_that_the_winner_wrote_too_is_not_taken_back() -> None:
    kept = ObjectMap()
    same = dict([blob(3, b"3")])
    ours = make(head(2), head(3), row(3, "ours"), blobs=same)
    winner, _ = race(ours, make(head(2), head(3, token=9), row(3, "theirs"), blobs=same), kept)
    assert winner.blobs(THREAD, list(same)) == same


def test_a_row_that_the_winner_wrote_too_is_not_taken_back() -> None:
    kept = ObjectMap()
    both = dict([blob(3, b"3")])
    ours = make(head(2), head(3), row(3), blobs=both)
    winner, _ = race(ours, make(head(2), head(3, token=9), row(3), blobs=both), kept)
    assert [entry.seq for entry in winner.rows(THREAD, 3)] == [1, 2, 3]
    assert winner.blobs(THREAD, list(both)) == both


def test_a_refused_row_is_taken_back_and_an_equal_one_that_comes_after_it_has_another_name() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    heir, refused = process(kept), list[str]()

    def meanwhile(call: str, name: str) -> None:
        if call == "delete" and not refused:
            refused.append(name)
            play(heir, [make(head(2, token=1), head(3, token=1), row(3))])

    zombie = process(kept, meanwhile)
    zombie.heads([THREAD])
    play(heir, [make(head(2), head(2, token=1))])
    assert zombie.swap([make(head(2), head(3), row(3))]) == [False]
    assert refused
    assert stored(kept) == [1, 2, 3]
    assert heir.rows(THREAD, 3) == process(kept).rows(THREAD, 3) == [row(1), row(2), row(3)]


def test_a_loser_of_several_rows_takes_them_back_and_the_blobs_that_others_have_passed() -> None:
    kept = ObjectMap()
    blobs = dict([blob(3, b"big"), blob(4, b"big")])
    lost = make(head(2), head(4, token=9), row(3, "lost"), row(4, "lost"), blobs=blobs)
    winner, _ = race(steps(1, start=3)[0], lost, kept)
    assert stored(kept) == [1, 2, 3]
    assert winner.rows(THREAD, 3)[-1] == row(3)
    assert [name in winner.blobs(THREAD, list(blobs)) for name in blobs] == [False, True]


def test_a_slow_reply_does_not_bring_back_an_old_record() -> None:
    class Slow(ObjectMap):
        meanwhile: list[Swap]

        def get(self, name: str) -> tuple[bytes, str] | None:
            found = super().get(name)
            if self.meanwhile:
                play(backend, [self.meanwhile.pop()])
            return found

    kept = Slow()
    kept.meanwhile = []
    backend = ObjectBackend(kept)
    play(backend, steps(2))
    kept.meanwhile = steps(1, start=3)
    assert backend.heads([THREAD]) == [encode_head(THREAD, head(2))]
    known = backend._heads.cached(THREAD)
    assert known is not None
    assert known.record.head == encode_head(THREAD, head(3))


def test_the_blobs_of_a_loser_stay_where_the_winning_row_is_gone_again() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    loser = process(kept)
    loser.heads([THREAD])
    winner = process(kept)
    play(winner, steps(3, start=3))
    play(winner, [make(head(5), head(5, token=1), drop=Drop(rows=((1, 5),)))])
    lost = make(head(2), head(3, token=7), row(3, "lost"), blobs=dict([blob(3, b"3")]))
    assert loser.swap([lost]) == [False]
    assert winner.blobs(THREAD, list(lost.blobs)) == lost.blobs
    assert [entry.seq for entry in winner.index(THREAD, None, None)] == [5]


def test_a_loser_whose_thread_was_deleted_meanwhile_takes_everything_back() -> None:
    kept = ObjectMap()
    gone = make(head(2), Head(token=1, deleted=True), drop=Drop(everything=True))
    race(gone, make(head(2), head(3), row(3), blobs=dict([blob(3, b"3")])), kept)
    assert names(kept, "/rows/") == names(kept, "/blobs/") == []


def test_a_blob_that_the_next_life_of_a_thread_wrote_too_is_not_taken_back() -> None:
    kept = ObjectMap()
    play(process(kept), steps(4))
    loser = process(kept)
    loser.heads([THREAD])
    again = [row(seq, "again") for seq in range(1, 6)]
    same, start = dict([blob(5, b"5")]), Drop(everything=True)
    winner = process(kept)
    play(winner, [make(head(4), head(3, token=1), *again[:3], drop=start)])
    play(winner, [make(head(3, token=1), head(5, token=1), *again[3:], blobs=same)])
    assert loser.swap([make(head(4), head(5), row(5), blobs=same)]) == [False]
    assert winner.blobs(THREAD, list(same)) == same


def test_a_refused_drop_of_everything_leaves_the_thread_alone() -> None:
    kept = ObjectMap()
    blobs = dict([blob(1, b"big"), blob(2, b"2")])
    start_again = make(head(2), head(1, token=5), row(1, "again"), blobs=blobs, drop=Drop(everything=True))
    winner, _ = race(steps(1, start=3)[0], start_again, kept)
    model = MemoryBackend()
    play(model, steps(3))
    assert view(winner) == view(model)
    assert blobs_of(winner) == blobs_of(model)
    assert len(names(kept, "/00000001/blobs/")) == 2  # they may be put again, and committed then
    assert names(kept, "/00000001/rows/") == []


def test_garbage_of_lost_races_is_ignored_and_goes_with_the_next_prune() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    leave_garbage(kept, make(head(2), head(4), row(3, "lost"), row(4, "lost")))
    backend = process(kept)
    play(backend, steps(3, start=3))
    model = MemoryBackend()
    play(model, steps(5))
    assert view(backend) == view(model)
    assert stored(kept) == [1, 2, 3, 3, 4, 4, 5]
    prune = make(head(5), head(5, token=1), drop=Drop(rows=((1, 2), (4, 5))))
    play(backend, [prune])
    play(model, [prune])
    assert view(backend) == view(model)
    assert stored(kept) == [2, 3, 5]


def test_garbage_that_appears_beside_a_row_whose_successor_was_dropped_is_not_taken_for_it() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    zombie = process(kept, Fault(Crashed(), lambda it: it.startswith("put_if_match")))
    zombie.heads([THREAD])
    backend = process(kept)
    play(backend, [*steps(4, start=3), make(head(6), head(6, token=1), drop=Drop(rows=((4, 6),)))])
    with pytest.raises(Crashed):
        zombie.swap([make(head(2), head(4), row(3, "~lost"), row(4, "~lost"))])
    assert stored(kept) == [1, 2, 3, 3, 4, 6]
    assert backend.rows(THREAD, 3) == [row(1), row(2), row(3)]
    assert backend.rows(THREAD, 4) == []
    assert [entry.seq for entry in process(kept).index(THREAD, None, None)] == [6, 3, 2, 1]


def test_rows_that_another_has_dropped_meanwhile_are_no_damage() -> None:
    kept = ObjectMap()
    play(process(kept), [make(None, head(6), *(row(seq) for seq in range(1, 7)))])
    winner = process(kept)
    theirs = [make(head(6), head(6, token=9), drop=Drop(rows=((1, 6),)))]

    def prune_first(call: str, name: str) -> None:
        if call == "get" and "/rows/" in name and theirs:
            play(winner, [theirs.pop()])

    slower = process(kept, prune_first)
    slower.heads([THREAD])
    assert slower.swap([make(head(6), head(6, token=8), drop=Drop(rows=((3, 5),)))]) == [False]
    assert not theirs
    assert view(slower) == view(winner)


def test_objects_of_strangers_among_the_rows_are_left_alone() -> None:
    kept = ObjectMap()
    backend = process(kept)
    play(backend, steps(3))
    stranger = names(kept, "/rows/")[0].rpartition("/")[0] + "/000000000002-readme"
    kept.put_if_absent(stranger, b"")
    play(backend, [make(head(3), head(3, token=1), drop=Drop(rows=((1, 3),)))])
    assert [entry.seq for entry in backend.index(THREAD, None, None)] == [3]
    assert stranger in kept.kept


def test_equal_heads_are_told_apart_even_where_tags_are_hashes_of_the_content() -> None:
    class Hashing(ObjectMap):
        def _tag(self, data: bytes) -> str:
            return sha256(data).hexdigest()

    kept = Hashing()
    first, second = process(kept), process(kept)
    play(first, [make(None, head(1), row(1))])
    second.heads([THREAD])
    play(first, [make(head(1), head(1, token=1)), make(head(1, token=1), head(1), drop=Drop(rows=((1, 2),)))])
    play(second, [make(head(1), head(2), row(2, base=2))])
    assert [entry.seq for entry in first.index(THREAD, None, None)] == [2]
