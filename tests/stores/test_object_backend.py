"""Threads in an object store: like memory, at a known cost, in batches; opening and closing."""

import threading
from collections.abc import Callable, Iterator
from random import Random

import pytest
from msgspec.structs import replace

from holdfast.records.errors import (
    ConfigurationError,
    Corrupt,
    IncompatibleCheckpoint,
    OutcomeUnknown,
    StoreClosed,
    StoreUnavailable,
)
from holdfast.records.head import Head
from holdfast.records.identity import thread_key
from holdfast.records.rows import KEEP_ALL, Drop, Swap
from holdfast.records.words import Durability
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects import ObjectBackend, heads
from holdfast.stores.objects import backend as object_backend
from holdfast.stores.objects.calls import Names
from holdfast.stores.objects.names import head_name
from object_map import ObjectMap
from stores.object_scenes import (
    IDS,
    OTHER,
    SPACE,
    THREAD,
    Fault,
    blob,
    blobs_of,
    counted,
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


def test_a_commit_takes_two_calls_and_a_new_thread_three() -> None:
    backend, calls = counted(ObjectMap())
    first, second = steps(2)
    backend.swap([replace(first, blobs={})])
    assert [call for call, _ in calls] == ["put_if_absent"] * 3
    calls.clear()
    backend.swap([replace(second, blobs={})])
    assert [call for call, _ in calls] == ["put_if_absent", "put_if_match"]
    calls.clear()
    backend.swap([make(head(2), head(2, token=1))])
    assert [call for call, _ in calls] == ["put_if_match"]


def test_a_restore_takes_the_head_and_each_segment() -> None:
    kept = ObjectMap()
    play(process(kept), steps(5))
    backend, calls = counted(kept)
    backend.heads([THREAD])
    assert [entry.seq for entry in backend.rows(THREAD, 5)] == [1, 2, 3, 4, 5]
    assert sorted(call for call, _ in calls) == ["get"] * 6


def test_posting_takes_three_calls_and_an_empty_inbox_one() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1))
    backend, calls = counted(kept)
    assert backend.inbox(THREAD) == {}
    assert [call for call, _ in calls] == ["get"]
    calls.clear()
    assert backend.post(THREAD, "k", b"v")
    assert [call for call, _ in calls] == ["get", "put_if_absent", "put_if_match"]


def test_heads_seen_lately_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "CACHED", 2)
    backend = process(ObjectMap())
    keys = [thread_key(SPACE, str(number)) for number in range(5)]
    for key in keys:
        play(backend, steps(1, thread=key))
    for key in keys:
        play(backend, steps(1, thread=key, start=2))
    assert len(backend._heads._cache) == 2


def batch(count: int) -> list[Swap]:
    keys = sorted(thread_key(SPACE, str(number)) for number in range(count))
    return [swap for key in keys for swap in steps(1, thread=key)]


def test_a_large_batch_runs_on_few_threads_without_waiting_for_itself() -> None:
    backend = ObjectBackend(ObjectMap(), parallel=2)
    swaps = [replace(swap, blobs=dict(blob(1, b"%d" % number) for number in range(5))) for swap in batch(40)]
    assert backend.swap(swaps) == [True] * 40
    assert None not in backend.heads([swap.thread for swap in swaps])
    backend.close()


def test_one_refused_does_not_touch_the_others() -> None:
    backend = process(ObjectMap())
    swaps = batch(3)
    play(backend, [swaps[1]])
    assert backend.swap(swaps) == [True, False, True]


def test_a_batch_of_which_some_was_written_has_an_unknown_outcome() -> None:
    swaps = batch(3)
    fault = Fault(StoreUnavailable("down"), lambda it: head_name(swaps[1].thread)[:-4] in it)
    backend = process(ObjectMap(), fault)
    with pytest.raises(OutcomeUnknown, match="1 of 3 swaps failed"):
        backend.swap(swaps)
    assert [found is not None for found in backend.heads([swap.thread for swap in swaps])] == [True, False, True]


def test_a_batch_of_which_nothing_was_written_is_unavailable() -> None:
    def down(_call: str, _name: str) -> None:
        raise OSError

    with pytest.raises(StoreUnavailable, match="3 of 3 swaps failed"):
        process(ObjectMap(), down).swap(batch(3))


