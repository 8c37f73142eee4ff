"""Limits of a store: they hold at save and at load, for the state as a whole, and can be changed where it is opened."""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

import holdfast
from holdfast import Limits, sync
from holdfast.codec import limits as bounds
from holdfast.history.state_cells import STATE, Draft
from holdfast.ports import run_blocking
from holdfast.records.errors import ConfigurationError, LimitExceeded
from holdfast.stores import bundle
from holdfast.stores.writer import Intent
from patience import GIVE_UP_SECONDS
from stores.test_bundles import frames_of, write_frames

SMALL = Limits(memory=20_000)
CHILD = """
import os, resource, sys
from holdfast import sync
from holdfast.records.errors import LimitExceeded

with sync.open(sys.argv[1]) as store:
    store.save("warm", {"up": (1, 2)})
    store.latest("warm").state
    used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 600 * 2**20, used + 600 * 2**20))
    try:
        thread_id = store.import_(sys.argv[2])
        store.latest(thread_id).state
    except LimitExceeded as error:
        print(error)
"""


def test_a_state_beyond_the_limits_is_refused_at_save_and_the_thread_stays_as_it_was(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db", limits=SMALL) as store:
        store.save("t", {"rows": [{"n": n} for n in range(50)]})
        with pytest.raises(LimitExceeded, match=r"memory.* limits=holdfast\.Limits\(memory=\.\.\.\)"):
            store.save("t", {"rows": [{"n": n} for n in range(500)]})
        assert len(store.latest("t").state["rows"]) == 50  # type: ignore[union-attr]


def test_the_parts_of_a_state_are_charged_together(tmp_path: Path) -> None:
    part = [{"n": n} for n in range(40)]
    with sync.open(tmp_path / "a.db", limits=SMALL) as store:
        store.save("t", {"a": part})
        with pytest.raises(LimitExceeded, match="the state would take more memory"):
            store.save("t", {"a": part, "b": part, "c": part})
        with store.run("r") as run:
            run.checkpoint({"a": part})
            with pytest.raises(LimitExceeded):
                run.checkpoint({"a": part, "b": part, "c": part})
            run.checkpoint({"a": part, "b": []})


def test_a_list_grows_until_the_limit_and_can_be_read_at_every_step(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db", limits=SMALL) as store:
        count = 0
        with contextlib.suppress(LimitExceeded):
            while count < 1000:
                store.append("t", "rows", {"n": count})
                count += 1
        assert 40 < count < 100
        assert len(store.latest("t").state["rows"]) == count  # type: ignore[union-attr]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_an_appended_item_is_within_the_limits_of_the_store(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db", limits=Limits(depth=10)) as store:
        store.append("t", "rows", nested(9))
        with pytest.raises(LimitExceeded):
            store.append("t", "rows", nested(30))
        with store.run("t") as run, pytest.raises(LimitExceeded):
            run.append("rows", nested(30))
        assert store.latest("t").state == {"rows": [nested(9)]}  # type: ignore[union-attr]


@pytest.mark.large
def test_an_appended_item_may_be_as_large_as_the_store_allows(tmp_path: Path) -> None:
    item: list[Any] = [[]] * (Limits().memory // 80)
    with sync.open(tmp_path / "a.db", limits=Limits(memory=2**30)) as store:
        store.append("t", "rows", item)
        with store.run("r") as run:
            run.append("rows", item)
        assert store.latest("r").state == {"rows": [item]}  # type: ignore[union-attr]


def test_the_size_of_a_state_is_that_of_its_parts_together(tmp_path: Path) -> None:
    with sync.open(tmp_path / "a.db", limits=Limits(size=10_000)) as store:
        store.save("t", {"a": "a" * 4000, "b": ["b" * 4000]})
        with pytest.raises(LimitExceeded, match=r"the state takes 1[0-9]{4} bytes"):
            store.save("t", {"a": "a" * 4000, "b": "b" * 4000, "c": "c" * 4000})
        for _ in range(3):
            store.append("t", "b", "c" * 500)
        with pytest.raises(LimitExceeded, match=r"the state takes 1[0-9]{4} bytes"):
            store.append("t", "b", "c" * 500)
        assert len(store.latest("t").state["b"]) == 4  # type: ignore[union-attr]


def test_cells_that_share_a_blob_are_charged_for_its_bytes_each(tmp_path: Path) -> None:
    """A bundle of 3 KB could ask for gigabytes."""
    part, blob = 1_000_000, (1).to_bytes(5, "big") + b"\1" * 11
    cells = [[at, 0, 0, b"\xc6" + (60 * part).to_bytes(4, "big"), *[[0, 0, part]] * 60] for at in range(5)]
    body = msgpack.encode([[["state", str(at)] for at in range(5)], cells, [part]])
    with sync.MemoryStore() as store:
        store.save("t", 1)
        store.export("t", tmp_path / "b")
        first, *_ = frames_of(tmp_path / "b")
        row = ["row", 17, 1, 1, 1, [blob], msgpack.encode([1]), body]
        write_frames(tmp_path / "b", [first, ["blob", blob, b"a" * part], row, ["end", 1, 1]])
        assert (tmp_path / "b").stat().st_size < 4000
        with pytest.raises(LimitExceeded, match=r"the state takes 3[0-9]{8} bytes"):
            store.import_(tmp_path / "b", "copy")


def test_an_unchanged_part_of_a_state_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count takes ten times as long as to encode."""
    counted: list[int] = []

    def measure(data: bytes, *_: object) -> int:
        counted.append(len(data))
        return 0

    monkeypatch.setattr(bounds, "measure", measure)
    rows = [float(n) for n in range(500_000)]
    with sync.open("memory:", limits=Limits(memory=96 * 2**20)) as store:
        for number in range(3):
            store.save("t", {"rows": rows, "n": number})
    assert len([size for size in counted if size > 1000]) == 1


def test_higher_limits_read_what_lower_ones_refuse(tmp_path: Path) -> None:
    state = {"rows": [{"n": n} for n in range(500)]}
    with sync.open(tmp_path / "a.db") as store:
        store.save("t", state)
    with sync.open(tmp_path / "a.db", limits=SMALL) as store, pytest.raises(LimitExceeded, match="memory"):
        store.latest("t").state  # type: ignore[union-attr]  # noqa: B018  it is read at the first look
    with sync.open(tmp_path / "a.db", limits=Limits(memory=10**6)) as store:
        assert store.latest("t").state == state  # type: ignore[union-attr]


@pytest.mark.parametrize("limits", [{"memory": 5}, 100, Limits])
def test_limits_of_another_kind_are_refused(limits: Any) -> None:
    for module in (holdfast, sync):
        with pytest.raises(ConfigurationError, match=r"must be a holdfast\.Limits"):
            module.open("memory:", limits=limits)


def hostile_bundle(path: Path) -> None:
    """40 MB of empty lists in cells that are each within the limits, compressed to a bundle of less than 199 KB."""
    cell = b"\xdd" + (650_000).to_bytes(4, "big") + b"\x90" * 650_000
    draft: Draft = {(*STATE, f"k{number}"): cell for number in range(60)}
    with sync.open(path.with_suffix(".db"), limits=Limits(memory=2**40)) as store:
        thread = store._store._reader.key("evil")
        store.save("evil", {})
        run_blocking(store._store._saving.commit(thread, Intent(draft=draft, cause="manual")))
        store.export("evil", path)


@pytest.mark.large
def test_a_small_bundle_cannot_take_much_memory(tmp_path: Path) -> None:
    evil = tmp_path / "evil.bundle"
    hostile_bundle(evil)
    assert evil.stat().st_size < 199_000
    command = [sys.executable, "-c", CHILD, str(tmp_path / "fresh.db"), str(evil)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "would take more memory" in done.stdout


def test_many_small_frames_cannot_expand_without_end(tmp_path: Path) -> None:
    """Each is within the floor that one record may always expand to: 200 KB of them took 2 GB."""
    path, part = tmp_path / "b", b"\0" * 1_000_000
    with sync.MemoryStore() as store:
        store.save("t", 1)
        store.export("t", path)
        first, row, _ = frames_of(path)
        frames = [first, *[["blob", number.to_bytes(16, "big"), part] for number in range(90)], row, ["end", 1, 90]]
        write_frames(path, frames)
        assert frames_of(path) == frames  # what we write ourselves can be read: the last of them are not compressed
        assert path.stat().st_size > 1_000_000
        with pytest.MonkeyPatch.context() as hostile:
            hostile.setattr(bundle, "FREE_BYTES", 2**40)
            write_frames(path, frames)
        assert path.stat().st_size < 20_000
        with pytest.raises(LimitExceeded, match="expand"):
            store.import_(path, "copy")
