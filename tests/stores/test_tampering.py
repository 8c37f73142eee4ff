"""Records swapped, cut short, doubled or missing, beneath a sound store: found out, never returned as data."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from harness.random_walk import TIGHT
from holdfast.records.errors import Corrupt
from holdfast.records.rows import Row
from holdfast.stores.backend import Listing
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.faults import FaultyBackend
from holdfast.testing.handles import blocking_store
from stores.damage_scenes import CHECKPOINTS, answers, fill, judge

pytestmark = pytest.mark.faults

ALPHA, BETA = b"\0alpha", b"\0beta"


class Tampered(FaultyBackend):
    """Reads what it should not: each kind of record goes through a function that may return another."""

    def __init__(self, inner: MemoryBackend) -> None:
        super().__init__(inner)
        self.memory = inner
        self.row: Callable[[bytes, Row], Row | None] = lambda thread, row: row
        self.blob: Callable[[bytes, bytes, bytes], bytes | None] = lambda thread, name, data: data
        self.head: Callable[[bytes, bytes], bytes | None] = lambda thread, head: head

    def stored_row(self, thread: bytes, seq: int) -> Row:
        return next(row for row in self.memory.rows(thread, seq) if row.seq == seq)

    def heads(self, threads: Sequence[bytes]) -> list[bytes | None]:
        return [
            self.head(thread, head) if head else None
            for thread, head in zip(threads, self.inner.heads(threads), strict=True)
        ]

    def rows(self, thread: bytes, seq: int) -> list[Row]:
        return [row for row in (self.row(thread, row) for row in self.inner.rows(thread, seq)) if row]

    def index(self, thread: bytes, before: int | None, limit: int | None) -> list[Row]:
        found = (self.row(thread, row) for row in self.inner.index(thread, before, limit))
        return [replace(row, body=b"") for row in found if row]

    def blobs(self, thread: bytes, ids: Collection[bytes]) -> Mapping[bytes, bytes]:
        found = {name: self.blob(thread, name, data) for name, data in self.inner.blobs(thread, ids).items()}
        return {name: data for name, data in found.items() if data is not None}

    def threads(self, *args: Any, **options: Any) -> Listing:
        listing = self.inner.threads(*args, **options)
        return Listing([(thread, self.head(thread, head) or b"") for thread, head in listing.heads], listing.next)


@pytest.fixture(params=[None, b"k" * 32], ids=["plain", "encrypted"])
def keys(request: pytest.FixtureRequest) -> bytes | None:
    key: bytes | None = request.param
    return key


class Scene:
    """A filled store whose backend can be tampered with."""

    def __init__(self, keys: bytes | None) -> None:
        memory = MemoryBackend()
        memory.tuning = TIGHT
        self.keys = keys
        self.backend = Tampered(memory)
        store = blocking_store(self.backend, keys=keys, closes=False)
        fill(store)
        self.right = answers(store)

    def refused(self) -> int:
        """Ask everything; wrong data fails the test."""
        return judge(lambda: blocking_store(self.backend, keys=self.keys, closes=False), self.right)


@pytest.fixture
def scene(keys: bytes | None) -> Scene:
    return Scene(keys)


def test_nothing_is_refused_where_nothing_was_done(scene: Scene) -> None:
    assert scene.refused() == 0


@pytest.mark.parametrize("seq", [1, 2, 7, CHECKPOINTS])
def test_a_row_of_another_thread_is_found_out(scene: Scene, seq: int) -> None:
    """The same seq, and a sound row: but not of this thread."""
    other = scene.backend.stored_row(BETA, seq)
    scene.backend.row = lambda thread, row: other if thread == ALPHA and row.seq == seq else row
    assert scene.refused() >= 1


def test_all_rows_of_another_thread_are_found_out(scene: Scene) -> None:
    def swapped(thread: bytes, row: Row) -> Row:
        return scene.backend.stored_row(BETA, row.seq) if thread == ALPHA else row

    scene.backend.row = swapped
    assert scene.refused() >= 1


@pytest.mark.parametrize(("one", "other"), [(3, 4), (2, 9), (11, 12)])
def test_two_rows_of_a_thread_that_changed_places_are_found_out(scene: Scene, one: int, other: int) -> None:
    places = {one: other, other: one}

    def swapped(thread: bytes, row: Row) -> Row:
        if thread != ALPHA or row.seq not in places:
            return row
        taken = scene.backend.stored_row(thread, places[row.seq])
        return replace(taken, seq=row.seq, base=row.base)

    scene.backend.row = swapped
    assert scene.refused() >= 1


def test_a_row_that_is_there_twice_is_found_out(scene: Scene) -> None:
    def doubled(thread: bytes, row: Row) -> Row:
        return replace(scene.backend.stored_row(thread, 5), seq=6) if thread == ALPHA and row.seq == 6 else row

    scene.backend.row = doubled
    assert scene.refused() >= 1


@pytest.mark.parametrize("seq", [1, 4, CHECKPOINTS - 1, CHECKPOINTS])
def test_a_missing_row_is_damage(scene: Scene, seq: int) -> None:
    scene.backend.row = lambda thread, row: None if thread == ALPHA and row.seq == seq else row
    assert scene.refused() >= 1


@pytest.mark.parametrize("keep", [0, 1, 3, -1])
@pytest.mark.parametrize("part", ["header", "body", "digest"])
def test_a_row_cut_short_is_found_out(scene: Scene, part: str, keep: int) -> None:
    def cut(thread: bytes, row: Row) -> Row:
        return replace(row, **{part: getattr(row, part)[:keep]}) if thread == ALPHA and row.seq == 5 else row

    scene.backend.row = cut
    assert scene.refused() >= 1


@pytest.mark.parametrize("field", ["seq", "base"])
def test_a_row_that_says_it_is_another_is_found_out(scene: Scene, field: str) -> None:
    def renumbered(thread: bytes, row: Row) -> Row:
        return replace(row, **{field: getattr(row, field) + 1}) if thread == ALPHA and row.seq == 5 else row

    scene.backend.row = renumbered
    assert scene.refused() >= 1


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: b"", lambda data: data + b"x", lambda data: None]
)
def test_a_blob_cut_short_or_missing_is_found_out(scene: Scene, change: Callable[[bytes], bytes | None]) -> None:
    scene.backend.blob = lambda thread, name, data: change(data) if thread == ALPHA else data
    assert scene.refused() >= 1


def test_a_blob_of_another_is_found_out(scene: Scene) -> None:
    seen: list[bytes] = []

    def swapped(thread: bytes, name: bytes, data: bytes) -> bytes:
        seen.append(data)
        return seen[0]

    scene.backend.blob = swapped
    assert scene.refused() >= 1


def test_the_head_of_another_thread_is_found_out(scene: Scene) -> None:
    other = scene.backend.memory.heads([BETA])[0]
    scene.backend.head = lambda thread, head: other if thread == ALPHA else head
    assert scene.refused() >= 1


@pytest.mark.parametrize("keep", [0, 1, 16, 17, -1])
def test_a_head_cut_short_is_found_out(scene: Scene, keep: int) -> None:
    scene.backend.head = lambda thread, head: head[:keep] or b"?" if thread == ALPHA else head
    assert scene.refused() >= 1


def test_an_encrypted_row_moved_with_all_its_numbers_is_found_out() -> None:
    """Whoever can write to the store, and recompute what needs no key, still cannot move a sealed row."""
    scene = Scene(b"k" * 32)
    other = scene.backend.stored_row(BETA, 4)

    def moved(thread: bytes, row: Row) -> Row:
        return replace(row, body=other.body) if thread == ALPHA and row.seq == 4 else row

    scene.backend.row = moved
    store = blocking_store(scene.backend, keys=scene.keys, closes=False)
    with pytest.raises(Corrupt):
        store.get("alpha", 4)


def test_errors_name_the_record(scene: Scene) -> None:
    scene.backend.row = lambda thread, row: replace(row, body=row.body[:-1]) if row.seq == 5 else row
    store = blocking_store(scene.backend, keys=scene.keys, closes=False)
    with pytest.raises(Corrupt) as caught:
        store.get("alpha", 5)
    assert "row 5 of 'alpha'" in caught.value.record
    problems: list[Any] = store.verify().problems
    assert any("row 5" in problem.record and problem.thread_id == "alpha" for problem in problems)
