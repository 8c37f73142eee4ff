"""Encryption at rest: nothing readable in the raw files, no data without the key, and no plain text beside it."""

from pathlib import Path

import pytest

from holdfast import sync
from holdfast.testing.exact import assert_exact
from kinds import url_of

CANARY = "canary-3141592"
STATE = {
    "text": f"before {CANARY} after",
    CANARY: "in a key",
    "list": [{"content": CANARY, "n": number} for number in range(40)],
    "bytes": CANARY.encode(),
    "tuple": (CANARY, {CANARY}),
    "large": f"{CANARY} " * 2000,
    "nested": {"deep": {CANARY: [CANARY]}},
}
KEYS = sync.KeyRing({"2026-11": b"k" * 32}, "2026-11")


def open_with(kind: str, directory: Path, keys: sync.KeyRing | bytes | None, *, compress: bool = True) -> sync.Store:
    return sync.open(url_of(kind, directory), durability="process", keys=keys, compress=compress)


def write_everything(store: sync.Store) -> None:
    """Plant the canary wherever a user can put anything, but for ids."""
    saved = store.save(
        "t", STATE, metadata={"m": CANARY, CANARY: 1}, labels={"user": CANARY, CANARY: "x"}, idempotency_key=CANARY
    )
    for number in range(30):
        store.append("t", "list", f"{CANARY} {number}")
    store.save(
        "t", {**STATE, "more": CANARY}, status="failed", phase="error", cause="error", metadata={"error": CANARY}
    )
    store.fork(saved.id, "f")
    store.delete_checkpoint(store.get("t", 3).id)
    store.prune(sync.Retention(keep_last=10))
    store.erase("f")