def sequences(random: Random) -> Iterator[Swap | tuple[str, bytes]]:
    """Swaps and posts as a store makes them; some swaps expect an old head."""
    now: Head | None = None
    token = last = 0
    for _ in range(60):
        token += 1
        kind = random.choice(["rows", "rows", "rows", "head", "drop", "post", "stale", "delete"])
        if kind == "post":
            yield random.choice("abc"), b"%d" % token
            continue
        count = random.randint(1, 3) if kind == "rows" else 0
        drop, blobs = KEEP_ALL, {}
        if kind == "delete" and random.random() < 0.5:
            last, drop = 0, Drop(everything=True)
            count = random.randint(0, 1)
        if kind == "drop" and last > 1:
            start = random.randint(1, last - 1)
            drop = Drop(rows=((start, random.randint(start, last)),), blobs=tuple(random.sample(IDS, 2)))
        rows = [
            row(seq, str(token), base=random.randint(max(1, last - 3), seq))
            for seq in range(last + 1, last + 1 + count)
        ]
        if rows and last < 11:
            blobs = dict([blob(last + 1, b"big")])
        consumed = tuple(random.sample("abc", random.randint(0, 2)))
        new = head(last + count, token=token)
        old = head(0, token=-1) if kind == "stale" else now
        yield make(old, new, *rows, blobs=blobs, consumed=consumed, drop=drop)
        if kind != "stale":
            now, last = new, last + count


@pytest.mark.faults
@pytest.mark.usefixtures("tails")
@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 25))])
def test_two_processes_over_one_object_store_are_like_one_memory_store(seed: int) -> None:
    random, model, kept = Random(seed), MemoryBackend(), ObjectMap()
    processes = [process(kept), process(kept)]
    for action in sequences(random):
        backend = random.choice(processes)
        if isinstance(action, Swap):
            assert backend.swap([action]) == model.swap([action])
        else:
            assert backend.post(THREAD, *action) == model.post(THREAD, *action)
        assert view(random.choice(processes)) == view(model)
        assert blobs_of(model) <= blobs_of(backend)
        before, limit = random.randint(0, 12), random.randint(0, 4)
        assert backend.index(THREAD, before, limit) == model.index(THREAD, before, limit)
    last = model.heads([THREAD])[0]
    play(process(kept, tail_bytes=0), [Swap(THREAD, last or b"", b"x", Head())])
    assert stored(kept) == [entry.seq for entry in reversed(model.index(THREAD, None, None))]
    assert len(names(kept, "/posts/")) == len(model.inbox(THREAD))
    assert blobs_of(model) == blobs_of(process(kept))


def test_rows_far_below_the_newest_and_far_above_their_base_are_found() -> None:
    kept = ObjectMap()
    backend = process(kept, tuning=replace(object_backend.TUNING, keyframe_rows_max=4))
    rows = [row(seq, base=1 if seq < 1500 else 1500) for seq in range(1, 2101)]
    play(backend, [make(head(at) if at else None, head(at + 100), *rows[at : at + 100]) for at in range(0, 2100, 100)])
    for seq in (1, 3, 1200, 1499, 1500, 1503, 2100):
        assert backend.rows(THREAD, seq) == [entry for entry in rows[:seq] if entry.seq >= rows[seq - 1].base]
    assert backend.index(THREAD, 1002, 2) == [replace(rows[1000], body=b""), replace(rows[999], body=b"")]
    play(backend, [make(head(2100), head(2100, token=1), drop=Drop(rows=((5, 2099),)))])
    assert stored(kept) == [1, 2, 3, 4, 2099, 2100]


@pytest.mark.parametrize("nothing", [(2, 2), (3, 2), (100, 200), (0, 1)])
def test_dropping_rows_that_are_not_there_spares_those_that_are(nothing: tuple[int, int]) -> None:
    kept = ObjectMap()
    forgetful = process(kept, Fault(OSError(), lambda it: it.startswith(("list", "delete"))))
    play(forgetful, [*steps(3), make(head(3), head(3, token=1), drop=Drop(rows=(nothing,)))])
    play(process(kept), [make(head(3, token=1), head(4), row(4))])
    assert [entry.seq for entry in process(kept).rows(THREAD, 4)] == [1, 2, 3, 4]


def test_dropping_beyond_the_last_row_spares_rows_that_are_on_their_way() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    on_their_way = [make(head(2, token=1), head(3), row(3))]

    def meanwhile(call: str, name: str) -> None:
        if call == "list" and on_their_way:  # after the commit, before the removal
            leave_garbage(kept, on_their_way.pop())

    play(process(kept, meanwhile), [make(head(2), head(2, token=1), drop=Drop(rows=((1, 1000),)))])
    assert (on_their_way, stored(kept)) == ([], [3])


