"""Who writes to the store without its key changes nothing that is loaded: every field, with every digest recomputed."""

from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest
from msgspec.structs import replace

from holdfast import sync
from holdfast.codec import encode
from holdfast.processes import named
from holdfast.records.errors import Corrupt, HoldfastError, HoldfastWarning
from holdfast.records.head import Head, Marks, decode_head
from holdfast.stores.copying import snapshot
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.forging import FIELDS, LEASE, Change, Fields, Forger, changed, fields_of, other, swap_blobs
from holdfast.testing.handles import blocking_store
from kinds import alike
from stores.damage_scenes import CHECKPOINTS
from stores.test_tampering import ALPHA, Scene, Tampered

KEY = b"k" * 32
SEQS = (1, 2, 6, CHECKPOINTS)
every_seq = pytest.mark.parametrize("seq", [1, *(pytest.param(seq, marks=pytest.mark.again) for seq in SEQS[1:])])


class Forgery(Scene):
    """A filled, encrypted store, and what is stored of `alpha`."""

    def __init__(self, keys: bytes | None = KEY) -> None:
        super().__init__(keys)
        self.forger = Forger(self.backend.memory, ALPHA)

    def forge(self, seq: int, change: Change) -> None:
        """Plant the rows with that change."""
        self.forger.plant(self.forger.forged_rows(seq, change))

    def store(self) -> sync.Store:
        return blocking_store(self.backend, keys=self.keys, closes=False)


@every_seq
@pytest.mark.parametrize("name", alike(FIELDS))
def test_every_field_of_a_rows_header_is_authenticated(name: str, seq: int) -> None:
    scene = Forgery()
    scene.forge(seq, changed(name))
    assert scene.refused() > 0


@every_seq
def test_a_header_is_authenticated_where_the_body_is_not_read(seq: int) -> None:
    scene = Forgery()
    for name in FIELDS:
        scene.forge(seq, changed(name))
        with pytest.raises(Corrupt):
            list(scene.store().history("alpha", limit=CHECKPOINTS))


def test_a_forger_without_the_key_swaps_no_two_blobs() -> None:
    for keys in (None, KEY):
        memory = MemoryBackend()
        store = blocking_store(memory, keys=keys, closes=False)
        store.save("alpha", {"approved": "A" * 40_000, "rejected": "B" * 40_000})
        forger = Forger(memory, ALPHA)
        forger.plant(forger.forged_rows(1, swap_blobs))
        forged = blocking_store(memory, keys=keys, closes=False)
        if keys is None:  # the forger is as good as that: without a key nothing tells
            assert forged.get("alpha", 1).state["approved"] == "B" * 40_000
        else:
            with pytest.raises(Corrupt):
                forged.latest("alpha")
            assert forged.verify().problems


def test_a_row_does_not_serve_the_blob_of_another() -> None:
    scene = Forgery()
    with_blobs = [row for row in scene.forger.rows if fields_of(row)[4]]
    first, last = fields_of(with_blobs[0]), with_blobs[-1]

    def change(fields: Fields) -> None:
        fields[4], fields[5] = first[4], first[5]

    scene.forge(last.seq, change)
    assert scene.refused() > 0


def test_rows_of_two_pasts_of_one_thread_are_not_mixed() -> None:
    """A thread that was put back to an older copy, and written to again, has two pasts under one key."""
    one, other_past = MemoryBackend(), MemoryBackend()
    with blocking_store(one, keys=KEY, closes=False) as store:
        store.save("alpha", {"n": 1})
        copy = snapshot(one, ALPHA)
        assert copy is not None
        other_past.swap([copy])
        store.save("alpha", {"n": 2})
    with blocking_store(other_past, keys=KEY, closes=False) as store:
        store.save("alpha", {"n": 3})
        store.save("alpha", {"n": 4})
    old, new = one.rows(ALPHA, 2)[-1], other_past.rows(ALPHA, 2)[-1]
    for mixed in (old, replace(new, body=old.body), replace(new, header=old.header), replace(old, digest=new.digest)):
        tampered = Tampered(other_past)
        tampered.row = lambda _, row, mixed=mixed: mixed if row.seq == 2 else row  # type: ignore[misc]
        with pytest.raises(Corrupt):
            blocking_store(tampered, keys=KEY, closes=False).latest("alpha")


