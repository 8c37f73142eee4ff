"""Faults at every call of the backend: whatever was acknowledged is there, and nothing is half done."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from harness.random_walk import TIGHT
from holdfast import sync
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.records.head import Head
from holdfast.records.retention import Retention
from holdfast.records.rows import Swap
from holdfast.stores.backend import Backend, Busy
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.conformance.samples import Line, head, rows
from holdfast.testing.exact import assert_exact
from holdfast.testing.faults import Crash, Fault, FaultyBackend, crash_points
from holdfast.testing.handles import blocking_store

pytestmark = pytest.mark.faults


def new_memory() -> MemoryBackend:
    backend = MemoryBackend()
    backend.tuning = TIGHT
    return backend


def store_on(backend: Backend) -> sync.Store:
    return blocking_store(backend, closes=False)


def test_a_backend_fails_at_the_call_it_was_told_to() -> None:
    backend = FaultyBackend(MemoryBackend(), Fault(2))
    backend.heads([b"\0t"])
    with pytest.raises(StoreUnavailable):
        backend.heads([b"\0t"])
    assert backend.heads([b"\0t"]) == [None]
    assert backend.calls == ["heads"] * 3


@pytest.mark.parametrize(
    ("how", "error", "is_done"),
    [
        ("unavailable", StoreUnavailable, False),
        ("lost reply", OutcomeUnknown, True),
        ("crash before", Crash, False),
        ("crash after", Crash, True),
    ],
)
def test_each_way_to_fail_does_or_does_not_do_it(how: Any, error: type[BaseException], is_done: bool) -> None:
    backend = FaultyBackend(MemoryBackend(), Fault(1, how, frozenset({"swap"})))
    line = Line(backend)
    assert line.encoded is None
    with pytest.raises(error):
        line.put(head(), rows(1))
    assert (line.encoded is not None) is is_done


class BusyOnce(MemoryBackend):
    """Has to wait for another writer, once."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        if not wait:
            raise Busy
        return super().swap(swaps, wait=wait)


def test_a_call_that_found_the_store_busy_is_not_the_one_that_fails() -> None:
    backend = FaultyBackend(BusyOnce(), Fault(1, "lost reply"))
    swap = Swap(b"\0a", b"", b"1", Head(status="idle"))
    with pytest.raises(Busy):
        backend.swap([swap], wait=False)
    with pytest.raises(OutcomeUnknown):
        backend.swap([swap])
    assert backend.fired


def test_a_read_without_a_reply_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        FaultyBackend(MemoryBackend(), Fault(1, "lost reply")).heads([b"\0t"])


def test_whatever_was_acknowledged_survives_a_fault_at_any_call() -> None:
    """Saves, appends and a deleted checkpoint, ended at each of their calls in each way there is."""
    acknowledged: dict[int, Any] = {}
    in_doubt: list[Any] = [None]

    def scenario(backend: Backend) -> None:
        acknowledged.clear()
        store = store_on(backend)
        state: dict[str, Any] = {"list": [], "text": ""}
        for number in range(20):
            state["list"].append(number)
            if number % 3 < 2:
                state["text"] = str(number) * 300
            in_doubt[0] = copy.deepcopy(state)
            saved = store.save("t", state) if number % 3 < 2 else store.append("t", "list", number)
            acknowledged[saved.seq] = in_doubt[0]
            if number == 6:
                store.delete_checkpoint(store.get("t", 2).id)

    def check(backend: Backend, fault: Fault) -> None:
        store = store_on(backend)
        seen = {info.seq: store.load(info.id).state for info in store.history("t")} if store.latest("t") else {}
        for seq, state in acknowledged.items():
            if seq != 2 or seq in seen:
                assert_exact(state, seen.pop(seq), f"checkpoint {seq} after {fault}")
        assert len(seen) <= 1
        for state in seen.values():
            assert_exact(in_doubt[0], state, f"the unacknowledged one after {fault}")
        report = store.verify()
        assert report.ok, report.problems

    assert crash_points(scenario, new_memory, check) > 100


def test_housekeeping_can_be_done_again_after_a_fault_at_any_call() -> None:
    """Prune, erase, delete, fork: half done or not at all, the next attempt completes it, and nothing else is lost."""

    def scenario(backend: Backend) -> None:
        store = store_on(backend)
        store.prune(Retention(keep_last=3))
        store.fork(store.history("t").items[0].id, "f")
        store.erase("t")
        store.delete("u")

    def make() -> Backend:
        backend = new_memory()
        store = store_on(backend)
        for number in range(20):
            store.save("t", {"n": number, "text": str(number) * 500})
            store.save("u", number)
        return backend

    def check(backend: Backend, fault: Fault) -> None:
        store = store_on(backend)
        latest = store.latest("t")
        assert latest is not None, fault
        assert latest.state == {"n": 19, "text": "19" * 500}, fault
        assert store.verify().ok, fault
        if store.latest("f") is not None:
            store.delete("f")
            store.revive("f")
        scenario(backend)
        assert len(store.history("t")) == 1
        assert store.latest("u") is None
        assert store.verify().ok, fault

    assert crash_points(scenario, make, check) > 60


def test_the_newest_checkpoint_is_deleted_wholly_or_not_at_all() -> None:
    """After a fault at any call the thread can be pruned to its last checkpoint, and that is its state."""

    def make() -> Backend:
        backend = new_memory()
        store = store_on(backend)
        for number in range(1, 4):
            store.save("t", number)
        return backend

    def scenario(backend: Backend) -> None:
        store = store_on(backend)
        store.delete_checkpoint(store.get("t", 3).id)

    def check(backend: Backend, fault: Fault) -> None:
        store = store_on(backend)
        listed, latest = [info.seq for info in store.history("t")], store.latest("t")
        assert latest is not None, fault
        assert latest.seq == latest.state == listed[0], fault
        store.prune(Retention(keep_last=1))
        again = store.latest("t")
        assert again is not None, fault
        assert (again.seq, again.state) == (latest.seq, latest.state), fault
        assert store.verify().ok, fault

    assert crash_points(scenario, make, check) > 10


def test_a_broken_scenario_is_not_taken_for_a_fault() -> None:
    def scenario(backend: Backend) -> None:
        raise KeyError("a bug of the scenario's own")

    with pytest.raises(KeyError):
        crash_points(scenario, MemoryBackend, lambda backend, fault: None)


def test_a_check_that_fails_ends_the_enumeration() -> None:
    def check(backend: Backend, fault: Fault) -> None:
        raise AssertionError(f"broken at {fault.at}")

    with pytest.raises(AssertionError, match="broken at 1"):
        crash_points(lambda backend: backend.heads([b"\0t"]), MemoryBackend, check)
