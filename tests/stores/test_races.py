"""The races of the engine, each made to happen at its worst moment: old writers are refused, readers not fooled."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.random_walk import TIGHT
from holdfast import sync
from holdfast.records.errors import Conflict, Deleted, LeaseHeld, NotFound
from holdfast.records.head import decode_head, encode_head
from holdfast.records.rows import Swap
from holdfast.stores import decisions
from holdfast.testing.clock import Clock
from holdfast.testing.handles import blocking_store
from kinds import new_place
from stores.hooked import Hooked

KEY = b"\0t"
LEASE = 30_000_000


class Sides(NamedTuple):
    """Two handles on one place, as of two processes; something can happen between the calls of the first."""

    store: sync.Store
    hooked: Hooked
    other: sync.Store
    clock: Clock


@pytest.fixture
def sides(kind: str, tmp_path: Path) -> Iterator[Sides]:
    place, clock = new_place(kind, tmp_path), Clock()
    hooked, beneath = Hooked(place.open()), place.open()
    hooked.tuning = TIGHT
    store, other = blocking_store(hooked, ports=clock.ports()), blocking_store(beneath, ports=clock.ports())
    yield Sides(store, hooked, other, clock)
    store.close()
    other.close()


def state_at(number: int) -> dict[str, Any]:
    return {"n": number, "list": [f"{index} " * 20 for index in range(number)], "large": str(number // 4) * 400}


def grow(store: sync.Store, count: int) -> None:
    for number in range(1, count + 1):
        store.save("t", state_at(number))


def is_sound(sides: Sides) -> None:
    report = sides.other.verify()
    assert report.ok, report.problems


def test_an_old_writer_after_a_prune_is_brought_up_to_date(sides: Sides) -> None:
    grow(sides.store, 15)
    sides.hooked.before("swap", lambda: sides.other.prune(sync.Retention(keep_last=1)))
    saved = sides.store.save("t", state_at(16))
    assert sides.hooked.has_happened
    assert [info.seq for info in sides.other.history("t")] == [16, 15]
    assert sides.other.load(saved.id).state == state_at(16)
    for number in range(17, 25):
        sides.store.save("t", state_at(number))
        assert sides.other.get("t", number).state == state_at(number)
    is_sound(sides)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_old_writer_after_delete_and_recreation_does_not_reach_the_new_life(sides: Sides, count: int) -> None:
    """Even where the new life has come to the very same seq."""
    grow(sides.store, count)

    def recreate() -> None:
        sides.other.delete("t")
        sides.other.revive("t")
        for number in range(1, count + 1):
            sides.other.save("t", {"new life": number})

    sides.hooked.before("swap", recreate)
    saved = sides.store.save("t", {"from": "the old writer"})
    assert saved.seq == count + 1
    assert saved.parent_id == sides.other.get("t", count).id
    assert [sides.other.get("t", seq).state for seq in range(1, count + 1)] == [
        {"new life": number} for number in range(1, count + 1)
    ]
    is_sound(sides)


def test_an_old_writer_with_an_expectation_is_refused_after_recreation(sides: Sides) -> None:
    grow(sides.store, 2)

    def recreate() -> None:
        sides.other.delete("t")
        sides.other.revive("t")
        sides.other.save("t", "a")

    sides.hooked.before("swap", recreate)
    with pytest.raises(Conflict):
        sides.store.save("t", state_at(3), expect_seq=2)
    assert len(sides.other.history("t")) == 1


def test_an_old_writer_after_a_delete_is_refused(sides: Sides) -> None:
    grow(sides.store, 3)
    sides.hooked.before("swap", lambda: sides.other.delete("t"))
    with pytest.raises(Deleted):
        sides.store.save("t", state_at(4))
    assert sides.other.latest("t") is None


def test_an_append_after_a_delete_and_recreation_appends_to_the_new_life(sides: Sides) -> None:
    sides.store.append("t", "list", "old")

    def recreate() -> None:
        sides.other.delete("t")
        sides.other.revive("t")
        sides.other.append("t", "list", "new")

    sides.hooked.before("swap", recreate)
    assert sides.store.append("t", "list", "more").state == {"list": ["new", "more"]}


@pytest.mark.parametrize("call", ["heads", "rows", "blobs"])
def test_a_writer_that_catches_up_is_not_fooled_by_recreation(sides: Sides, call: str) -> None:
    """It was overtaken, and reads what it missed; in that moment the thread is deleted and begun anew."""
    grow(sides.store, 3)
    sides.other.save("t", state_at(30))

    def recreate() -> None:
        sides.other.delete("t")
        sides.other.revive("t")
        for number in range(6):
            sides.other.save("t", {"new life": number})

    sides.hooked.before(call, recreate)
    saved = sides.store.save("t", {"from": "the old writer"})
    if not sides.hooked.has_happened:
        recreate()
        saved = sides.store.save("t", {"from": "the old writer"})
    assert saved.seq == 7
    assert [sides.other.get("t", seq).state for seq in (6, 7)] == [{"new life": 5}, {"from": "the old writer"}]
    is_sound(sides)


@pytest.mark.parametrize("call", ["heads", "rows", "blobs"])
def test_a_writer_that_catches_up_is_not_fooled_by_a_prune(sides: Sides, call: str) -> None:
    grow(sides.store, 3)
    for number in range(30, 34):
        sides.other.save("t", state_at(number))
    sides.hooked.before(call, lambda: sides.other.prune(sync.Retention(keep_last=1)))
    saved = sides.store.save("t", state_at(34))
    assert sides.other.load(saved.id).state == state_at(34)
    is_sound(sides)


def test_a_save_that_loses_the_race_is_made_again_on_top(sides: Sides) -> None:
    grow(sides.store, 2)
    sides.hooked.before("swap", lambda: sides.other.save("t", {"by": "the other"}))
    assert sides.store.save("t", state_at(3)).seq == 4
    assert sides.other.get("t", 3).state == {"by": "the other"}
    assert sides.other.get("t", 4).state == state_at(3)


def claim(sides: Sides, owner: str = "run") -> None:
    """Take a lease on the thread, as a run does."""
    backend = sides.hooked.inner
    encoded = backend.heads([KEY])[0]
    head = decode_head(KEY, encoded) if encoded else None
    claimed = decisions.claimed(head, "t", owner, LEASE, sides.clock.now)
    assert backend.swap([Swap(KEY, encoded or b"", encode_head(KEY, claimed), claimed)]) == [True]


@pytest.mark.parametrize("write", [lambda store: store.save("t", 5), lambda store: store.append("t", "list", 5)])
def test_a_one_shot_write_does_not_pass_a_lease(sides: Sides, write: Callable[[sync.Store], Any]) -> None:
    grow(sides.store, 2)
    claim(sides)
    for store in (sides.store, sides.other):
        with pytest.raises(LeaseHeld) as caught:
            write(store)
        assert caught.value.owner == "run"
        assert 29 < caught.value.remaining <= 30
    sides.clock.advance(31)
    assert write(sides.store).seq == 3
    assert sides.other.thread("t").lease is None


def test_a_lease_taken_in_the_last_moment_holds(sides: Sides) -> None:
    grow(sides.store, 2)
    sides.hooked.before("swap", lambda: claim(sides))
    with pytest.raises(LeaseHeld):
        sides.store.save("t", state_at(3))
    assert len(sides.other.history("t")) == 2
    assert sides.other.thread("t").owner == "run"


def test_a_one_shot_write_over_a_dead_lease_raises_the_token(sides: Sides) -> None:
    grow(sides.store, 1)
    claim(sides)
    lease = sides.other.thread("t").lease
    assert lease
    sides.clock.advance(60)
    sides.store.save("t", state_at(2))
    encoded = sides.hooked.inner.heads([KEY])[0]
    assert encoded
    assert decode_head(KEY, encoded).token == lease.token + 1


READS: dict[str, Callable[[sync.Store], Any]] = {
    "latest": lambda store: store.latest("t").state,  # type: ignore[union-attr]
    "get newest": lambda store: store.get("t", 15).state,
    "history": lambda store: [info.seq for info in store.history("t")],
    "thread": lambda store: store.thread("t").seq,
    "fork": lambda store: store.fork(store.history("t").items[0].id),
    "verify": lambda store: store.verify().problems,
}


@pytest.mark.parametrize("call", ["rows", "blobs", "index", "heads"])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_reader_is_not_fooled_by_a_prune(sides: Sides, read: str, call: str, nth: int) -> None:
    """It sees the store as it was before, or after; what is pruned is not damage."""
    grow(sides.store, 15)
    reader = blocking_store(sides.hooked, closes=False)
    sides.hooked.before(call, lambda: sides.other.prune(sync.Retention(keep_last=1)), nth)
    answer = READS[read](reader)
    if read in {"latest", "get newest"}:
        assert answer == state_at(15)
    elif read == "history":
        assert answer in ([15], list(range(15, 0, -1)))
    elif read == "verify":
        assert answer == []
    is_sound(sides)


@pytest.mark.parametrize("call", ["rows", "blobs", "heads"])
def test_a_reader_of_what_a_prune_takes_finds_it_or_not(sides: Sides, call: str) -> None:
    grow(sides.store, 15)
    reader = blocking_store(sides.hooked, closes=False)
    sides.hooked.before(call, lambda: sides.other.prune(sync.Retention(keep_last=1)))
    try:
        assert reader.get("t", 3).state == state_at(3)
    except NotFound:
        assert [info.seq for info in sides.other.history("t")] == [15]


@pytest.mark.parametrize("call", ["rows", "blobs", "index", "heads"])
def test_a_reader_of_a_thread_that_is_deleted_and_begun_anew(sides: Sides, call: str) -> None:
    grow(sides.store, 9)
    reader = blocking_store(sides.hooked, closes=False)

    def recreate() -> None:
        sides.other.delete("t")
        sides.other.revive("t")
        for number in range(9):
            sides.other.save("t", {"new": number})

    sides.hooked.before(call, recreate)
    latest = reader.latest("t")
    assert latest is not None
    assert latest.state in (state_at(9), {"new": 8})


@pytest.mark.parametrize("call", ["swap", "index", "threads"])
def test_a_prune_during_saves_keeps_what_was_saved(sides: Sides, call: str) -> None:
    grow(sides.store, 12)
    sides.hooked.before(call, lambda: sides.other.save("t", {"late": True}))
    sides.store.prune(sync.Retention(keep_last=2))
    assert [info.seq for info in sides.other.history("t")] in ([13, 12], [13, 12, 11])
    assert sides.other.get("t", 13).state == {"late": True}
    is_sound(sides)


def test_a_prune_reads_no_rows_of_a_thread_that_keeps_all(sides: Sides) -> None:
    grow(sides.store, 12)
    sides.hooked.before("index", lambda: pytest.fail("rows were read"))
    assert sides.store.prune(sync.Retention(keep_last=12)) == sync.Freed()
    with pytest.raises(pytest.fail.Exception, match="rows were read"):
        sides.store.prune(sync.Retention(keep_last=11))


@pytest.mark.parametrize("nth", [1, 2])
def test_an_erase_during_saves_erases_the_past(sides: Sides, nth: int) -> None:
    grow(sides.store, 6)
    sides.hooked.before("swap", lambda: sides.other.save("t", {"late": True}), nth)
    sides.store.erase("t")
    (info,) = sides.other.history("t").items
    assert sides.other.load(info.id).state == {"late": True}
    is_sound(sides)


def test_a_deleted_checkpoint_is_not_the_newest_of_a_late_save(sides: Sides) -> None:
    grow(sides.store, 3)
    newest = sides.store.get("t", 3).id
    sides.hooked.before("swap", lambda: sides.other.save("t", {"late": True}))
    try:
        sides.store.delete_checkpoint(newest)
    except Conflict:
        sides.store.delete_checkpoint(newest)
    latest = sides.other.latest("t")
    assert latest is not None
    assert latest.state == {"late": True}
    assert 3 not in [info.seq for info in sides.other.history("t")]
    is_sound(sides)


def test_of_two_forks_onto_one_id_one_is_refused(sides: Sides) -> None:
    checkpoint = sides.store.save("t", 1)
    sides.hooked.before("swap", lambda: sides.other.fork(checkpoint.id, "f"))
    with pytest.raises(Conflict):
        sides.store.fork(checkpoint.id, "f")
    assert len(sides.other.history("f")) == 1


def test_an_item_that_another_process_appends_meanwhile_under_the_same_key_is_shown_once(sides: Sides) -> None:
    place = ("a", "b", "c", "list")  # too deep to be a cell: the whole state is written
    sides.store.save("t", {"a": {"b": {"c": {"list": [0]}}}})
    sides.hooked.before("heads", lambda: sides.other.append("t", place, 1, idempotency_key="once"))
    appended = sides.store.append("t", place, 1, idempotency_key="once")
    assert sides.hooked.has_happened
    assert appended.state == {"a": {"b": {"c": {"list": [0, 1]}}}} == sides.other.load(appended.id).state


@pytest.mark.parametrize("call", ["index", "swap"])
def test_a_prune_spares_a_thread_that_lives_again(sides: Sides, call: str) -> None:
    """The listing showed it as complete: that is not true any more when its turn comes."""
    grow(sides.store, 3)
    sides.store.save("t", {}, status="complete")

    def live_again() -> None:
        sides.other.delete("t")
        sides.other.revive("t")
        sides.other.save("t", {"new": True})

    sides.hooked.before(call, live_again)
    sides.store.prune(sync.Retention(delete_on=("complete",)))
    latest = sides.other.latest("t")
    assert latest is not None
    assert latest.state == {"new": True}
