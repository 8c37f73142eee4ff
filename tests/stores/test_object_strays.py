"""Blobs of a save that died before its commit: never read, and gone with the next prune that can prove it."""

from random import Random

import pytest

from holdfast.sync import Retention, Store
from object_map import ObjectMap
from stores.object_scenes import Crashed, process

LARGE = Random(7).randbytes(200_000)
KEEP_ALL = Retention(keep_last=1000)


def die_at_the_commit(call: str, name: str) -> None:
    if call == "put_if_match" and name.endswith("/head"):
        raise Crashed


def blobs(kept: ObjectMap) -> list[str]:
    return [name for name in kept.kept if "/blobs/" in name]


def state_of(store: Store) -> object:
    newest = store.latest("a")
    assert newest is not None
    return newest.state


@pytest.fixture
def kept() -> ObjectMap:
    """A thread of one checkpoint, and the blob of a second that was never committed."""
    kept = ObjectMap()
    Store(process(kept)).save("a", {"n": 1})
    with pytest.raises(Crashed):
        Store(process(kept, die_at_the_commit)).save("a", {"n": 2, "file": LARGE})
    assert len(blobs(kept)) == 1
    return kept


def test_a_blob_that_may_still_be_committed_stays(kept: ObjectMap) -> None:
    Store(process(kept)).prune(KEEP_ALL)
    assert len(blobs(kept)) == 1


def test_a_blob_that_was_overtaken_goes_with_the_next_prune(kept: ObjectMap) -> None:
    store = Store(process(kept))
    store.save("a", {"n": 3})
    dry = store.prune(KEEP_ALL, dry_run=True)
    assert (dry.blobs, len(blobs(kept))) == (1, 1)
    assert store.prune(KEEP_ALL).blobs == 1
    assert blobs(kept) == []
    assert store.prune(KEEP_ALL).blobs == 0
    assert [info.seq for info in store.history("a").items] == [2, 1]
    assert state_of(store) == {"n": 3}


def test_blobs_that_rows_refer_to_stay(kept: ObjectMap) -> None:
    store = Store(process(kept))
    other = Random(8).randbytes(200_000)
    for number in range(3):
        store.save("a", {"n": number, "file": other})
    store.prune(Retention(keep_last=2))
    assert len(blobs(kept)) == 1
    fresh = Store(process(kept))
    assert state_of(fresh) == {"n": 2, "file": other}
    assert fresh.verify().ok


def test_erasing_the_past_erases_what_was_never_committed_too(kept: ObjectMap) -> None:
    store = Store(process(kept))
    store.save("a", {"n": 3})
    store.erase("a")
    assert blobs(kept) == []
    assert state_of(store) == {"n": 3}


def test_a_crash_in_the_prune_leaves_it_to_the_next(kept: ObjectMap) -> None:
    Store(process(kept)).save("a", {"n": 3})
    with pytest.raises(Crashed):
        Store(process(kept, die_at_the_commit)).prune(KEEP_ALL)
    assert len(blobs(kept)) == 1
    assert Store(process(kept)).prune(KEEP_ALL).blobs == 1
    assert blobs(kept) == []
