"""The first claim on a thread fixes its life, before any row does: idempotency keys are made of it."""

import os
from contextvars import copy_context

import pytest

from holdfast import KeyRing, sync
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.clock import Clock
from holdfast.testing.handles import blocking_store


def key_of_first_step(store: sync.Store) -> str:
    """The key that a first step is given; nothing is recorded."""
    with store.run("t") as run:
        return run.begin_step("first", effect=False).idempotency_key


@pytest.mark.parametrize("keys", [None, os.urandom(32)], ids=["plain", "encrypted"])
def test_a_first_step_has_the_same_key_in_every_run(keys: bytes | None) -> None:
    store = blocking_store(MemoryBackend(), keys=keys)
    assert key_of_first_step(store) == key_of_first_step(store)


def test_a_claimed_thread_without_rows_is_rotated_too() -> None:
    backend, clock, old, new = MemoryBackend(), Clock(), os.urandom(32), os.urandom(32)

    def store(ring: KeyRing) -> sync.Store:
        return blocking_store(backend, ports=clock.ports(), keys=ring, closes=False)

    dying = store(KeyRing({"old": old}, write="old"))
    run = copy_context().run(dying.run("t").__enter__)
    first = run.begin_step("first", effect=False).idempotency_key
    dying._store._tools.heartbeat.after_fork()  # nobody renews its lease
    store(KeyRing({"old": old, "new": new}, write="new")).rotate()
    clock.advance(60)
    assert key_of_first_step(store(KeyRing({"new": new}, write="new"))) == first


def test_a_thread_without_rows_begins_anew_under_other_keys() -> None:
    backend = MemoryBackend()
    for keys in (os.urandom(32), os.urandom(32), None, os.urandom(32)):
        assert key_of_first_step(blocking_store(backend, keys=keys, closes=False))


def test_a_save_goes_on_with_the_life_of_the_claim() -> None:
    store = blocking_store(MemoryBackend())
    first = key_of_first_step(store)
    store.save("t", {"saved": True})
    assert key_of_first_step(store) == first


def test_a_thread_made_anew_has_another_life() -> None:
    store = blocking_store(MemoryBackend())
    first = key_of_first_step(store)
    store.save("t", 1)
    store.delete("t")
    store.revive("t")
    assert key_of_first_step(store) != first


def test_a_claimed_thread_without_rows_is_shown_as_it_is_listed() -> None:
    store = blocking_store(MemoryBackend())
    with store.run("t"):
        assert store.thread("t") == store.threads().items[0]
        assert store.thread("t").owner
    assert store.thread("t").status == "idle"
