"""A test that cannot fail proves nothing: faults planted in the engine and beneath it are caught by the model."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from harness.broken_backends import FlipsBits, Lossy, NoFencing, SeqOnly
from harness.random_walk import TIGHT, Walk
from holdfast.codec import decode
from holdfast.history import cells, edits, prune, restore
from holdfast.history import log as history_log
from holdfast.history.binding import Binding
from holdfast.history.cells import Cell, Kind, Operation
from holdfast.history.format import decode_header
from holdfast.history.prune import Plan
from holdfast.records import head as records_head
from holdfast.records.errors import Corrupt, HoldfastError, IncompatibleCheckpoint
from holdfast.stores import maintenance, reader
from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.exact import difference
from holdfast.testing.handles import blocking_store
from holdfast.testing.places import MemoryPlace, Place
from rounds import rounds

pytestmark = pytest.mark.faults

SEEDS = range(12)


def walked(make_place: Callable[[], Place], seeds: Iterable[int] = SEEDS, *, faults: bool = False) -> None:
    """Walk until something is found wrong."""
    for seed in seeds:
        Walk(make_place(), seed, faults=faults).run(120)


def is_caught(make_place: Callable[[], Place] = MemoryPlace, *, faults: bool = False) -> None:
    with pytest.raises((AssertionError, HoldfastError)):
        walked(make_place, faults=faults)


def test_a_sound_engine_walks_through() -> None:
    walked(MemoryPlace, SEEDS[: rounds(3, 12)])


class Wrapped(MemoryPlace):
    """A memory whose backend is broken."""

    def __init__(self, wrap: Callable[[Backend], Backend]) -> None:
        super().__init__()
        self._wrap = wrap

    def open(self) -> Backend:
        return self._wrap(super().open())


@pytest.mark.parametrize("broken", [SeqOnly, NoFencing])
def test_a_compare_by_less_than_all_bytes_is_caught(broken: Callable[[Backend], Backend]) -> None:
    is_caught(lambda: Wrapped(broken))


def test_a_lost_acknowledged_swap_is_caught() -> None:
    class LossyPlace(MemoryPlace):
        def __init__(self) -> None:
            self.lossy = Lossy(MemoryBackend())
            super().__init__(self.lossy)

        def crashed(self) -> MemoryPlace:
            return MemoryPlace(self.lossy.disk)

    is_caught(LossyPlace)


def test_an_edit_that_copies_a_byte_too_few_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = edits.edit

    def short(*args: Any) -> list[Operation] | None:
        operations = sound(*args)
        return operations and [_shortened(operation) for operation in operations]

    def _shortened(operation: Operation) -> Operation:
        return (operation[0], operation[1] - 1) if isinstance(operation, tuple) and operation[1] > 1 else operation

    monkeypatch.setattr(history_log, "edit", short)
    is_caught()


def test_a_splice_that_is_off_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = cells._range

    def shifted(pieces: Any, starts: Any, offset: int, length: int) -> Any:
        return sound(pieces, starts, offset - 1 if offset else 0, length)

    monkeypatch.setattr(cells, "_range", shifted)
    is_caught()


def test_a_prune_that_drops_a_referenced_blob_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = prune.plan

    def greedy(headers: Any, head: Any, marks: Any) -> Plan:
        found = sound(headers, head, marks)
        gone = {seq for start, stop in found.rows for seq in range(start, stop)}
        referenced = [blob for header in headers if header.seq not in gone for blob in header.blob_ids]
        return replace(found, blobs=(*found.blobs, *referenced[:1]))

    monkeypatch.setattr(maintenance, "plan", greedy)
    is_caught()


def test_a_prune_that_drops_a_needed_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = prune.plan

    def greedy(headers: Any, head: Any, marks: Any) -> Plan:
        found = sound(headers, head, marks)
        return replace(found, rows=tuple((start, min(stop + 1, head.seq)) for start, stop in found.rows))

    monkeypatch.setattr(maintenance, "plan", greedy)
    is_caught()


def test_a_writer_that_trusts_equality_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 == True == 1.0: a cell compared by value would keep the old one."""
    sound = edits.edit

    def by_value(old: Cell, kind: Kind, count: int, encoded: bytes, header: int) -> list[Operation] | None:
        if kind == old.kind and decode(old.encoded()) == decode(encoded):
            return None
        return sound(old, kind, count, encoded, header)

    monkeypatch.setattr(history_log, "edit", by_value)
    is_caught()


# Flipped bits: digests on, every flip is an error; digests off, some come back as data.


def read_through_flips() -> int:
    """Read a thread through a disk that flips bits: exact, or an error of ours. Returns how many flips there were."""
    flips = 0
    for seed in SEEDS:
        memory = MemoryBackend()
        memory.tuning = TIGHT
        states = _fill(memory)
        flaky = FlipsBits(memory, seed, often=0.05)
        store = blocking_store(flaky, compress=False)
        for seq, state in states.items():
            _is_exact_or_an_error(partial(store.get, "t", seq), state)
            _is_exact_or_an_error(partial(store.latest, "t"), states[max(states)])
        flips += flaky.flipped
    return flips


def _fill(memory: Backend) -> dict[int, Any]:
    store = blocking_store(memory, compress=False, closes=False)
    states = {}
    for number in range(1, 25):
        state = {"n": number, "text": "abc" * 50 * number, "list": [{"k": str(n) * 9} for n in range(number)]}
        states[store.save("t", state).seq] = state
    return states


def _is_exact_or_an_error(read: Callable[[], Any], expected: Any) -> None:
    try:
        checkpoint = read()
        state = checkpoint.state
    except (Corrupt, IncompatibleCheckpoint):  # a flipped version is told from a digest only by the version itself
        return
    assert checkpoint is not None
    found = difference(expected, state)
    assert found is None, found


def test_flipped_bits_are_never_data() -> None:
    assert read_through_flips() > 200


def _is_caught_by_flips() -> None:
    """Wrong data, or an error that is not ours: either way the digest was missed."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        read_through_flips()
    assert not isinstance(caught.value, Corrupt)


def test_a_skipped_digest_of_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "verify_row", decode_header)
    _is_caught_by_flips()


def test_a_skipped_digest_of_blobs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(self: Binding, blob: bytes, stored: bytes) -> bytes:
        return self._seal.unseal(stored, self.identity + b"p", record="blob")

    monkeypatch.setattr(Binding, "unseal_blob", trusting)
    _is_caught_by_flips()


def test_a_skipped_digest_of_heads_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(thread: bytes, data: bytes) -> Any:
        return records_head._decode(data[: -records_head.DIGEST_BYTES])

    monkeypatch.setattr(reader, "decode_head", trusting)
    _is_caught_by_flips()