@pytest.mark.parametrize("name", sorted({*Head.__struct_fields__} - LEASE - {"format", "deleted"}))
def test_every_field_of_a_head_that_matters_is_authenticated(name: str) -> None:
    scene = Forgery()
    scene.forger.plant(**{name: other(getattr(scene.forger.head, name))})
    store = scene.store()
    for question in (store.latest, store.thread, store.history, lambda name: store.save(name, 1)):
        with pytest.raises(HoldfastError):
            question("alpha")
    if name != "labels":  # without them a listing by label leaves the thread out, as storage-format.md says
        assert scene.refused() > 0


def test_verify_finds_a_keyframe_of_another_past() -> None:
    one, other_past = MemoryBackend(), MemoryBackend()
    with blocking_store(one, keys=KEY, closes=False) as store:
        store.save("alpha", "a" * 10_000)
        copy = snapshot(one, ALPHA)
        assert copy is not None
        other_past.swap([copy])
        store.save("alpha", "b" * 10_000)
    with blocking_store(other_past, keys=KEY, closes=False) as store:
        store.save("alpha", "c" * 10_000)
        store.save("alpha", "d" * 10_000)
        assert not store.verify().problems
    tampered = Tampered(other_past)
    tampered.row = lambda _, row: one.rows(ALPHA, 2)[-1] if row.seq == 2 else row
    tampered.blobs = lambda thread, ids: {**one.blobs(thread, ids), **other_past.blobs(thread, ids)}  # type: ignore[method-assign]
    (problem,) = blocking_store(tampered, keys=KEY, closes=False).verify().problems
    assert problem.record == "row 2 of 'alpha'"
    assert "row 3" in problem.message


@pytest.mark.parametrize("name", sorted(LEASE))
def test_the_lease_in_a_head_decides_nothing_that_is_loaded(name: str) -> None:
    scene = Forgery()
    scene.forger.plant(**{name: other(getattr(scene.forger.head, name))})
    store = scene.store()
    assert store.get("alpha", CHECKPOINTS).state == scene.right["latest alpha"][3]


def test_a_head_of_the_format_before_is_refused_with_a_key() -> None:
    scene = Forgery()
    scene.forger.plant(format=1, mac=b"")
    with pytest.raises(sync.IncompatibleCheckpoint, match="import the bundle"):
        scene.store().latest("alpha")


def test_without_a_key_a_forger_meets_no_raw_error() -> None:
    scene = Forgery(None)
    for seq in SEQS:
        for name in FIELDS:
            scene.forge(seq, changed(name))
            store = scene.store()
            for question in (store.latest, store.history, store.thread):
                try:
                    question("alpha")
                except HoldfastError:
                    continue
            store.verify()


def ask_both(store: sync.Store) -> None:
    with store.run("alpha") as run:
        for name in ("small", "large"):
            run.ask(name, choices=("approve", "reject"))


def test_an_approval_of_one_question_is_not_moved_to_another() -> None:
    for keys in (None, KEY):
        memory = MemoryBackend()
        store = blocking_store(memory, keys=keys, closes=False)
        with pytest.raises(sync.Suspended):
            ask_both(store)
        (request,) = store.requests()
        store.answer(request.id, "approve")
        (approval,) = memory.inbox(ALPHA).values()
        with pytest.raises(sync.Suspended):
            ask_both(store)
        memory.post(ALPHA, "answer:2", approval)
        forged = blocking_store(memory, keys=keys, closes=False)
        if keys is None:
            assert not forged.requests()  # without a key the forger decides
            continue
        with pytest.raises(Corrupt):
            ask_both(forged)


@pytest.mark.parametrize(
    "content", [None, 7, "yes", [], ["yes"], [1, 2, 3, 4, 5, 6], ["yes", b"", "ana", "", "now", 0]]
)
def test_a_message_that_is_no_answer_is_damage(content: object) -> None:
    memory = MemoryBackend()
    store = blocking_store(memory, closes=False)
    with pytest.raises(sync.Suspended):
        ask_both(store)
    memory.post(ALPHA, "answer:1", b"\x0f" + encode(content))
    with pytest.warns(HoldfastWarning, match="not all requests are listed: thread 'alpha'"):
        store.requests()
    with pytest.raises(Corrupt, match="answer 1 of 'alpha' is damaged"):
        ask_both(store)


@pytest.mark.parametrize("marks", [Marks(floor=CHECKPOINTS + 1), Marks(hidden=(CHECKPOINTS,)), Marks(floor=2**28)])
def test_marks_never_hide_the_newest_checkpoint(marks: Marks) -> None:
    scene = Forgery(None)
    scene.forger.plant(marks=marks)
    with pytest.raises(Corrupt, match="hide its newest checkpoint"):
        scene.store().latest("alpha")


