"""Who writes to the store without its key changes nothing that is loaded: every field, with every digest recomputed."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import sync
from holdfast.codec import encode
from holdfast.records.errors import Corrupt, HoldfastError
from holdfast.records.head import Head, Marks
from holdfast.records.rows import Row
from holdfast.stores.backup import snapshot
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.handles import blocking_store
from stores.damage_scenes import CHECKPOINTS
from stores.forger import FIELDS, Fields, fields_of, forged_head, forged_rows, head_of
from stores.test_tampering import ALPHA, Scene, Tampered

KEY = b"k" * 32
SEQS = (1, 2, 6, CHECKPOINTS)
LEASE = {"token", "owner", "expires_at"}
"""What a copy without the key must be able to end; it decides nothing that is loaded."""


def other(value: Any) -> Any:
    """Another value of the same type, as near as can be."""
    match value:
        case bytes():
            return value[:-1] + bytes((value[-1] ^ 1,)) if value else b"\x01"
        case int():
            return value + 1
        case str():
            return "failed" if value != "failed" else "complete"
        case Marks():
            return replace(value, floor=value.floor + 1, pinned=(1,))
        case list() | tuple():
            return type(value)([*value[:-1], other(value[-1])] if value else [1])
    raise AssertionError(value)


def changed(position: int) -> Callable[[Fields], None]:
    def change(fields: Fields) -> None:
        fields[position] = other(fields[position])

    return change


def reversed_blobs(fields: Fields) -> None:
    ids = [fields[4][at : at + 16] for at in range(0, len(fields[4]), 16)]
    fields[4], fields[5] = b"".join(reversed(ids)), fields[5][::-1]


class Forgery(Scene):
    """A filled, encrypted store, and what is stored of `alpha`."""

    def __init__(self, keys: bytes | None = KEY) -> None:
        super().__init__(keys)
        self.encoded = self.backend.heads([ALPHA])[0] or b""
        self.stored_head = head_of(ALPHA, self.encoded)
        self.stored = [self.backend.stored_row(ALPHA, seq) for seq in range(1, CHECKPOINTS + 1)]

    def put(self, rows: list[Row], **head: Any) -> None:
        """Let those be the thread's rows, under a head that fits them."""
        by_seq = {row.seq: row for row in rows}
        encoded = forged_head(ALPHA, self.encoded, digest=rows[-1].digest, **head)
        self.backend.row = lambda thread, row: by_seq[row.seq] if thread == ALPHA else row
        self.backend.head = lambda thread, stored: encoded if thread == ALPHA else stored

    def forge(self, seq: int, change: Callable[[Fields], None]) -> None:
        self.put(forged_rows(ALPHA, self.stored_head.incarnation, self.stored, seq, change))


@pytest.mark.parametrize("seq", SEQS)
@pytest.mark.parametrize("position", range(len(FIELDS)), ids=FIELDS)
def test_every_field_of_a_rows_header_is_authenticated(position: int, seq: int) -> None:
    scene = Forgery()
    scene.forge(seq, changed(position))
    assert scene.refused() > 0


@pytest.mark.parametrize("seq", SEQS)
def test_a_header_is_authenticated_where_the_body_is_not_read(seq: int) -> None:
    scene = Forgery()
    for position in range(len(FIELDS)):
        scene.forge(seq, changed(position))
        with pytest.raises(Corrupt):
            list(blocking_store(scene.backend, keys=KEY, closes=False).history("alpha", limit=CHECKPOINTS))


def test_a_forger_without_the_key_swaps_no_two_blobs() -> None:
    for keys in (None, KEY):
        memory = MemoryBackend()
        with blocking_store(memory, keys=keys, closes=False) as store:
            store.save("alpha", {"approved": "A" * 40_000, "rejected": "B" * 40_000})
        scene = Forgery(keys)
        scene.backend.inner = scene.backend.memory = memory
        scene.encoded = memory.heads([ALPHA])[0] or b""
        scene.stored = memory.rows(ALPHA, 1)
        scene.stored_head = head_of(ALPHA, scene.encoded)
        scene.forge(1, reversed_blobs)
        forged = blocking_store(scene.backend, keys=keys, closes=False)
        if keys is None:  # the forger is as good as that: without a key nothing tells
            assert forged.get("alpha", 1).state["approved"] == "B" * 40_000
        else:
            with pytest.raises(Corrupt):
                forged.latest("alpha")
            assert forged.verify().problems


def test_a_row_does_not_serve_the_blob_of_another() -> None:
    scene = Forgery()
    with_blobs = [row for row in scene.stored if fields_of(row)[4]]
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


@pytest.mark.parametrize(
    "name", [field for field in Head.__struct_fields__ if field not in {*LEASE, "format", "deleted"}]
)
def test_every_field_of_a_head_that_matters_is_authenticated(name: str) -> None:
    scene = Forgery()
    value = getattr(scene.stored_head, name)
    forged = forged_head(ALPHA, scene.encoded, **{name: other(value)})
    scene.backend.head = lambda thread, stored: forged if thread == ALPHA else stored
    store = blocking_store(scene.backend, keys=KEY, closes=False)
    for question in (store.latest, store.thread, store.history, lambda name: store.save(name, 1)):
        with pytest.raises(HoldfastError):
            question("alpha")
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
    value = getattr(scene.stored_head, name)
    forged = forged_head(ALPHA, scene.encoded, **{name: other(value)})
    scene.backend.head = lambda thread, stored: forged if thread == ALPHA else stored
    store = blocking_store(scene.backend, keys=KEY, closes=False)
    assert store.get("alpha", CHECKPOINTS).state == scene.right["latest alpha"][3]


def test_a_head_of_the_format_before_is_refused_with_a_key() -> None:
    scene = Forgery()
    forged = forged_head(ALPHA, scene.encoded, format=1, mac=b"")
    scene.backend.head = lambda thread, stored: forged if thread == ALPHA else stored
    with pytest.raises(sync.IncompatibleCheckpoint, match="import the bundle"):
        blocking_store(scene.backend, keys=KEY, closes=False).latest("alpha")


def test_without_a_key_a_forger_meets_no_raw_error() -> None:
    scene = Forgery(None)
    for seq in SEQS:
        for position in range(len(FIELDS)):
            scene.forge(seq, changed(position))
            store = blocking_store(scene.backend, closes=False)
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
    with pytest.raises(Corrupt):
        store.requests()
    with pytest.raises(Corrupt, match="answer 1 of 'alpha' is damaged"):
        ask_both(store)
