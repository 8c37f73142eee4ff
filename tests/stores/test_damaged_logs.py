"""A damaged log in a file store, or something else in its place: it is listed as damaged, and `delete` removes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.stores.file import FileBackend
from holdfast.testing.handles import blocking_store
from stores.file_scenes import log_of
from stores.hooked import Hooked
from stores.test_private_files import KINDS, assert_untouched, plant

pytestmark = pytest.mark.filterwarnings("ignore:not all requests are listed:holdfast.HoldfastWarning")

BAD, GOOD = "bad", "good"
KEY = b"\0bad"
NAMED = ["first frame", "last frame", "zeros before"]
"""Damage that leaves the thread's key readable."""
DAMAGES = [*KINDS, *NAMED, "key"]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "victim").write_bytes(b"precious")
    return place / "victim"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with sync.open(f"file:{tmp_path / 'store'}") as store:
        for thread_id in (GOOD, BAD):
            for number in range(3):
                store.save(thread_id, {"n": number}, labels={"app": "demo"})
    return tmp_path / "store"


@pytest.fixture(params=DAMAGES)
def store(request: pytest.FixtureRequest, root: Path, victim: Path) -> Iterator[sync.Store]:
    damage(log_of(root, KEY), request.param, victim)
    with sync.open(f"file:{root}") as store:
        yield store
    assert_untouched(victim)


def damage(log: Path, kind: str, victim: Path) -> None:
    if kind in KINDS:
        plant(log, kind, victim)
        return
    data = bytearray(log.read_bytes())
    data[{"first frame": 8, "key": data.index(KEY)}.get(kind, -1)] ^= 1
    log.write_bytes(bytes(600 if kind == "zeros before" else 0) + data)


def shown_name(request: pytest.FixtureRequest, root: Path) -> str:
    kind = request.node.callspec.params["store"]
    return BAD if kind in NAMED else log_of(root, KEY).name


def test_a_damaged_log_is_listed_as_such_and_stops_no_listing(
    store: sync.Store, root: Path, request: pytest.FixtureRequest
) -> None:
    name = shown_name(request, root)
    found = {info.thread_id: info.damaged for info in store.threads()}
    assert found.pop(GOOD) is None
    assert [*found] == [name]
    assert found[name]
    assert {info.thread_id for info in store.threads(labels={"app": "demo"}, status="idle")} == {GOOD, name}
    assert store.counts() == {"idle": 1, "damaged": 1}
    assert store.stats().statuses == {"idle": 1, "damaged": 1}
    assert list(store.requests(status=None)) == []


def test_prune_names_it_and_a_backup_is_refused_with_the_place_named(
    store: sync.Store, root: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = shown_name(request, root)
    assert store.prune(sync.Retention(keep_last=1)).damaged == (name,)
    assert [info.seq for info in store.history(GOOD)] == [3]
    with pytest.raises(sync.Corrupt, match=f"(?s){name}.*{log_of(root, KEY).name}|/{name} "):
        store.backup(tmp_path / "backup.db")
    assert name in {problem.thread_id for problem in store.verify().problems}
    with sync.MemoryStore() as target:
        copied = store.copy_to(target)
        assert (copied.threads, copied.damaged) == (1, (name,))
    with pytest.raises(sync.Corrupt):
        store.save(BAD, 1)


def test_delete_puts_a_tombstone_in_its_place_and_follows_nothing(store: sync.Store) -> None:
    store.delete(BAD)
    assert [info.thread_id for info in store.threads()] == [GOOD]
    with pytest.raises(sync.Deleted):
        store.save(BAD, 1)
    store.revive(BAD)
    assert store.save(BAD, {"n": 9}).seq == 1
    assert store.verify().ok


def test_delete_of_the_name_that_a_listing_shows_removes_it(
    store: sync.Store, root: Path, request: pytest.FixtureRequest
) -> None:
    store.delete(shown_name(request, root))
    assert [info.thread_id for info in store.threads()] == [GOOD]
    assert store.verify().ok


def test_delete_of_a_files_name_leaves_a_sound_thread_alone(root: Path) -> None:
    with sync.open(f"file:{root}") as store:
        store.delete(log_of(root, KEY).name)
        assert len(store.history(BAD)) == 3


def test_every_namespace_lists_a_log_that_does_not_say_whose_it_is(root: Path, victim: Path) -> None:
    plant(log_of(root, KEY), "named pipe", victim)
    with sync.open(f"file:{root}", namespace="other") as store:
        assert [info.thread_id for info in store.threads()] == [log_of(root, KEY).name]
        store.delete(log_of(root, KEY).name)
        assert list(store.threads()) == []


def test_a_directory_that_is_not_empty_is_left_and_named(root: Path, victim: Path) -> None:
    plant(log_of(root, KEY), "directory", victim)
    (log_of(root, KEY) / "file").touch()
    with sync.open(f"file:{root}") as store, pytest.raises(sync.StoreUnavailable, match=log_of(root, KEY).name):
        store.delete(BAD)


def test_a_damaged_log_that_two_processes_delete_at_once_is_no_error_for_either(root: Path, victim: Path) -> None:
    damage(log_of(root, KEY), "first frame", victim)
    hooked = Hooked(FileBackend(str(root)))
    with sync.open(f"file:{root}") as other, blocking_store(hooked) as store:
        hooked.before("swap", lambda: other.delete(BAD))
        store.delete(BAD)
        assert hooked.has_happened
        assert [info.thread_id for info in store.threads()] == [GOOD]
