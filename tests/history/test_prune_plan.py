"""What a retention keeps, which rows that needs, and that nothing else goes or stays."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.history.format import DELTA_FLAGS, KEYFRAME_FLAGS, Header
from holdfast.history.prune import Dated, kept_by_rules, needed_rows, new_marks, plan, thread_expires
from holdfast.records.head import Head, Marks
from holdfast.records.retention import Retention


@st.composite
def logs(draw: Any) -> list[Header]:
    """Headers 1..n, with keyframes, journal rows and blobs here and there."""
    headers: list[Header] = []
    base = 1
    for seq in range(1, draw(st.integers(1, 25)) + 1):
        is_keyframe = seq == 1 or draw(st.integers(0, 3)) == 0
        base = seq if is_keyframe else base
        since = 0 if seq == 1 else draw(st.sampled_from([0, 0, 0, 1]))
        names = draw(st.lists(st.integers(0, 9), max_size=3, unique=True))
        blobs = b"".join(bytes((name,)) * 16 for name in names)
        flags = KEYFRAME_FLAGS if is_keyframe else DELTA_FLAGS
        headers.append(Header(flags, 1, b"", since, blobs, (1,) * len(names), seq=seq, back=seq - base))
    return headers


def head_of(headers: list[Header], marks: Marks) -> Head:
    last = headers[-1]
    return Head(seq=last.seq, base=last.base, checkpoint=last.checkpoint, marks=marks)


def visible_of(headers: list[Header], marks: Marks) -> list[Dated]:
    return [
        Dated(header.seq, 100 - header.seq)
        for header in reversed(headers)
        if header.is_checkpoint and marks.shows(header.seq)
    ]


retentions = st.builds(
    Retention,
    keep_last=st.none() | st.integers(1, 6),
    max_age=st.none() | st.floats(0, 0.0001),
    keep_pinned=st.booleans(),
)


@given(
    logs(),
    st.lists(st.integers(1, 25), max_size=4),
    st.lists(st.integers(1, 25), max_size=4),
    st.lists(retentions, min_size=1, max_size=3),
)
def test_repeated_prunes_keep_exactly_what_they_should(
    headers: list[Header], pins: list[int], hides: list[int], several: list[Retention]
) -> None:
    """Whatever was pinned, hidden and pruned before: what stays is visible, restorable and complete."""
    checkpoints = {header.seq for header in headers if header.is_checkpoint}
    hidden = tuple(sorted(set(hides) & checkpoints - {max(checkpoints)}))
    marks = Marks(0, tuple(sorted(set(pins) & checkpoints - set(hidden))), hidden)
    for retention in several:
        head, visible = head_of(headers, marks), visible_of(headers, marks)
        expected = kept_by_rules(retention, visible, max(checkpoints))
        if retention.keep_pinned:
            expected |= {dated.seq for dated in visible if dated.seq in marks.pinned}
        after = new_marks(retention, marks, visible, max(checkpoints))
        assert {dated.seq for dated in visible_of(headers, after)} == expected
        found = plan(headers, head, after)
        assert found.hidden_count == len(visible) - len(expected)
        gone = {seq for start, stop in found.rows for seq in range(start, stop)}
        left = [header for header in headers if header.seq not in gone]
        for header in left:
            if header.seq in expected or header.seq == head.seq:
                assert not gone & set(range(header.base, header.seq + 1)), "a row that is needed would go"
        referred = {blob for header in left for blob in header.blob_ids}
        assert not referred & set(found.blobs), "a blob that is referred to would go"
        assert referred | set(found.blobs) == {blob for header in headers for blob in header.blob_ids}
        headers, marks = left, after


def test_the_newest_always_stays() -> None:
    visible = [Dated(9, 10**9), Dated(5, 10**9)]
    assert kept_by_rules(Retention(max_age=1), visible, 9) == {9}
    assert kept_by_rules(Retention(keep_last=1), visible, 9) == {9}
    assert kept_by_rules(Retention(), visible, 9) == {9, 5}
    assert kept_by_rules(Retention(keep_last=1), visible, 5) == {9, 5}, "the state of the thread is that of 5"


def test_rows_of_the_head_are_needed_though_nothing_is_visible() -> None:
    head = Head(seq=9, base=7, checkpoint=3)
    assert needed_rows([], head, Marks(floor=9)) == {7, 8, 9}


@pytest.mark.parametrize(
    ("retention", "status", "updated_at", "owner", "expected"),
    [
        (Retention(), "idle", 0, "", False),
        (Retention(delete_on=("failed",)), "failed", 1000, "", True),
        (Retention(delete_on=("failed",)), "idle", 1000, "", False),
        (Retention(ttl=1), "idle", 0, "", True),
        (Retention(ttl=1), "idle", 1, "", False),
        (Retention(ttl=1, delete_on=("working",)), "working", 0, "run", False),
    ],
)
def test_a_thread_expires_by_status_or_age_but_never_while_held(
    retention: Retention, status: str, updated_at: int, owner: str, expected: bool
) -> None:
    head = Head(seq=1, status=status, updated_at=updated_at, owner=owner, expires_at=2_000_000)
    assert thread_expires(retention, head, 1_000_000) is expected