def test_a_token_leaves_room_for_the_next() -> None:
    scene = Forgery(None)
    scene.forger.plant(token=2**63 - 1)
    with pytest.raises(Corrupt):
        scene.store().save("alpha", 1)


def test_the_name_of_an_owner_is_shown_without_control_characters() -> None:
    assert named("evil\x1b[31m:1:2:abcdefgh:3:00ff00ff").isprintable()
    assert named("no owner\x1b[31m") == r"no owner\x1b[31m"


def forge_marks(memory: MemoryBackend) -> None:
    """Without the key: show a hidden checkpoint again, and keep the lease as it is."""
    forger, lease = Forger(memory, ALPHA), decode_head(ALPHA, memory.heads([ALPHA])[0] or b"")
    forger.plant(marks=Marks(), token=lease.token, owner=lease.owner, expires_at=lease.expires_at)


def with_hidden(memory: MemoryBackend, keys: bytes | None) -> sync.Store:
    """A store that has written to a thread, and hidden its first checkpoint."""
    store = blocking_store(memory, keys=keys, closes=False)
    hidden = store.save("alpha", {"n": [1]})
    store.save("alpha", {"n": [2]})
    store.delete_checkpoint(hidden.id)
    store.save("alpha", {"n": [3]})
    return store


@pytest.mark.parametrize("keys", [None, KEY])
@pytest.mark.parametrize("others_wrote", [False, True])
@pytest.mark.parametrize("write", [lambda store: store.save("alpha", {"n": []}), lambda s: s.append("alpha", "n", 5)])
def test_a_live_writer_does_not_sign_a_forged_head(
    write: Callable[[sync.Store], object], others_wrote: bool, keys: bytes | None
) -> None:
    memory = MemoryBackend()
    store = with_hidden(memory, keys)
    if others_wrote:
        blocking_store(memory, keys=keys, closes=False).save("alpha", {"n": [4]})
    forge_marks(memory)
    if keys is None:  # without a key the forger decides
        write(store)
        assert store.get("alpha", 1).state == {"n": [1]}
        return
    for _ in range(2):
        with pytest.raises(Corrupt):
            write(store)
    with pytest.raises(Corrupt):
        blocking_store(memory, keys=keys, closes=False).get("alpha", 1)


def test_a_run_does_not_sign_a_forged_head() -> None:
    memory = MemoryBackend()
    store = with_hidden(memory, KEY)

    def work(run: sync.Run) -> None:
        run.checkpoint({"n": [4]})
        forge_marks(memory)
        run.checkpoint({"n": [5]})

    with pytest.raises(Corrupt), store.run("alpha") as run:
        work(run)
    with pytest.raises(Corrupt):
        blocking_store(memory, keys=KEY, closes=False).get("alpha", 1)


def test_a_live_writer_goes_on_after_a_rotation_to_a_key_it_lacks() -> None:
    memory = MemoryBackend()
    store = with_hidden(memory, KEY)
    ring = sync.KeyRing({"old": KEY, "new": b"n" * 32}, write="new")
    assert blocking_store(memory, keys=ring, closes=False).rotate() == 1
    assert store.append("alpha", "n", 4).seq == 4


def test_one_head_with_another_key_does_not_stop_prune_and_rotation() -> None:
    memory = MemoryBackend()
    store = blocking_store(memory, keys=KEY, closes=False)
    for name in ("alpha", "beta"):
        for number in range(3):
            store.save(name, {"n": number})
    Forger(memory, ALPHA).plant(data_key=b"\x01x" + bytes(64))
    ring = sync.KeyRing({"old": KEY, "new": b"n" * 32}, write="new")
    store = blocking_store(memory, keys=ring, closes=False)
    assert store.prune(sync.Retention(keep_last=1)) == sync.Freed(checkpoints=2, bytes=ANY, damaged=("alpha",))
    with pytest.raises(sync.KeyUnavailable):
        store.rotate()
    only_new = sync.KeyRing({"new": b"n" * 32}, write="new")
    assert blocking_store(memory, keys=only_new, closes=False).get("beta", 3).state == {"n": 2}


@pytest.mark.parametrize("name", ["row_count", "stored_bytes"])
def test_a_total_that_cannot_grow_is_damage(name: str) -> None:
    scene = Forgery(None)
    too_many: dict[str, Any] = {name: 2**64 - 1}
    scene.forger.plant(**too_many)
    with pytest.raises(Corrupt):
        scene.store().save("alpha", 1)
