"""Order is by seq, never by a clock: one that stands still, jumps or goes back changes nothing."""

from pathlib import Path
from random import Random

import pytest

from holdfast import sync
from holdfast.stores.listing import Listings
from holdfast.testing.clock import Clock
from holdfast.testing.handles import blocking_store
from kinds import new_place

TICKS = [1_000, 1_000, 999, 5, 10**15, 1, 0, 2, 10**12]


def save_by(clock: Clock, store: sync.Store) -> None:
    """One save at each tick of a clock that goes as it likes."""
    for number, now in enumerate(TICKS, 1):
        clock.now = now
        store.save("t", {"n": number})


def is_in_order(store: sync.Store) -> None:
    assert [info.seq for info in store.history("t")] == list(range(len(TICKS), 0, -1))
    assert [store.load(info.id).state["n"] for info in store.history("t")] == list(range(len(TICKS), 0, -1))
    latest = store.latest("t")
    assert latest is not None
    assert latest.state == {"n": len(TICKS)}
    page = store.history("t", limit=2).next_page()
    assert page is not None
    assert [info.seq for info in page] == [len(TICKS) - 2, len(TICKS) - 3]


def test_a_clock_that_goes_back_changes_no_order(kind: str, tmp_path: Path) -> None:
    place, clock = new_place(kind, tmp_path), Clock()
    store = blocking_store(place.open(), ports=clock.ports())
    save_by(clock, store)
    is_in_order(store)
    assert [store.get("t", seq).created_at.timestamp() * 1e6 for seq in (4, 5)] == [5, 10**15]
    store.prune(sync.Retention(keep_last=3))
    assert [info.seq for info in store.history("t")] == [9, 8, 7]
    assert store.verify().ok
    store.close()


def test_two_processes_with_clocks_far_apart_keep_one_order(kind: str, tmp_path: Path) -> None:
    place, random = new_place(kind, tmp_path), Random(1)
    clocks = [Clock(10**15), Clock(5)]
    stores = [blocking_store(place.open(), ports=clock.ports(), closes=False) for clock in clocks]
    for number in range(1, 30):
        side = random.randrange(2)
        assert stores[side].save("t", number).seq == number
    assert [stores[0].get("t", seq).state for seq in range(1, 30)] == list(range(1, 30))


def test_a_clock_before_1970_is_a_clock(tmp_path: Path) -> None:
    store = blocking_store(new_place("memory", tmp_path).open(), ports=Clock(-(10**15)).ports())
    assert store.save("t", 1).created_at.year < 1970
    assert store.get("t", 1).created_at.year < 1970


def test_a_listing_by_the_clock_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test must fail where somebody orders by time."""
    sound = Listings.history

    def by_time(self: Listings, *args: object, **kwargs: object) -> object:
        infos, following = sound(self, *args, **kwargs)  # type: ignore[arg-type]
        return sorted(infos, key=lambda info: info.created_at, reverse=True), following

    monkeypatch.setattr(Listings, "history", by_time)
    clock = Clock()
    store = blocking_store(new_place("memory", tmp_path).open(), ports=clock.ports())
    save_by(clock, store)
    with pytest.raises(AssertionError):
        is_in_order(store)
