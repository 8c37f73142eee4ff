"""Thread keys in an object store: none reaches another, and all are listed."""

import re

import pytest

from holdfast.records.head import encode_head
from holdfast.records.identity import thread_key
from holdfast.stores.backend import Listing
from holdfast.stores.objects import ObjectBackend
from object_map import ObjectMap
from stores.object_scenes import (
    OTHER,
    SPACE,
    THREAD,
    TOMBSTONE,
    Crashed,
    Fault,
    head,
    make,
    names,
    play,
    process,
    row,
    steps,
)

HOSTILE = [
    b"\x00\x00",
    b"\x00/",
    b"\x00../../head",
    b"\x00a\x00b",
    b"\x00A",
    b"\x01aa",
    b"\x02aa",
    b"\xff\xfe\xfd",
    b"\x80" + "ü".encode() * 64 + b"x" * 512,
    THREAD,
    THREAD + b"/head",
    THREAD + b"\x00",
]


def test_hostile_keys_reach_nothing_but_their_own_thread() -> None:
    kept = ObjectMap()
    backend = process(kept)
    for number, key in enumerate(HOSTILE):
        play(backend, [make(None, head(1, token=number), row(1, str(number)), thread=key)])
        assert backend.post(key, f"../{number}", b"v")
    for number, key in enumerate(HOSTILE):
        assert backend.heads([key]) == [encode_head(key, head(1, token=number))]
        assert backend.rows(key, 1) == [row(1, str(number))]
        assert list(backend.inbox(key)) == [f"../{number}"]
    assert all(re.fullmatch("[0-9a-z/-]{1,250}", name) for name in kept.kept)


def test_every_prefix_of_a_key_lists_exactly_the_keys_that_begin_with_it() -> None:
    backend = process(ObjectMap())
    play(backend, [make(None, head(1), thread=key) for key in HOSTILE])
    for prefix in {key[:length] for key in HOSTILE for length in range(min(len(key), 12) + 1)}:
        found = [key for key, _ in backend.threads(prefix, (), (), None, 100).heads]
        assert sorted(found) == sorted(key for key in HOSTILE if key.startswith(prefix))


@pytest.mark.parametrize("limit", [1, 7, 24, 49, 50, 51, 1200])
def test_pages_of_threads_show_each_once_and_end_without_an_empty_page(limit: int) -> None:
    kept = ObjectMap()
    keys = sorted(thread_key(SPACE, str(number)) for number in range(100))
    swaps = [
        make(None, head(1, thread=key, status=("idle", "failed")[at % 2]), thread=key) for at, key in enumerate(keys)
    ]
    process(kept).swap(swaps)
    backend = ObjectBackend(kept.client(), parallel=4)
    seen: list[bytes] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = backend.threads(SPACE, ("failed",), (), cursor, limit)
        seen += [key for key, _ in page.heads]
        cursor, pages = page.next, pages + 1
    assert sorted(seen) == keys[1::2]
    assert pages == -(-50 // limit)
    backend.close()


def test_listings_filter_by_labels_and_leave_out_deleted_threads_and_mere_posts() -> None:
    backend = process(ObjectMap())
    play(backend, [make(None, head(1, labels=(b"x",)), thread=THREAD), make(None, head(1), thread=OTHER)])
    play(backend, [make(None, TOMBSTONE, thread=b"\x00c")])
    backend.post(b"\x00d", "k", b"v")
    assert backend.heads([b"\x00d"]) == [None]
    assert [key for key, _ in backend.threads(SPACE, (), ((b"x", b"y"),), None, 9).heads] == [THREAD]
    assert len(backend.threads(SPACE, (), (), None, 9).heads) == 2


def test_a_marker_without_a_thread_lists_nothing() -> None:
    kept = ObjectMap()
    with pytest.raises(Crashed):
        process(kept, Fault(Crashed(), lambda it: it.endswith("/head"))).swap(steps(1))
    assert names(kept, "spaces/")
    assert process(kept).threads(SPACE, (), (), None, 9) == Listing([], None)
    assert process(kept).check() == []
