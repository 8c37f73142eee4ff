"""Hostile ids: exact or refused, and nothing is ever written outside of the root."""

from pathlib import Path

import pytest

from holdfast import sync
from holdfast.testing.conformance.store_privacy import HOSTILE_IDS
from kinds import open_store, url_of

REFUSED = ["", "x" * 513, "ü" * 257, "lone \udc80", None, 7, b"bytes", ["a"]]


def names_below(directory: Path, *, but: Path) -> set[str]:
    """Every path below a directory, except what is below one of them."""
    return {str(path) for path in directory.rglob("*") if but not in path.parents and path != but}


def test_hostile_ids_stay_within_the_root(disk_kind: str, tmp_path: Path) -> None:
    root = tmp_path / "around" / "root"
    root.mkdir(parents=True)
    before = names_below(tmp_path, but=root)
    with open_store(disk_kind, root) as store:
        for thread_id in HOSTILE_IDS:
            store.save(thread_id, {"id": thread_id}, labels={"id": thread_id}, metadata={"id": thread_id})
            store.append(thread_id, thread_id, thread_id)
    with open_store(disk_kind, root) as store:
        for thread_id in HOSTILE_IDS:
            latest = store.latest(thread_id)
            assert latest is not None
            assert latest.thread_id == thread_id
            assert latest.state["id"] == thread_id
            assert [info.thread_id for info in store.threads(labels={"id": thread_id})] == [thread_id]
    assert names_below(tmp_path, but=root) == before
    if disk_kind == "sqlite":
        assert {path.name.partition("-")[0] for path in root.iterdir()} == {"store.db"}


def test_hostile_ids_do_not_survive_their_deletion(disk_kind: str, tmp_path: Path) -> None:
    with open_store(disk_kind, tmp_path) as store:
        for thread_id in HOSTILE_IDS:
            store.save(thread_id, 1)
        for thread_id in HOSTILE_IDS[::2]:
            store.delete(thread_id)
        assert {info.thread_id for info in store.threads(limit=1000)} == set(HOSTILE_IDS[1::2])


@pytest.mark.parametrize("thread_id", REFUSED, ids=repr)
def test_ids_that_cannot_be_kept_are_refused(disk_kind: str, thread_id: object, tmp_path: Path) -> None:
    with open_store(disk_kind, tmp_path) as store, pytest.raises(sync.InvalidId) as caught:
        store.save(thread_id, 1)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 3000


def test_hostile_namespaces_stay_apart_and_within_the_root(disk_kind: str, tmp_path: Path) -> None:
    root = tmp_path / "around" / "root"
    root.mkdir(parents=True)
    before = names_below(tmp_path, but=root)
    names = ["", "..", "../x", "a/b", "\0", "a", "a\0", "é", "e\u0301", "n" * 128]
    for name in names:
        with sync.open(url_of(disk_kind, root), durability="process", namespace=name) as store:
            store.save("t", {"namespace": name})
    for name in names:
        with sync.open(url_of(disk_kind, root), durability="process", namespace=name) as store:
            latest = store.latest("t")
            assert latest is not None
            assert latest.state == {"namespace": name}
            assert len(store.threads()) == 1
    assert names_below(tmp_path, but=root) == before


def test_an_id_of_512_bytes_is_the_longest(disk_kind: str, tmp_path: Path) -> None:
    with open_store(disk_kind, tmp_path) as store:
        longest, longer = "ü" * 256, "ü" * 256 + "x"
        saved = store.save(longest, 1)
        assert store.load(saved.id).state == 1
        fork = store.fork(saved.id)
        assert store.latest(fork) is not None
        with pytest.raises(sync.InvalidId, match="513"):
            store.save(longer, 1)