def test_rows_that_were_on_their_way_before_another_record_came_can_go() -> None:
    kept = ObjectMap()
    play(process(kept), steps(2))
    leave_garbage(kept, make(head(2), head(3), row(3)))
    play(process(kept), [make(head(2), head(2, token=1), drop=Drop(rows=((1, 2),)))])
    assert stored(kept) == [2]
    play(process(kept), [make(head(2, token=1), head(3), row(3, base=2))])
    assert process(kept).rows(THREAD, 3) == [row(2), row(3, base=2)]


class Overwriting(ObjectMap):
    def put_if_absent(self, name: str, data: bytes) -> str | None:
        return self._put(name, data)


class Unconditional(ObjectMap):
    def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
        return self._put(name, data) if name in self.kept else None


class Refusing(ObjectMap):
    def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
        return None


class ReadOnly(ObjectMap):
    def put_if_absent(self, name: str, data: bytes) -> str | None:
        return None


class Stale(ObjectMap):
    def get(self, name: str) -> tuple[bytes, str] | None:
        return (b"first", "1") if name.startswith("probe") else super().get(name)


class Blind(ObjectMap):
    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Names:
        return []


class Circling(ObjectMap):
    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Names:
        return super().list(prefix, "", limit)


class Undying(ObjectMap):
    def delete(self, name: str) -> None:
        pass


@pytest.mark.parametrize(
    ("kept", "fault"),
    [
        (Overwriting(), "overwrites an object"),
        (Unconditional(), "although its tag has changed"),
        (Refusing(), "refuses to replace"),
        (ReadOnly(), "refuses to create"),
        (Stale(), "does not return what was put last"),
        (Blind(), "does not list"),
        (Circling(), "does not list"),
        (Undying(), "was deleted"),
    ],
)
def test_a_store_that_does_not_keep_its_word_is_refused_at_open(kept: ObjectMap, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        ObjectBackend(kept).open()
    assert isinstance(kept, Undying) or not names(kept, "probe")


def test_opening_leaves_a_format_and_no_probe_and_is_done_once() -> None:
    kept = ObjectMap()
    backend, calls = counted(kept)
    backend.open()
    assert names(kept) == ["format"]
    calls.clear()
    backend.open()
    assert not calls
    process(kept).open()


def test_a_store_of_another_or_unknown_format_is_refused() -> None:
    kept = ObjectMap()
    kept.put_if_absent("format", b"3")
    with pytest.raises(IncompatibleCheckpoint, match="format 3"):
        process(kept).open()
    kept.kept["format"] = (b"1", "1")
    with pytest.raises(IncompatibleCheckpoint, match="format 1, and this version reads only format 2"):
        process(kept).open()
    kept.kept["format"] = (b"\xb2", "1")
    with pytest.raises(Corrupt):
        process(kept).open()


def test_a_store_that_is_down_at_open_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        process(ObjectMap(), Fault(OSError(), bool)).open()


def test_the_guarantee_is_the_level_given() -> None:
    class Bucket(ObjectBackend):
        kind = "bucket"

    given = Bucket(ObjectMap(), durability=Durability.REPLICATED).guarantee()
    assert (given.level, given.store) == (Durability.REPLICATED, "bucket")
    assert ObjectBackend(ObjectMap()).guarantee().level == Durability.DURABLE


def test_after_close_every_call_is_refused_and_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    backend = ObjectBackend(ObjectMap())
    backend.swap(batch(4))
    assert set(threading.enumerate()) - before
    backend.close()
    backend.close()
    assert not set(threading.enumerate()) - before
    calls: list[Callable[[], object]] = [
        backend.open,
        backend.guarantee,
        backend.check,
        lambda: backend.heads([]),
        lambda: backend.swap([]),
        lambda: backend.rows(THREAD, 1),
        lambda: backend.blobs(THREAD, []),
        lambda: backend.index(THREAD, None, None),
        lambda: backend.threads(SPACE, (), (), None, 1),
        lambda: backend.post(THREAD, "k", b"v"),
        lambda: backend.inbox(THREAD),
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_a_forked_child_starts_threads_of_its_own() -> None:
    backend = ObjectBackend(ObjectMap())
    backend.swap(batch(4))
    inherited = backend._calls._pool
    assert inherited is not None
    backend._calls._process = -1
    backend.heads([THREAD, OTHER])
    assert backend._calls._pool is not inherited
    backend.close()
    inherited.shutdown()