def found_in(directory: Path) -> list[str]:
    """The files that hold the canary."""
    return [path.name for path in directory.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize("compress", [True, False])
def test_a_canary_is_not_found_in_the_raw_files(disk_kind: str, compress: bool, tmp_path: Path) -> None:
    """Neither while the store is open, its write-ahead log included, nor after it was closed."""
    with open_with(disk_kind, tmp_path, KEYS, compress=compress) as store:
        write_everything(store)
        assert found_in(tmp_path) == []
        assert any(path.stat().st_size for path in tmp_path.rglob("*"))
    assert found_in(tmp_path) == []


def test_the_canary_is_found_without_keys(disk_kind: str, tmp_path: Path) -> None:
    """The same search must find it in a plain store: the test can fail."""
    with open_with(disk_kind, tmp_path, None, compress=False) as store:
        write_everything(store)
    assert found_in(tmp_path)


def test_everything_comes_back_with_the_key(disk_kind: str, tmp_path: Path) -> None:
    with open_with(disk_kind, tmp_path, KEYS) as store:
        write_everything(store)
    with open_with(disk_kind, tmp_path, KEYS) as store:
        latest = store.latest("t")
        assert latest is not None
        assert latest.state["more"] == CANARY
        assert store.thread("t").labels == {"user": CANARY, CANARY: "x"}
        assert [info.thread_id for info in store.threads(labels={"user": CANARY})]
        assert [info.seq for info in store.history("t", where={"error": CANARY})] == [latest.seq]
        fork = store.latest("f")
        assert fork is not None
        assert_exact(STATE, fork.state)
        assert store.verify().ok


@pytest.mark.parametrize("keys", [None, b"x" * 32, sync.KeyRing({"2026-11": b"x" * 32}, "2026-11")])
def test_without_the_key_there_is_no_data_and_no_not_found(
    disk_kind: str, keys: sync.KeyRing | bytes | None, tmp_path: Path
) -> None:
    with open_with(disk_kind, tmp_path, KEYS) as store:
        write_everything(store)
    with open_with(disk_kind, tmp_path, keys) as store:
        for call in (
            lambda: store.latest("t"),
            lambda: store.get("t", 30).state,
            lambda: store.history("t"),
            lambda: store.thread("t"),
            lambda: store.save("t", 1),
            lambda: store.append("t", "list", 1),
            lambda: store.export("t", tmp_path / "bundle"),
            lambda: store.erase("t"),
        ):
            with pytest.raises(sync.KeyUnavailable) as caught:
                call()
            assert CANARY not in str(caught.value)
        report = store.verify()
        assert not report.ok
    with open_with(disk_kind, tmp_path, KEYS) as store:
        assert store.verify().ok


def test_one_thread_under_another_key_stops_no_listing(disk_kind: str, tmp_path: Path) -> None:
    with open_with(disk_kind, tmp_path, KEYS) as store:
        store.save("foreign", 1, labels={"app": "x"}, status="working")
        with pytest.raises(sync.Suspended), store.run("foreign asks") as run:
            run.ask("what")
    with open_with(disk_kind, tmp_path, b"o" * 32) as store:
        store.save("ours", 1, labels={"app": "x"}, status="working")
        found = {info.thread_id: (info.sealed_by, info.labels, info.damaged) for info in store.threads()}
        hidden: tuple[str, dict[str, str], None] = ("2026-11", {}, None)
        assert found == {"ours": (None, {"app": "x"}, None), "foreign": hidden, "foreign asks": hidden}
        assert {info.thread_id for info in store.threads(labels={"app": "x"})} == {"ours"}
        assert store.stats().statuses == store.counts() == {"working": 2, "input_required": 1}
        with pytest.warns(sync.HoldfastWarning, match="thread 'foreign.*'2026-11' is missing"):
            assert list(store.requests()) == []
        assert set(store.prune(sync.Retention(keep_last=1)).damaged) == {"foreign", "foreign asks"}
        report = store.recover(lambda run: run.complete("done"))
        assert (report.completed, set(report.damaged), report.failed) == (("ours",), {"foreign", "foreign asks"}, ())
        store.backup(tmp_path / "backup.db")
    with sync.open(tmp_path / "backup.db", keys=KEYS) as copy:
        assert copy.get("foreign", 1).state == 1


def test_a_search_for_labels_with_the_wrong_key_says_that_it_could_not_search(tmp_path: Path) -> None:
    with open_with("sqlite", tmp_path, KEYS) as store:
        store.save("t", 1, labels={"app": "x"})
        assert list(store.threads(labels={"app": "y"})) == []
    for keys in (None, b"o" * 32):
        with (
            open_with("sqlite", tmp_path, keys) as store,
            pytest.warns(sync.HoldfastWarning, match="thread 't'.* could not be searched.*'2026-11' is missing"),
        ):
            assert list(store.threads(labels={"app": "x"})) == []


def test_the_missing_key_is_named(tmp_path: Path) -> None:
    with open_with("sqlite", tmp_path, KEYS) as store:
        store.save("t", 1)
    with (
        open_with("sqlite", tmp_path, sync.KeyRing({"other": b"o" * 32}, "other")) as store,
        pytest.raises(sync.KeyUnavailable, match="2026-11") as caught,
    ):
        store.latest("t")
    assert caught.value.key_id == "2026-11"


def test_rotation_leaves_only_the_new_key(disk_kind: str, tmp_path: Path) -> None:
    with open_with(disk_kind, tmp_path, KEYS) as store:
        write_everything(store)
    both = sync.KeyRing({"2026-11": b"k" * 32, "2027-01": b"n" * 32}, "2027-01")
    with open_with(disk_kind, tmp_path, both) as store:
        before = {info.thread_id: store.latest(info.thread_id) for info in store.threads()}
        assert store.rotate() == len(before)
        assert store.rotate() == 0
    with open_with(disk_kind, tmp_path, sync.KeyRing({"2027-01": b"n" * 32}, "2027-01")) as store:
        for thread_id, checkpoint in before.items():
            latest = store.latest(thread_id)
            assert latest is not None
            assert checkpoint is not None
            assert_exact(checkpoint.state, latest.state)
        assert [info.thread_id for info in store.threads(labels={"user": CANARY})]
        assert store.verify().ok
    assert found_in(tmp_path) == []


def test_a_rotated_store_still_takes_writes_of_a_handle_that_is_open(disk_kind: str, tmp_path: Path) -> None:
    both = sync.KeyRing({"2026-11": b"k" * 32, "2027-01": b"n" * 32}, "2027-01")
    with open_with(disk_kind, tmp_path, both) as rotating:
        with open_with(disk_kind, tmp_path, KEYS) as writing:
            writing.save("t", {"n": 1}, labels={"app": "x"})
            writing.save("t", {"n": 2})
        assert rotating.rotate() == 1
        assert rotating.save("t", {"n": 3}).seq == 3
        assert [rotating.get("t", seq).state["n"] for seq in (1, 2, 3)] == [1, 2, 3]


def test_planted_plain_text_is_refused(tmp_path: Path) -> None:
    """Somebody who can write to the file, and has no key, cannot add a thread, or a row to one."""
    with open_with("sqlite", tmp_path, None) as store:
        store.save("planted", {"evil": True})
    with open_with("sqlite", tmp_path, KEYS) as store:
        store.save("t", {"good": True})
        with pytest.raises(sync.Corrupt, match="plain"):
            store.latest("planted")
        with pytest.raises(sync.HoldfastError):
            store.save("planted", 1)
        latest = store.latest("t")
        assert latest is not None
        assert latest.state == {"good": True}


def test_bundles_are_plain_unless_keys_are_given(disk_kind: str, tmp_path: Path) -> None:
    with open_with(disk_kind, tmp_path, KEYS, compress=False) as store:
        write_everything(store)
        store.export("t", tmp_path / "sealed", keys=b"b" * 32)
        assert found_in(tmp_path) == []
        store.export("t", tmp_path / "plain")
    with sync.MemoryStore(keys=b"z" * 32) as other:
        other.import_(tmp_path / "plain")
        other.import_(tmp_path / "sealed", "second", keys=b"b" * 32)
        assert other.get("t", 32).state["more"] == CANARY
        assert other.get("second", 32).state["more"] == CANARY


def test_a_backup_of_an_encrypted_store_is_encrypted(disk_kind: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with open_with(disk_kind, tmp_path / "a", KEYS) as store:
        write_everything(store)
        store.backup(tmp_path / "b" / "backup.db")
    assert found_in(tmp_path) == []
    with sync.open(tmp_path / "b" / "backup.db", keys=KEYS) as copy:
        latest = copy.latest("t")
        assert latest is not None
        assert latest.state["more"] == CANARY
