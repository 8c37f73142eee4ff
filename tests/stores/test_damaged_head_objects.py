"""A damaged head object: its thread is listed as damaged beside the others, and `delete` removes what is left of it."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import sync
from holdfast.stores.objects import ObjectBackend
from holdfast.stores.objects.names import hash_of, head_name, marker_name, root_of
from holdfast.stores.objects.record import Leftovers, Segment, decode_record, encode_record
from holdfast.testing.handles import blocking_store
from object_map import ObjectMap

BAD, GOOD = b"\0bad", b"\0good"


def opened(kept: ObjectMap) -> sync.Store:
    """As another process opens it."""
    return blocking_store(ObjectBackend(kept.client()))


def filled() -> ObjectMap:
    kept = ObjectMap()
    with opened(kept) as store:
        for thread_id in ("good", "bad"):
            for number in range(3):
                store.save(thread_id, {"n": number, "x": f"{number}" * 70_000}, labels={"app": "x"}, status="failed")
    return kept


def plant(kept: ObjectMap, name: str, data: bytes) -> None:
    kept.kept[name] = (data, "planted")


@pytest.mark.parametrize("damage", ["garbage", "empty", "another thread's"])
def test_a_damaged_head_object_is_listed_and_its_thread_can_be_deleted(damage: str, tmp_path: Path) -> None:
    kept = filled()
    contents = {"garbage": b"garbage", "empty": b"", "another thread's": kept.kept[head_name(GOOD)][0]}
    with opened(kept) as old:
        assert old.get("bad", 3).state["n"] == 2  # it knows the record from before
        plant(kept, head_name(BAD), contents[damage])
        with opened(kept) as store:
            for question in ({}, {"status": "failed"}, {"labels": {"app": "x"}}):
                found = {info.thread_id: info.damaged is None for info in store.threads(**question)}
                assert found == {"good": True, "bad": False}
            assert store.counts() == store.stats().statuses == {"failed": 1, "damaged": 1}
            assert store.prune(sync.Retention(keep_last=1)).damaged == ("bad",)
            assert "bad" in {problem.thread_id for problem in store.verify().problems}
            with pytest.raises(sync.Corrupt, match=head_name(BAD)):
                store.backup(tmp_path / "backup.db")
            with pytest.raises(sync.Corrupt):
                store.save("bad", 1)
            store.delete("bad")
            assert [info.thread_id for info in store.threads()] == ["good"]
            assert [name for name in kept.kept if name.startswith(root_of(hash_of(BAD)))] == [head_name(BAD)]
        with pytest.raises(sync.Deleted):
            old.save("bad", 1)
        old.revive("bad")
        assert old.save("bad", {"n": 9}).seq == 1
        assert {info.thread_id for info in old.threads()} == {"good", "bad"}
        assert old.verify().ok


def test_one_whose_marker_is_damaged_too_is_listed_by_its_hash_and_can_be_deleted_so() -> None:
    kept = filled()
    plant(kept, head_name(BAD), b"garbage")
    plant(kept, marker_name(BAD), b"garbage")
    with opened(kept) as store:
        name = f"{hash_of(BAD)}.head"
        assert {info.thread_id: info.damaged is None for info in store.threads()} == {"good": True, name: False}
        store.delete(f"{hash_of(GOOD)}.head")
        store.delete(name)
        assert [info.thread_id for info in store.threads()] == ["good"]
        assert [each for each in kept.kept if hash_of(BAD) in each and not each.startswith("marks/")] == []
        assert store.verify().ok


FORGED: list[dict[str, Any]] = [
    {"marks": {"w": "x"}},
    {"marks": {"0" * 64: "../x"}},
    {"era": -5},
    {"version": 10**15},
    {"posts": {"k": "../../x"}},
    {"leftovers": Leftovers(posts=("../../x",))},
    {"leftovers": Leftovers(marks=((head_name(GOOD), f"{0:012}-00"),))},
    {"leftovers": Leftovers(marks=(("0" * 64, "../../x"),))},
    {"segments": (Segment(1, 2, 1, 1, b"../../x"),)},
]


@pytest.mark.parametrize("forged", FORGED)
def test_a_record_that_names_objects_of_others_is_damaged_and_removes_nothing_of_theirs(forged: dict[str, Any]) -> None:
    kept = filled()
    record = decode_record(head_name(BAD), kept.kept[head_name(BAD)][0])
    plant(kept, head_name(BAD), encode_record(replace(record, **forged)))
    with opened(kept) as store:
        with pytest.raises(sync.Corrupt):
            store.save("bad", 1)
        assert not store.verify().ok
        store.delete("bad")
        assert store.get("good", 3).state["n"] == 2
        assert store.verify().ok


@pytest.mark.parametrize("is_damaged", [False, True])
def test_verify_names_a_thread_whose_marker_is_lost(is_damaged: bool) -> None:
    kept = filled()
    del kept.kept[marker_name(BAD)]
    if is_damaged:
        plant(kept, head_name(BAD), b"garbage")
    with opened(kept) as store:
        [problem] = store.verify().problems
        assert hash_of(BAD) in str(problem)
