"""The nouns: ids, heads, marks, retentions, pages and errors mean what they say."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.records.checkpoint import Part
from holdfast.records.errors import Corrupt, IncompatibleCheckpoint, InvalidId, NotFound
from holdfast.records.head import FORMAT, Head, Marks, decode_head, encode_head
from holdfast.records.identity import CheckpointId, namespace_prefix, thread_id_of, thread_key
from holdfast.records.retention import Freed, Retention, microseconds
from holdfast.records.thread import Page
from holdfast.records.times import from_microseconds

ids = st.text(min_size=1, max_size=40).filter(lambda text: text.encode("utf-8", "ignore").decode() == text)
namespaces = st.text(max_size=10).filter(lambda text: text.encode("utf-8", "ignore").decode() == text)


@given(namespaces, ids, namespaces, ids)
def test_keys_of_threads_are_injective(one: str, thread: str, other: str, another: str) -> None:
    same = (one, thread) == (other, another)
    assert (thread_key(namespace_prefix(one), thread) == thread_key(namespace_prefix(other), another)) is same
    assert thread_id_of(thread_key(namespace_prefix(one), thread)) == thread
    if one != other:
        assert not thread_key(namespace_prefix(one), thread).startswith(namespace_prefix(other))


@given(ids, st.integers(0, 1 << 40), st.sampled_from(["1f9a3c2e", "0"]))
def test_ids_of_checkpoints_come_apart_as_they_were_put_together(thread_id: str, seq: int, life: str) -> None:
    checkpoint = CheckpointId(thread_id, seq, life)
    assert CheckpointId.parse(str(checkpoint)) == checkpoint


@pytest.mark.parametrize("text", ["", "t", "t@", "t@1", "t@.x", "t@-1.x", "t@1.", "t@٣.x", "t@1x.y"])
def test_what_is_no_checkpoint_id_is_not_found(text: str) -> None:
    with pytest.raises(NotFound):
        CheckpointId.parse(text)


@pytest.mark.parametrize("value", [None, 5, b"t@1.x"])
def test_an_id_that_is_no_text_is_invalid(value: object) -> None:
    with pytest.raises(InvalidId, match="must be a str"):
        CheckpointId.parse(value)  # type: ignore[arg-type]
    with pytest.raises(InvalidId, match="must be a str"):
        thread_key(b"\0", value)  # type: ignore[arg-type]


KEY = b"\0thread"
HEAD = Head(
    incarnation=b"i" * 16, seq=5, digest=b"d" * 8, owner="me", status="idle", marks=Marks(2, (3,), (4,)), labels=(b"l",)
)


def test_a_head_comes_back() -> None:
    assert decode_head(KEY, encode_head(KEY, HEAD)) == HEAD


def test_a_damaged_head_is_named() -> None:
    encoded = encode_head(KEY, HEAD)
    for at in range(len(encoded)):
        damaged = encoded[:at] + bytes((encoded[at] ^ 16,)) + encoded[at + 1 :]
        with pytest.raises(Corrupt, match="head of 'thread'"):
            decode_head(KEY, damaged)
    for cut in (0, 1, 15, 16, len(encoded) - 1):
        with pytest.raises(Corrupt):
            decode_head(KEY, encoded[:cut])
    with pytest.raises(Corrupt):
        decode_head(b"\0other", encoded)


def test_a_head_that_is_no_head_is_damage() -> None:
    from hashlib import sha256

    from holdfast.records.head import DIGEST_BYTES

    content = b"\x91\xa1x"
    with pytest.raises(Corrupt):
        decode_head(KEY, content + sha256(KEY + content).digest()[:DIGEST_BYTES])


def test_a_head_of_a_newer_format_is_refused_clearly() -> None:
    with pytest.raises(IncompatibleCheckpoint, match="upgrade"):
        decode_head(KEY, encode_head(KEY, Head(format=FORMAT + 1)))


def test_marks_say_what_is_seen() -> None:
    marks = Marks(floor=5, pinned=(2, 3), hidden=(7,))
    assert [seq for seq in range(1, 10) if marks.shows(seq)] == [2, 3, 5, 6, 8, 9]
    assert all(map(Marks().shows, range(1, 10)))


def test_a_head_is_held_until_its_lease_ends() -> None:
    head = Head(owner="me", expires_at=10)
    assert (head.held(9), head.held(10), Head(expires_at=10).held(9)) == (True, False, False)
    assert (Head(status="idle").listed_as, Head(status="idle", deleted=True).listed_as) == ("idle", "")


@pytest.mark.parametrize(
    "fields",
    [{"keep_last": 0}, {"keep_last": -1}, {"ttl": -1}, {"max_age": timedelta(seconds=-1)}, {"delete_on": ("done",)}],
)
def test_a_retention_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(holdfast.ConfigurationError):
        Retention(**fields)  # type: ignore[arg-type]


def test_durations_are_timedeltas_or_seconds() -> None:
    assert microseconds(timedelta(milliseconds=1)) == microseconds(0.001) == 1000
    assert (Retention(ttl=2).ttl_us, Retention(max_age=timedelta(days=1)).max_age_us) == (2_000_000, 86_400_000_000)
    assert (Retention().ttl_us, Retention().max_age_us) == (None, None)


def test_what_was_freed_adds_up() -> None:
    assert Freed(threads=1, bytes=2) + Freed(checkpoints=3, blobs=4, bytes=5) == Freed(
        threads=1, checkpoints=3, blobs=4, bytes=7
    )


def test_a_page_is_a_sequence_with_a_cursor() -> None:
    page = Page([1, 2], "next")
    assert (list(page), len(page), page.items, page.next) == ([1, 2], 2, [1, 2], "next")
    assert repr(page) == "Page([1, 2], next='next')"
    assert Page[int]([]).next is None


def test_times_are_exact_to_the_microsecond() -> None:
    assert from_microseconds(1).microsecond == 1
    assert from_microseconds(-1).isoformat() == "1969-12-31T23:59:59.999999+00:00"


def test_errors_carry_what_a_program_needs() -> None:
    assert holdfast.LeaseHeld("m", owner="me", remaining=1.5).remaining == 1.5
    assert holdfast.Corrupt("m", record="row 5").record == "row 5"
    assert holdfast.KeyUnavailable("m", key_id="k").key_id == "k"
    assert holdfast.UnstorableValue("m", path="state").path == "state"
    assert holdfast.UnknownType("m", name="Plan").name == "Plan"
    assert holdfast.SecretInState("m", path="p").path == "p"
    failed = holdfast.StepTimeout("took too long", type="TimeoutError")
    assert isinstance(failed, holdfast.StepFailed)
    assert (failed.type, failed.message, str(failed)) == ("TimeoutError", "took too long", "took too long")
    now = datetime(2026, 11, 16, tzinfo=UTC)
    request = holdfast.Request(id="t#1.ab", thread_id="t", name="ok", payload=None, choices=(), created_at=now)
    assert holdfast.Suspended("m", thread_id="t", requests=(request,)).requests == (request,)


def test_a_checkpoint_is_decoded_at_its_first_use_and_once() -> None:
    from holdfast.stores.memory import MemoryBackend
    from holdfast.sync import Store

    calls: list[Part] = []

    def restore(part: Part) -> Any:
        calls.append(part)
        return {"a": 1}

    with Store(MemoryBackend()) as store:
        info = store.save("t", 1).info
    checkpoint = holdfast.Checkpoint(lambda: info.id, lambda: info, restore)
    assert not calls
    assert checkpoint.state is checkpoint.state
    assert calls == ["state"]
    assert info.checkpoint_id == info.id
    assert checkpoint != 5


@pytest.mark.parametrize(("value", "text"), [(1, "an int"), (None, "a NoneType")])
def test_a_message_names_a_class_with_its_article(value: Any, text: str) -> None:
    with pytest.raises(InvalidId, match=f"must be a str, got {text}"):
        thread_key(b"", value)
