"""A process that dies or loses a reply at any call to an object store: all or nothing, and told truly."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from holdfast.records.errors import (
    ConfigurationError,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from holdfast.records.head import Head, encode_head
from holdfast.records.rows import Drop, Swap
from holdfast.stores.backend import Backend
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.objects import ObjectBackend
from object_map import ObjectMap
from rounds import TIMES
from stores.object_scenes import (
    IDS,
    THREAD,
    TOMBSTONE,
    Crashed,
    Fault,
    blob,
    blobs_of,
    counted,
    head,
    make,
    names,
    play,
    process,
    row,
    steps,
    view,
)


class Scene(NamedTuple):
    """What happened before, posts that were left, and the swap in which something fails."""

    before: list[Swap]
    posts: Mapping[str, bytes]
    swap: Swap


WHOLE = make(None, head(9), *(row(seq) for seq in range(1, 10)), blobs=dict([blob(1, b"1")]))
"""Nine rows in one segment, unless they ride in the head."""
PRUNE = Drop(rows=((2, 4), (6, 8)), blobs=(IDS[1], IDS[2], IDS[5]))
SCENES = {
    "first row": Scene([], {}, steps(1)[0]),
    "first row after a post": Scene([], {"k": b"v"}, replace(steps(1)[0], consumed=("k",))),
    "next rows": Scene(
        steps(2), {}, make(head(2), head(4), row(3), row(4), blobs=dict([blob(3, b"3"), blob(4, b"4")]))
    ),
    "head alone": Scene(steps(1), {}, make(head(1), head(1, token=1))),
    "consume": Scene(steps(1), {"k": b"v", "l": b"w", "m": b"x"}, steps(1, start=2, consumed=("k", "m", "z"))[0]),
    "prune": Scene(steps(9), {"k": b"v"}, make(head(9), head(9, token=1), drop=PRUNE)),
    "prune and write": Scene(steps(8), {}, steps(1, start=9, drop=PRUNE)[0]),
    "keyframe": Scene(steps(4), {}, make(head(4), head(5), row(5, base=5), blobs=dict([blob(5, b"5")]))),
    "cut": Scene([WHOLE], {"k": b"v"}, make(head(9), head(9, token=1), drop=PRUNE)),
    "cut and write": Scene([WHOLE], {}, make(head(9), head(10), row(10, base=10), drop=PRUNE)),
    "erase": Scene(
        [WHOLE, make(head(9), head(10), row(10, base=10))],
        {},
        make(head(10), head(11), row(11, base=11), drop=Drop(rows=((1, 4), (7, 11)), secure=True)),
    ),
    "delete": Scene(steps(3), {"k": b"v"}, make(head(3), TOMBSTONE, drop=Drop(everything=True))),
    "start again": Scene(
        [*steps(3), make(head(3), TOMBSTONE, drop=Drop(everything=True))],
        {"k": b"v"},
        make(TOMBSTONE, head(1), row(1, "again"), blobs=dict([blob(1, b"big")]), drop=Drop(everything=True)),
    ),
}


def staged(backend: Backend, scene: Scene) -> None:
    play(backend, scene.before)
    for key, value in scene.posts.items():
        assert backend.post(THREAD, key, value)


class Model(NamedTuple):
    """What can be read before the swap, and after; and the blobs that must be there."""

    before: object
    after: object
    blobs_before: set[tuple[bytes, bytes]]
    blobs_after: set[tuple[bytes, bytes]]

    def fits(self, backend: Backend, found: object) -> bool:
        blobs = self.blobs_before if found == self.before else self.blobs_after
        return found in [self.before, self.after] and blobs <= blobs_of(backend)


def modelled(scene: Scene) -> Model:
    model = MemoryBackend()
    staged(model, scene)
    before, blobs_before = view(model), blobs_of(model)
    play(model, [scene.swap])
    return Model(before, view(model), blobs_before, blobs_of(model))


def stories(scene: Scene) -> Iterator[tuple[int, bool]]:
    """Every call of the swap, failing before and after it was done; in an ordinary run a third of these."""
    kept = ObjectMap()
    staged(process(kept), scene)
    backend, calls = counted(kept)
    backend.heads([THREAD])
    calls.clear()
    play(backend, [scene.swap])
    every = ((at, late) for at in range(1, len(calls) + 1) for late in (False, True))
    return islice(every, 0, None, 3 if TIMES == 1 else 1)


def failing(scene: Scene, error: BaseException, at: int, *, late: bool) -> tuple[ObjectMap, ObjectBackend]:
    """A process that knows the head, and whose `at`th call from now on fails."""
    kept = ObjectMap()
    staged(process(kept), scene)
    fault = Fault(error, 0, late=late)
    backend = process(kept, fault)
    backend.heads([THREAD])
    fault.when, fault.count = at, 0
    return kept, backend


def tidy(kept: ObjectMap, scene: Scene) -> None:
    """One more swap removes whatever was left: the same objects remain as if nothing had failed."""
    after = scene.swap.head
    play(process(kept), [make(after, Head(token=99))])
    clean = ObjectMap()
    backend = process(clean)
    staged(backend, scene)
    play(backend, [scene.swap])
    play(process(clean), [make(after, Head(token=99))])
    for part in ("/rows/", "/blobs/", "/head", "spaces/"):
        assert names(kept, part) == names(clean, part)
    assert len(names(kept, "/posts/")) == len(names(clean, "/posts/"))


@pytest.mark.faults
@pytest.mark.usefixtures("tails")
@pytest.mark.parametrize("name", SCENES)
def test_a_crash_at_any_call_leaves_the_old_state_or_the_new(name: str) -> None:
    scene = SCENES[name]
    model = modelled(scene)
    for at, late in stories(scene):
        kept, backend = failing(scene, Crashed(), at, late=late)
        with pytest.raises(Crashed):
            backend.swap([scene.swap])
        survivor = process(kept)
        found = view(survivor)
        assert model.fits(survivor, found)
        assert survivor.swap([scene.swap]) == [found == model.before]
        assert view(survivor) == view(process(kept)) == model.after
        assert model.fits(survivor, model.after)
        tidy(kept, scene)


@pytest.mark.faults
@pytest.mark.usefixtures("tails")
@pytest.mark.parametrize("name", SCENES)
def test_an_error_at_any_call_is_told_truly_and_the_swap_can_be_repeated(name: str) -> None:
    scene = SCENES[name]
    model = modelled(scene)
    for at, late in stories(scene):
        kept, backend = failing(scene, OSError("no route"), at, late=late)
        try:
            outcome: list[bool] | StoreError = backend.swap([scene.swap])
        except (StoreUnavailable, OutcomeUnknown) as error:
            outcome = error
        found = view(process(kept))
        assert found == view(backend)
        assert model.fits(backend, found)
        if isinstance(outcome, OutcomeUnknown):
            assert found == (model.after if late else model.before)
        elif "erase again" in str(outcome):
            assert scene.swap.drop.secure
            assert found == model.after
        else:
            assert found == (model.before if isinstance(outcome, StoreUnavailable) else model.after)
            assert isinstance(outcome, StoreUnavailable) or outcome == [True]
        assert backend.swap([scene.swap]) == [found == model.before]
        assert view(backend) == view(process(kept)) == model.after
        assert model.fits(backend, model.after)
        tidy(kept, scene)


def contains(it: str, part: str) -> bool:
    return part in it


def test_a_lost_reply_of_the_commit_is_an_unknown_outcome_and_of_a_row_is_not() -> None:
    commit, first = steps(2)[1], steps(1)[0]
    for part, expected in (("match", OutcomeUnknown), ("/rows/", StoreUnavailable), ("/blobs/", StoreUnavailable)):
        kept = ObjectMap()
        play(process(kept), [first])
        lossy = process(kept, Fault(TimeoutError(), partial(contains, part=part)))
        with pytest.raises(expected) as raised:
            lossy.swap([commit])
        assert isinstance(raised.value.__cause__, TimeoutError)


def test_errors_of_ours_are_passed_on_as_they_are() -> None:
    kept = ObjectMap()
    refused = Fault(StoreUnavailable("connection refused"), lambda it: it.endswith("head"))
    with pytest.raises(StoreUnavailable, match="connection refused"):
        process(kept, refused).swap(steps(1))
    unknown = Fault(OutcomeUnknown("lost"), lambda it: "/rows/" in it)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        process(kept, unknown).swap(steps(1))
    wrong = Fault(ConfigurationError("no such bucket"), bool)
    with pytest.raises(ConfigurationError):
        process(kept, wrong).heads([THREAD])


def test_a_put_that_a_client_repeated_by_itself_is_known_as_ours() -> None:
    class Repeating(ObjectMap):
        def put_if_match(self, name: str, data: bytes, tag: str) -> str | None:
            super().put_if_match(name, data, tag)
            return super().put_if_match(name, data, tag)

    backend = ObjectBackend(Repeating())
    play(backend, steps(3))
    assert [entry.seq for entry in backend.index(THREAD, None, None)] == [3, 2, 1]
    assert backend.post(THREAD, "k", b"v")
    assert backend.inbox(THREAD) == {"k": b"v"}


def test_what_a_failed_removal_left_goes_with_the_next_swap_of_any_process() -> None:
    kept = ObjectMap()
    fault = Fault(OSError(), lambda it: it.startswith("delete"))
    play(process(kept, fault), [*steps(3), make(head(3), head(3, token=1), drop=Drop(blobs=(IDS[0],)))])
    assert len(names(kept, "/blobs/")) == 3
    backend, calls = counted(kept)
    assert backend.post(THREAD, "k", b"v")
    assert dict(backend.blobs(THREAD, IDS)).keys() == set(IDS[:3])
    play(backend, [make(head(3, token=1), head(3, token=2))])
    assert len(names(kept, "/blobs/")) == 2
    calls.clear()
    play(backend, [make(head(3, token=2), head(3, token=3)), make(head(3, token=3), head(3, token=4))])
    assert [call for call, _ in calls] == ["put_if_match"] * 2


def test_what_a_crash_left_of_a_deleted_thread_goes_when_it_is_looked_at() -> None:
    kept, backend = failing(SCENES["delete"], Crashed(), 2, late=False)
    with pytest.raises(Crashed):
        backend.swap([SCENES["delete"].swap])
    assert names(kept, "/rows/")
    looker, calls = counted(kept)
    assert looker.heads([THREAD]) == [encode_head(THREAD, TOMBSTONE)]
    assert names(kept, "/rows/") == names(kept, "/blobs/") == names(kept, "/posts/") == []
    calls.clear()
    looker.heads([THREAD])
    assert [call for call, _ in calls] == ["get"]


def test_a_slow_removal_of_one_life_does_not_touch_the_next() -> None:
    kept = ObjectMap()
    play(process(kept), steps(3))
    again = [make(TOMBSTONE, head(0)), make(head(0), head(1), row(1, "again"), blobs=dict([blob(1, b"1")]))]

    def hook(call: str, _name: str) -> None:
        if call in {"list", "delete"} and again:
            play(process(kept), [again.pop(0), again.pop(0)])

    slow = process(kept, hook)
    play(slow, [make(head(3), TOMBSTONE, drop=Drop(everything=True))])
    assert not again
    assert slow.rows(THREAD, 1) == process(kept).rows(THREAD, 1) == [row(1, "again")]
    assert dict(slow.blobs(THREAD, IDS)) == dict([blob(1, b"1")])


def test_a_refused_repeat_removes_no_committed_row_while_a_prune_is_under_way() -> None:
    kept, swaps = ObjectMap(), steps(9)
    play(process(kept), swaps[:4])
    lost = Fault(OSError("lost"), lambda it: it.startswith("put_if_match"), late=True)
    pruning = [make(head(9), head(9, token=1), drop=Drop(rows=((6, 9),)))]

    outage = [OSError("still out")]

    def hook(call: str, name: str) -> BaseException | None:
        if call == "get" and "/rows/" in name and pruning:
            play(process(kept), [pruning.pop()])
        if lost.struck and outage:
            raise outage.pop()
        return lost(call, name)

    writer = process(kept, hook)
    writer.heads([THREAD])
    with pytest.raises(OutcomeUnknown):
        writer.swap([swaps[4]])
    assert not outage
    play(process(kept), swaps[5:9])
    assert writer.swap([swaps[4]]) == [False]
    assert not pruning
    assert [found.seq for found in process(kept).index(THREAD, None, None)] == [9, 5, 4, 3, 2, 1]
