"""Posts in an object store: each is delivered until it is consumed, whoever is slow."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.records.errors import (
    OutcomeUnknown,
    StoreUnavailable,
)
from holdfast.records.rows import Drop
from holdfast.stores.objects import ObjectBackend
from holdfast.stores.objects import backend as object_backend
from object_map import ObjectMap
from stores.object_scenes import THREAD, TOMBSTONE, Fault, head, make, names, play, process, steps


def test_a_key_is_free_again_in_the_moment_its_post_is_consumed() -> None:
    kept = ObjectMap()
    fault = Fault(OSError(), lambda it: it.startswith("delete"))
    backend = process(kept, fault)
    play(backend, steps(1))
    assert backend.post(THREAD, "cancel", b"first")
    assert not backend.post(THREAD, "cancel", b"again")
    play(backend, steps(1, start=2, consumed=("cancel",)))
    assert len(names(kept, "/posts/")) == 1
    other = process(kept)
    assert other.inbox(THREAD) == {}
    assert other.post(THREAD, "cancel", b"second")
    play(process(kept), [make(head(2), head(2, token=1))])
    assert backend.inbox(THREAD) == other.inbox(THREAD) == {"cancel": b"second"}
    assert len(names(kept, "/posts/")) == 1


def test_a_slow_removal_of_a_consumed_post_does_not_hit_the_next_of_its_key() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1))
    process(kept).post(THREAD, "k", b"first")
    told: list[bool] = []

    def hook(call: str, _name: str) -> None:
        if call == "delete" and not told:
            told.append(process(kept).post(THREAD, "k", b"second"))

    play(process(kept, hook), steps(1, start=2, consumed=("k",)))
    assert told == [True]
    assert process(kept).inbox(THREAD) == {"k": b"second"}


def test_a_post_does_not_refuse_a_commit_and_no_commit_loses_a_post() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1))
    told: list[bool] = []

    def hook(call: str, _name: str) -> None:
        if call == "put_if_match" and len(told) < 3:
            told.append(process(kept).post(THREAD, f"k{len(told)}", b"v"))

    play(process(kept, hook), steps(1, start=2))
    assert process(kept).inbox(THREAD) == dict.fromkeys(["k0", "k1", "k2"], b"v")
    assert len(names(kept, "/rows/")) == 2


def test_many_posts_at_once_are_all_kept() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1))
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda number: process(kept).post(THREAD, str(number % 12), b"%d" % number), range(24)))
    assert sum(told) == len(process(kept).inbox(THREAD)) == len(names(kept, "/posts/")) == 12


def test_a_post_that_loses_against_one_of_its_key_is_withdrawn() -> None:
    kept = ObjectMap()
    told: list[bool] = []

    def hook(call: str, name: str) -> None:
        if "put" in call and name.endswith("head") and not told:
            told.append(process(kept).post(THREAD, "k", b"theirs"))

    assert process(kept, hook).post(THREAD, "k", b"ours") is False
    assert process(kept).inbox(THREAD) == {"k": b"theirs"}
    assert len(names(kept, "/posts/")) == 1


def test_a_post_beside_a_delete_comes_after_it() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1))
    gone = [make(head(1), TOMBSTONE, drop=Drop(everything=True))]

    def hook(call: str, _name: str) -> None:
        if call == "put_if_match" and gone:
            play(process(kept), [gone.pop()])

    backend = process(kept, hook)
    assert backend.post(THREAD, "k", b"v")
    assert backend.inbox(THREAD) == {"k": b"v"}
    assert len(names(kept, "/posts/")) == 1


def test_an_inbox_read_beside_a_consumer_is_read_again() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1))
    for key in ("b", "a"):
        process(kept).post(THREAD, key, key.encode())
    consume = [steps(1, start=2, consumed=("a",))]

    def hook(call: str, name: str) -> None:
        if call == "get" and "/posts/" in name and consume:
            play(process(kept), consume.pop())

    assert process(kept, hook).inbox(THREAD) == {"b": b"b"}


def test_the_lost_reply_of_a_post_is_an_unknown_outcome() -> None:
    kept = ObjectMap()
    play(process(kept), steps(1))
    with pytest.raises(OutcomeUnknown):
        process(kept, Fault(OSError(), lambda it: it.startswith("put_if_match"), late=True)).post(THREAD, "k", b"v")
    assert process(kept).post(THREAD, "k", b"v") is False
    assert process(kept).inbox(THREAD) == {"k": b"v"}


def test_a_thread_that_others_write_to_without_end_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_backend, "ATTEMPTS", 3)

    class Contended(ObjectMap):
        def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
            return None

    kept = Contended()
    backend = ObjectBackend(kept)
    play(backend, steps(1))
    hostile = b"\xff\xff"
    with pytest.raises(StoreUnavailable, match=r"gave up after \d+ conflicting writes to thread"):
        backend.swap(steps(1, start=2))
    with pytest.raises(StoreUnavailable, match=r"gave up after \d+ conflicting writes to thread"):
        backend.post(THREAD, "k", b"v")
    kept.put_if_absent = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match=r"gave up after \d+ conflicting writes to thread"):
        backend.post(hostile, "k", b"v")
