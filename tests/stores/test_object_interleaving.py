"""Two writers of one thread in an object store, one of them between any two calls of the other: as one after the other.

What comes between may be made before or after the other's commit; a model makes both in that order, and must agree on
which was refused, on all that can be read, and on what is stored once the litter is removed.
"""

from collections.abc import Callable

import pytest

from holdfast.records.head import Head, decode_head
from holdfast.records.rows import Drop, Row, Swap
from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.crash_engine import sampled
from object_map import ObjectMap
from rounds import points
from stores.object_scenes import THREAD, blob, counted, head, make, play, process, row, stored, view

TOKENS = 100

Maker = Callable[[Head], Swap]


def adding(now: Head, *rows: Row, drop: Drop | None = None, number: int = 0) -> Swap:
    """A swap of the head as it is now."""
    new = head(now.seq + len(rows), token=now.token + TOKENS + number)
    blobs = dict([blob(row.seq, row.header) for row in rows])
    return make(now, new, *rows, blobs=blobs, drop=drop or Drop())


def append(now: Head) -> Swap:
    return adding(now, row(now.seq + 1, f"append {now.token}"), number=1)


def keyframe(now: Head) -> Swap:
    return adding(now, row(now.seq + 1, f"keyframe {now.token}", base=now.seq + 1), number=2)


def head_alone(now: Head) -> Swap:
    return adding(now, number=3)


def cut(now: Head) -> Swap:
    return adding(now, drop=Drop(rows=((2, 4), (6, 8))), number=4)


def other_cut(now: Head) -> Swap:
    return adding(now, drop=Drop(rows=((1, 3), (7, 9))), number=5)


def erase(now: Head) -> Swap:
    new = row(now.seq + 1, f"erase {now.token}", base=now.seq + 1)
    return adding(now, new, drop=Drop(rows=((1, now.seq + 1),), secure=True), number=6)


def start_again(now: Head) -> Swap:
    new = head(1, token=now.token + TOKENS + 7)
    return make(now, new, row(1, f"again {now.token}"), drop=Drop(everything=True))


MAKERS = [append, keyframe, head_alone, cut, other_cut, erase, start_again]
BEFORE = [
    make(None, head(9), *(row(seq) for seq in range(1, 10))),
    *(make(head(seq - 1), head(seq), row(seq, base=10)) for seq in (10, 11, 12)),
]
"""Rows 1 to 9 and 10 to 12, in segments or in the head."""


def present(backend: Backend) -> Head:
    (found,) = backend.heads([THREAD])
    assert found is not None
    return decode_head(THREAD, found)


class Meanwhile:
    """A hook that lets another process act once, before one of the calls to come."""

    def __init__(self, fast: Backend, second: Maker | None) -> None:
        self.fast = fast
        self.second = second
        self.calls_left = -1
        self.swaps: list[Swap] = []
        self.found = Head()

    def __call__(self, _call: str, _name: str) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            self.found = present(self.fast)
            self.swaps += [self.second(self.found)] if self.second else []
            self.act(self.fast)

    def act(self, backend: Backend) -> None:
        if self.second:
            play(backend, self.swaps)
        else:
            assert backend.post(THREAD, "k", b"v")


@pytest.mark.faults
@pytest.mark.usefixtures("tails")
@pytest.mark.parametrize("second", [*MAKERS, None], ids=lambda each: each.__name__ if each else "post")
@pytest.mark.parametrize("first", MAKERS, ids=lambda each: each.__name__)
def test_what_comes_between_is_as_if_it_came_before_or_after(first: Maker, second: Maker | None) -> None:
    kept = ObjectMap()
    play(process(kept), BEFORE)
    slow, calls = counted(kept)
    swap = first(present(slow))
    calls.clear()
    play(slow, [swap])
    for at in sampled(len(calls), points(6)):
        check(swap, second, at)


def check(swap: Swap, second: Maker | None, at: int) -> None:
    """The slow swap, with what another process does (None: a post) before its `at`th call."""
    kept, model = ObjectMap(), MemoryBackend()
    play(process(kept), BEFORE)
    play(model, BEFORE)
    meanwhile = Meanwhile(process(kept), second)
    slow = process(kept, meanwhile)
    slow.heads([THREAD])
    meanwhile.calls_left = at
    outcome = slow.swap([swap])
    is_late = meanwhile.found == swap.head
    if not is_late:
        meanwhile.act(model)
    assert outcome == model.swap([swap])
    if is_late:
        meanwhile.act(model)
    ids = [blob for each in (swap, *meanwhile.swaps) for blob in each.blobs]
    for backend in (meanwhile.fast, slow, process(kept)):
        assert view(backend) == view(model)
        assert model.blobs(THREAD, ids).items() <= backend.blobs(THREAD, ids).items()
    riding = [entry.seq for entry in slow._heads.fetch(THREAD).record.tail]
    assert stored(kept) + riding == [entry.seq for entry in reversed(model.index(THREAD, None, None))]
