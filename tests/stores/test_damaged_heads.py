"""A thread whose head cannot be read, in every kind of store: it is reported, harms no other, and can be deleted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import sync
from holdfast.records.head import Head, Marks, decode_head, encode_head
from holdfast.records.rows import Swap
from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects import ObjectBackend
from holdfast.testing.handles import blocking_store
from kinds import ON_SERVERS, open_store, shared_kinds
from object_map import ObjectMap

pytestmark = pytest.mark.filterwarnings("ignore:not all requests are listed:holdfast.HoldfastWarning")

BAD, GOOD = "bad", "good"
KEY = b"\0bad"
KINDS = shared_kinds("memory", "objects", "sqlite", "file", *ON_SERVERS)
WRONG: tuple[Any, ...] = (None, True, -1, 2**63, 2**64 - 1, 1.5, "x", "", b"x", [], {}, [5], [b"x"], [None])
FIELDS = [name for name in Head.__struct_fields__ if name not in {"data_key", "mac"}]
"""Not the key: a thread that is encrypted with a key that is not there is refused by whoever lists it."""


def opened(kind: str, directory: Path) -> sync.Store:
    if kind == "memory":
        return sync.MemoryStore()
    if kind == "objects":
        return blocking_store(ObjectBackend(ObjectMap()))
    return open_store(kind, directory)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    with opened(request.param, tmp_path) as store:
        yield store


def backend_of(store: sync.Store) -> Backend:
    return store._store._backend


def plant(store: sync.Store, change: Callable[[Head], Head] | bytes) -> None:
    """Replace the head of the bad thread, with all digests recomputed, or with other bytes; its index stays right."""
    backend = backend_of(store)
    stored = backend.heads([KEY])[0]
    assert stored is not None
    head = decode_head(KEY, stored)
    planted = change if isinstance(change, bytes) else encode_head(KEY, change(head))
    assert backend.swap([Swap(KEY, stored, planted, head)]) == [True]


def filled(store: sync.Store) -> None:
    for thread_id in (GOOD, BAD):
        for number in range(3):
            store.save(thread_id, {"n": number, "text": "x" * 5000}, labels={"app": "demo"})


def test_listings_report_a_damaged_head_and_go_on_with_the_others(store: sync.Store) -> None:
    filled(store)
    plant(store, lambda head: replace(head, status="x"))
    found = {info.thread_id: info for info in store.threads()}
    assert found[GOOD].status == "idle"
    assert found[GOOD].damaged is None
    assert found[BAD].status is None
    assert "status is 'x'" in str(found[BAD].damaged)
    assert {info.thread_id for info in store.threads(status="idle")} == {GOOD, BAD}
    assert {info.thread_id for info in store.threads(labels={"app": "demo"})} == {GOOD, BAD}
    assert store.stats().statuses == {"idle": 1, "damaged": 1}
    assert store.stats().threads == 2
    assert sum(store.counts().values()) == 2
    assert store.counts()["idle"] >= 1
    assert list(store.requests(status=None)) == []


def test_verify_names_the_damaged_head(store: sync.Store) -> None:
    filled(store)
    plant(store, lambda head: replace(head, seq=None))
    assert {problem.thread_id for problem in store.verify().problems} - {""} == {BAD}


def test_what_reads_the_thread_itself_raises_corrupt(store: sync.Store) -> None:
    filled(store)
    plant(store, lambda head: replace(head, seq=None))
    for read in (store.thread, store.latest, store.outcome, store.history, lambda name: store.save(name, 1)):
        with pytest.raises(sync.Corrupt, match="head of 'bad'"):
            read(BAD)
    with pytest.raises(sync.Corrupt), store.run(BAD):
        pass


@pytest.mark.parametrize("damage", [b"?", b"\x00" * 40], ids=["short", "zeros"])
def test_a_thread_with_a_damaged_head_can_be_deleted_revived_and_used_again(store: sync.Store, damage: bytes) -> None:
    filled(store)
    with store.run("late", lease=30) as run:
        run.checkpoint({"n": 1})
    plant(store, damage)
    store.delete(BAD)
    with pytest.raises(sync.Deleted):
        store.save(BAD, 1)
    assert [info.thread_id for info in store.threads() if info.thread_id in {GOOD, BAD}] == [GOOD]
    assert store.latest(BAD) is None
    store.delete(BAD)
    store.revive(BAD)
    assert store.save(BAD, {"n": 9}, labels={"app": "again"}).seq == 1
    assert [info.thread_id for info in store.threads(labels={"app": "again"})] == [BAD]
    assert {info.thread_id for info in store.threads()} == {GOOD, BAD, "late"}
    assert store.counts() == {"idle": 3}
    assert store.verify().ok


def test_a_writer_from_before_the_damage_is_refused_after_a_delete_and_a_revival(store: sync.Store) -> None:
    filled(store)

    def outlived() -> None:
        with store.run(BAD) as run:
            run.checkpoint({"n": 1})
            plant(store, b"?")
            store.delete(BAD)
            store.revive(BAD)
            with store.run(BAD, wait=0) as other:
                other.checkpoint({"n": 2})
            run.checkpoint({"n": 3})

    with pytest.raises(sync.Fenced):
        outlived()
    latest = store.latest(BAD)
    assert latest is not None
    assert latest.state == {"n": 2}


def test_prune_leaves_a_damaged_thread_alone_and_names_it(store: sync.Store) -> None:
    filled(store)
    plant(store, lambda head: replace(head, created_at=2**63))
    freed = store.prune(sync.Retention(keep_last=1))
    assert freed.damaged == (BAD,)
    assert [info.seq for info in store.history(GOOD)] == [3]


def test_recover_names_a_damaged_thread_and_resumes_the_others(store: sync.Store) -> None:
    for thread_id in (GOOD, BAD):
        store.save(thread_id, {}, status="working")
    plant(store, lambda head: replace(head, labels=None))
    report = store.recover(lambda run: run.complete("done"))
    assert report.completed == (GOOD,)
    assert report.damaged == (BAD,)


def test_a_copy_leaves_out_a_damaged_thread_and_a_backup_says_which_it_is(store: sync.Store, tmp_path: Path) -> None:
    filled(store)
    plant(store, lambda head: replace(head, seq=None))
    with sync.MemoryStore() as target:
        copied = store.copy_to(target)
        assert (copied.threads, copied.damaged) == (1, (BAD,))
    with pytest.raises(sync.Corrupt, match="'bad'"):
        store.backup(tmp_path / "backup.db")
    store.delete(BAD)
    store.backup(tmp_path / "second.db")


def test_keys_are_rotated_in_all_other_threads_before_a_damaged_one_is_named() -> None:
    keys = sync.KeyRing({"old": b"o" * 32}, write="old")
    both = sync.KeyRing({"old": b"o" * 32, "new": b"n" * 32}, write="new")
    memory = MemoryBackend()
    with blocking_store(memory, keys=keys, closes=False) as store:
        filled(store)
        store.save("last", 1)
        plant(store, b"?")
    with blocking_store(memory, keys=both, closes=False) as store:
        with pytest.raises(sync.Corrupt, match="'bad'"):
            store.rotate()
        store.delete(BAD)
        assert store.rotate() == 0


@pytest.mark.servers
def test_postgres_does_not_begin_a_thread_again_whose_head_was_emptied() -> None:
    from servers.postgres import new_schema, shared_server
    from stores.postgres.scenes import store_in

    schema = new_schema()
    with store_in(schema) as store:
        filled(store)
        shared_server().execute(f"UPDATE {schema}.threads SET head = '' WHERE thread = '\\x00626164'")
    with store_in(schema) as store:
        with pytest.raises(sync.Corrupt):
            store.save(BAD, 1)
        with pytest.raises(sync.Corrupt):
            store.latest(BAD)
        assert {info.thread_id: info.damaged is None for info in store.threads()} == {GOOD: True, BAD: False}
        store.delete(BAD)
        assert [info.thread_id for info in store.threads()] == [GOOD]
        assert store.verify().ok


def wrong_heads() -> Iterator[tuple[str, Any]]:
    for field in FIELDS:
        for value in WRONG:
            yield field, value
    for value in WRONG:
        yield "marks", Marks(value)
        yield "marks", Marks(0, (value,))
    yield "marks", Marks(0, (), (4,))
    yield "base", 4
    yield "checkpoint", 4


def is_sound(head: Head) -> bool:
    try:
        return decode_head(KEY, encode_head(KEY, head)) is not None
    except (sync.Corrupt, sync.IncompatibleCheckpoint):
        return False


def test_no_value_of_any_field_makes_a_listing_fail() -> None:
    """Also those that a head may have: sizes, tokens, labels."""
    reported = 0
    with sync.MemoryStore() as store:
        filled(store)
        sound = backend_of(store).heads([KEY])[0] or b""
        for field, value in wrong_heads():
            plant(store, lambda head, field=field, value=value: replace(head, **{field: value}))  # type: ignore[misc]
            forged = backend_of(store).heads([KEY])[0] or b""
            infos = {info.thread_id: info for info in store.threads(limit=9)}
            assert infos[GOOD].status == "idle"
            reported += BAD in infos and infos[BAD].damaged is not None
            assert store.stats().threads == len(infos)
            store.prune(sync.Retention(keep_last=5, max_age=10**9))
            store.recover(lambda run: run.complete(1))
            assert not [each for each in store.verify().problems if each.thread_id not in {"", BAD}]
            present = backend_of(store).heads([KEY])[0] or b""
            backend_of(store).swap([Swap(KEY, present, sound, decode_head(KEY, sound))])
            assert forged != sound or value in {"", True}
    assert reported > 150
