"""The kit finds what is broken, names the promise, and runs without pytest."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.broken_backends import FlipsBits, Lossy, NoFencing, SeqOnly
from holdfast.records.head import decode_head
from holdfast.records.rows import Row, Swap
from holdfast.records.words import Durability
from holdfast.stores.backend import Backend, Listing, counts, readable_head
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.testing.conformance import BackendConformance, StoreConformance, check, check_store, promises, run
from holdfast.testing.conformance.store_hostility import Hostility
from holdfast.testing.faults import FaultyBackend

pytestmark = pytest.mark.faults


def test_a_sound_backend_keeps_every_promise() -> None:
    assert check(MemoryBackend) == len(promises(BackendConformance)) - 7, "all but those about opening again"


def test_a_sound_backend_that_survives_keeps_all_of_them(tmp_path: Path) -> None:
    places: dict[Backend, str] = {}

    def make(path: str | None = None) -> Backend:
        path = path or str(tmp_path / f"{len(places)}.db")
        backend = SQLiteBackend(path, Durability.PROCESS)
        places[backend] = path
        return backend

    assert check(make, lambda backend: make(places[backend])) == len(promises(BackendConformance))


@pytest.mark.parametrize("awaitable", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sound_store_keeps_every_promise(awaitable: bool) -> None:
    assert check_store(MemoryBackend, awaitable=awaitable) == len(promises(StoreConformance)) - 1, "all but damage"


def plant_garbage(backend: Backend, thread: bytes) -> None:
    """As somebody else does who may write to the store."""
    inner = backend.inner if isinstance(backend, FaultyBackend) else backend
    stored = inner.heads([thread])[0] or b""
    assert inner.swap([Swap(thread, stored, b"garbage", decode_head(thread, stored))]) == [True]


def test_a_sound_store_that_can_be_damaged_keeps_every_promise() -> None:
    assert check_store(MemoryBackend, damage=plant_garbage) == len(promises(StoreConformance))


class StopsAtDamage(FaultyBackend):
    """Raises for all threads if the head of one cannot be read."""

    def threads(self, *args: Any, **options: Any) -> Listing:
        listing = self.inner.threads(*args, **options)
        for entry in listing.heads:
            decode_head(*entry)
        return listing


class HidesDamage(FaultyBackend):
    """Leaves out a thread whose head cannot be read."""

    def threads(self, *args: Any, **options: Any) -> Listing:
        listing = self.inner.threads(*args, **options)
        return Listing([entry for entry in listing.heads if readable_head(*entry)], listing.next)


class KeepsDamage(FaultyBackend):
    """Does not let a head be replaced that it cannot read."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        for swap in swaps:
            if swap.expected and swap.head.deleted:
                decode_head(swap.thread, swap.expected)
        return self.inner.swap(swaps, wait=wait)


class SealedIsGone(FaultyBackend):
    """Lists no thread that is encrypted with the first key that it meets."""

    def threads(self, *args: Any, **options: Any) -> Listing:
        listing = self.inner.threads(*args, **options)
        kept = [entry for entry in listing.heads if b"theirs" not in decode_head(*entry).data_key]
        return Listing(kept, listing.next)


@pytest.mark.parametrize("broken", [StopsAtDamage, HidesDamage, KeepsDamage, SealedIsGone])
def test_a_store_that_suffers_from_one_damaged_thread_breaks_a_promise(broken: type[FaultyBackend]) -> None:
    class Given(Hostility):
        def backend(self) -> Backend:
            return broken(MemoryBackend())

        def damage(self, backend: Backend, thread: bytes) -> None:
            plant_garbage(backend, thread)

    with pytest.raises(AssertionError, match="broken promise: "):
        run(Given)


def test_promises_that_take_two_backends_are_left_out_where_there_is_one() -> None:
    class Once(BackendConformance):
        def backend(self) -> Backend:
            return MemoryBackend()

    class Again(Once):
        def reopen(self, backend: Backend) -> Backend:
            return backend

    class Own(Again):
        def test_two_backends_on_one_place_take_turns(self) -> None:
            """In their own way."""

    left_out = set(promises(BackendConformance)) - set(promises(Once))
    assert "test_what_was_acknowledged_is_there_after_a_close" in left_out
    assert len(left_out) == 7
    assert promises(Again) == promises(Own) == promises(BackendConformance)
    assert Own.test_two_backends_on_one_place_take_turns.__doc__ == "In their own way."


def test_every_promise_is_a_sentence() -> None:
    for kit in (BackendConformance, StoreConformance):
        for name in promises(kit):
            assert getattr(kit, name).__doc__, name


class DropsTooMuch(FaultyBackend):
    """Takes the end of a range for a part of it."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        wider = [
            replace(swap, drop=replace(swap.drop, rows=tuple((start, stop + 1) for start, stop in swap.drop.rows)))
            for swap in swaps
        ]
        return self.inner.swap(wider, wait=wait)


class AllOrNothingBatch(FaultyBackend):
    """Refuses a whole batch if one swap of it is refused."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        present = self.inner.heads([swap.thread for swap in swaps])
        if any((head or b"") != swap.expected for head, swap in zip(present, swaps, strict=True)):
            return [False] * len(swaps)
        return self.inner.swap(swaps, wait=wait)


class ListsTheDeleted(FaultyBackend):
    """Shows every thread of a store, whatever was asked for."""

    def threads(self, _prefix: bytes, _statuses: object, _labels: object, *page: Any) -> Listing:
        return self.inner.threads(b"", (), (), *page)


class CountsTheDeleted(FaultyBackend):
    """Counts every thread of a store, whatever was asked for."""

    def counts(self, prefix: bytes) -> dict[str, int]:
        return counts(self.inner, b"")


class ForgetsBodies(FaultyBackend):
    """Reads rows as if only their index had been asked for."""

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        return [replace(row, body=b"") for row in self.inner.rows(thread, seq)]


class OverwritesMessages(FaultyBackend):
    """Lets the last message of a key win."""

    def post(self, thread: bytes, key: str, value: bytes) -> bool:
        head = self.inner.heads([thread])[0]
        if head and key in self.inner.inbox(thread):
            return True
        return self.inner.post(thread, key, value) or True


class StaysOpen(FaultyBackend):
    """Answers after it was closed."""

    def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    "broken",
    [
        NoFencing,
        SeqOnly,
        lambda inner: FlipsBits(inner, often=1.0),
        DropsTooMuch,
        AllOrNothingBatch,
        ListsTheDeleted,
        CountsTheDeleted,
        ForgetsBodies,
        OverwritesMessages,
        StaysOpen,
    ],
    ids=lambda broken: broken.__name__,
)
def test_a_broken_backend_breaks_a_promise(broken: type[FaultyBackend]) -> None:
    with pytest.raises(AssertionError, match="broken promise: "):
        check(lambda: broken(MemoryBackend()))


def test_a_backend_that_loses_what_it_acknowledged_breaks_a_promise() -> None:
    places: dict[Backend, Lossy] = {}

    def make() -> Backend:
        lossy = Lossy(MemoryBackend())
        places[lossy] = lossy
        return lossy

    with pytest.raises(AssertionError, match="broken promise: "):
        check(make, lambda backend: places[backend].disk)


def test_the_kit_refuses_to_run_without_assertions() -> None:
    script = (
        "from holdfast.testing.conformance import check; "
        "from holdfast.stores.memory import MemoryBackend; check(MemoryBackend)"
    )
    ran = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "python -O" in ran.stderr
