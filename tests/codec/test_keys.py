"""The key ring: wraps data keys, survives a rotation, hides labels, and never shows a key."""

import copy
import pickle
import random
from typing import Any

import pytest

from holdfast.codec import KeyRing, encode
from holdfast.records.errors import ConfigurationError, Corrupt, KeyUnavailable, UnstorableValue

chance = random.Random(9)
OLD, NEW, DATA_KEY = chance.randbytes(32), chance.randbytes(32), chance.randbytes(32)
THREAD = b"namespace, thread, incarnation"
entropy = chance.randbytes


def before() -> KeyRing:
    return KeyRing({"2025": OLD}, write="2025")


def during() -> KeyRing:
    return KeyRing({"2025": OLD, "2026": NEW}, write="2026")


def after() -> KeyRing:
    return KeyRing({"2026": NEW}, write="2026")


def test_a_wrapped_key_comes_back() -> None:
    wrapped = before().wrap(DATA_KEY, THREAD, entropy)
    assert before().unwrap(wrapped, THREAD) == DATA_KEY
    assert KeyRing.wrapped_by(wrapped) == "2025"
    assert DATA_KEY not in wrapped
    assert before().wrap(DATA_KEY, THREAD, entropy) != wrapped


def test_a_rotation_wraps_again_what_the_old_key_wrapped() -> None:
    wrapped = before().wrap(DATA_KEY, THREAD, entropy)
    assert during().unwrap(wrapped, THREAD) == DATA_KEY
    rewrapped = during().rewrap(wrapped, THREAD, entropy)
    assert KeyRing.wrapped_by(rewrapped) == "2026"
    assert after().unwrap(rewrapped, THREAD) == DATA_KEY
    assert during().rewrap(rewrapped, THREAD, entropy) is rewrapped


def test_a_missing_key_is_named() -> None:
    with pytest.raises(KeyUnavailable, match="'2025'") as caught:
        after().unwrap(before().wrap(DATA_KEY, THREAD, entropy), THREAD)
    assert caught.value.key_id == "2025"


def test_another_key_of_the_same_id_is_told_from_damage() -> None:
    wrapped = before().wrap(DATA_KEY, THREAD, entropy)
    with pytest.raises(KeyUnavailable, match="not the key") as caught:
        KeyRing({"2025": NEW}, write="2025").unwrap(wrapped, THREAD)
    assert caught.value.key_id == "2025"


def test_a_key_opens_what_it_wrapped_under_any_id() -> None:
    wrapped = before().wrap(DATA_KEY, THREAD, entropy)
    assert KeyRing.of(OLD).unwrap(wrapped, THREAD) == DATA_KEY
    renamed = KeyRing({"2025": NEW, "old": OLD}, write="2025")
    assert renamed.unwrap(wrapped, THREAD) == DATA_KEY


def test_a_rotation_wraps_again_what_another_key_wrapped_under_the_same_id() -> None:
    wrapped = before().wrap(DATA_KEY, THREAD, entropy)
    rewrapped = KeyRing({"2025": NEW, "old": OLD}, write="2025").rewrap(wrapped, THREAD, entropy)
    assert KeyRing({"2025": NEW}, write="2025").unwrap(rewrapped, THREAD) == DATA_KEY


def test_no_byte_of_a_wrapped_key_can_be_changed() -> None:
    wrapped = before().wrap(DATA_KEY, THREAD, entropy)
    end_of_id = 1 + len("2025") + 4
    for position in range(len(wrapped)):
        damaged = bytearray(wrapped)
        damaged[position] ^= 0x81
        with pytest.raises((Corrupt, KeyUnavailable)) as caught:
            before().unwrap(bytes(damaged), THREAD)
        assert isinstance(caught.value, Corrupt) or position < end_of_id
    for length in range(len(wrapped)):
        with pytest.raises((Corrupt, KeyUnavailable)):
            before().unwrap(wrapped[:length], THREAD)


def test_a_wrapped_key_belongs_to_one_thread() -> None:
    with pytest.raises(Corrupt, match="another thread"):
        before().unwrap(before().wrap(DATA_KEY, THREAD, entropy), b"other")


@pytest.mark.parametrize(
    ("keys", "write"),
    [
        ({}, "a"),
        ({"a": OLD}, "b"),
        ({"a": b"short"}, "a"),
        ({"a": "x" * 32}, "a"),
        ({"": OLD}, ""),
        ({"é" * 33: OLD}, "é" * 33),
        ({5: OLD}, 5),
    ],
)
def test_a_ring_of_wrong_keys_or_ids_is_refused(keys: Any, write: Any) -> None:
    with pytest.raises(ConfigurationError):
        KeyRing(keys, write)


def test_ids_may_take_sixty_four_bytes() -> None:
    ring = KeyRing({"é" * 32: OLD}, write="é" * 32)
    assert KeyRing.wrapped_by(ring.wrap(DATA_KEY, THREAD, entropy)) == "é" * 32


def test_a_ring_can_be_made_of_a_key_or_of_nothing() -> None:
    ring = KeyRing.of(OLD)
    assert KeyRing.of(ring) is ring
    assert KeyRing.of(OLD).write == ring.write != KeyRing.of(NEW).write
    assert ring.key(ring.write) == OLD
    assert KeyRing.generate("mine").ids == ["mine"]
    first, second = KeyRing.generate(), KeyRing.generate()
    assert first.key(first.write) != second.key(second.write)
    assert KeyRing.of(first.key(first.write)).ids == first.ids


@pytest.mark.parametrize("value", [b"short", "x" * 32, None, bytearray(32)])
def test_a_ring_of_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="KeyRing or 32 bytes"):
        KeyRing.of(value)


def test_another_plain_key_is_a_missing_key() -> None:
    with pytest.raises(KeyUnavailable):
        KeyRing.of(NEW).unwrap(KeyRing.of(OLD).wrap(DATA_KEY, THREAD, entropy), THREAD)


def test_a_ring_never_changes_and_never_shows_a_key() -> None:
    ring = during()
    with pytest.raises(AttributeError, match="immutable"):
        ring.write = "2025"
    assert repr(ring) == "KeyRing(['2025', '2026'], write='2026')"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds keys"):
            leak(ring)
    with pytest.raises(UnstorableValue):
        encode({"ring": ring})


def test_a_change_of_the_mapping_does_not_reach_the_ring() -> None:
    keys = {"a": OLD}
    ring = KeyRing(keys, write="a")
    keys["a"] = NEW
    assert ring.key("a") == OLD


def test_labels_are_found_after_a_rotation() -> None:
    written = before().label_token("user", "ann")
    assert len(written) == 16
    assert written in during().label_tokens("user", "ann")
    assert during().label_tokens("user", "ann")[0] == during().label_token("user", "ann")
    assert written not in after().label_tokens("user", "ann")


def test_labels_that_differ_have_tokens_that_differ() -> None:
    ring = before()
    labels = [("user", "ann"), ("use", "rann"), ("", "userann"), ("user", "ANN"), ("user", ""), ("user", "\ud800")]
    assert len({ring.label_token(name, value) for name, value in labels}) == len(labels)
    assert b"ann" not in ring.label_token("user", "ann")
