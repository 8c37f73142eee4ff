"""The bytes of rows: what is written is read, and what is damaged is found out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from history.scenes import Thread, binding
from holdfast.history.binding import place_of
from holdfast.history.cells import Ref
from holdfast.history.format import (
    APPEND,
    DELTA_FLAGS,
    FORMAT,
    KEYFRAME_FLAGS,
    Header,
    Script,
    all_blob_ids,
    decode_append,
    decode_header,
    decode_script,
    encode_append,
    encode_header,
    encode_script,
)
from holdfast.history.meta import Meta, decode_meta, encode_meta
from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.rows import Row

BOUND = binding()
PLAIN = b"\x0f" + encode_meta(Meta(1_800_000_000_000_000))[:3]
"""What the sealed metadata of a plain row begins with: all of it but the last seven bytes of the time."""


def row_of(header: Header, seq: int = 7, base: int = 5) -> Row:
    return Row(seq, base, b"", encode_header(header, place_of(seq, seq - base), BOUND.check_start), b"body")


headers = st.builds(
    Header,
    flags=st.sampled_from([DELTA_FLAGS, KEYFRAME_FLAGS, DELTA_FLAGS | 2]),
    body_size=st.integers(0, 1 << 40) | st.integers(0, 1 << 17),
    meta=st.binary(max_size=30) | st.binary(min_size=6, max_size=8).map(PLAIN.__add__),
    since=st.integers(0, 7),
    parent=st.binary(max_size=8),
).flatmap(
    lambda header: st.lists(st.binary(min_size=16, max_size=16), max_size=3).map(
        lambda ids: Header(
            header.flags,
            header.body_size,
            header.meta,
            header.since,
            b"".join(ids),
            tuple(range(len(ids))),
            header.parent,
        )
    )
)


@given(headers)
def test_a_header_comes_back(header: Header) -> None:
    found = decode_header(BOUND, row_of(header))
    for field in ("flags", "body_size", "meta", "since", "blobs", "blob_sizes", "parent"):
        assert getattr(found, field) == getattr(header, field), field
    assert (found.seq, found.back, found.base, found.checkpoint) == (7, 2, 5, 7 - header.since)
    assert found.is_checkpoint is (header.since == 0)
    assert found.flags >> 4 == FORMAT


@given(headers, st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_of_a_header_is_found_out(header: Header, at: int, bit: int) -> None:
    row = row_of(header)
    damaged = bytearray(row.header)
    damaged[at % len(damaged)] ^= 1 << bit
    with pytest.raises(Corrupt, match="row 7 of 't'"):
        decode_header(BOUND, replace(row, header=bytes(damaged)))


@pytest.mark.parametrize(
    ("seq", "base"), [(8, 5), (7, 4), (8, 6), (0, 0), (-1, -1), (1 << 41, 1 << 41), (7, 8), (7, -(1 << 30))]
)
def test_a_header_belongs_to_its_place(seq: int, base: int) -> None:
    with pytest.raises(Corrupt, match="checksum"):
        decode_header(BOUND, replace(row_of(Header(DELTA_FLAGS, 4, b"")), seq=seq, base=base))


@pytest.mark.parametrize("other", [binding("other"), binding("t", b"j" * 16)], ids=["thread", "life"])
def test_a_header_belongs_to_its_thread_and_life(other: Any) -> None:
    with pytest.raises(Corrupt):
        decode_header(other, row_of(Header(DELTA_FLAGS, 4, b"")))


@pytest.mark.parametrize("array", [True, False])
def test_a_newer_format_is_refused_clearly(array: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = (FORMAT + 1) << 4 | APPEND
    monkeypatch.setattr("holdfast.history.format.APPEND_FLAGS", flags)
    with pytest.raises(IncompatibleCheckpoint, match="upgrade"):
        decode_header(BOUND, row_of(Header(flags, 4, b"" if array else PLAIN + bytes(7))))


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (Header(DELTA_FLAGS | APPEND, 0xFFFF, PLAIN + b"created"), 14),
        (Header(DELTA_FLAGS | APPEND, 0x10000, PLAIN + b"created"), 24),
        (Header(DELTA_FLAGS, 431, PLAIN + b"created"), 22),
        (Header(DELTA_FLAGS | APPEND, 431, PLAIN + b"created", since=1), 28),
    ],
)
def test_the_header_of_a_plain_append_is_short(header: Header, size: int) -> None:
    assert len(row_of(header).header) == size


def test_a_header_that_is_no_header_is_damage() -> None:
    from zlib import crc32

    data = b"\xc0"
    header = data + crc32(data, crc32(place_of(7, 2), BOUND.check_start)).to_bytes(4, "big")
    with pytest.raises(Corrupt):
        decode_header(BOUND, Row(7, 5, b"", header, b""))


def ref(number: int) -> Ref:
    return Ref(bytes((number,)) * 16, number, number + 1, number + 100, number + 200)


operations = st.one_of(
    st.none(), st.binary(max_size=9), st.tuples(st.integers(0, 99), st.integers(0, 99)), st.integers(0, 3).map(ref)
)
scripts = st.builds(
    Script,
    st.none() | st.lists(st.lists(st.text(max_size=3), min_size=1, max_size=3).map(tuple), max_size=3, unique=True),
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from(["value", "list", "map"]),
            st.integers(0, 99),
            st.lists(operations, max_size=4),
        ),
        max_size=3,
    ),
)


@given(scripts)
def test_a_script_comes_back(script: Script) -> None:
    content, refs = encode_script(script)
    header = Header(DELTA_FLAGS, 0, b"", 0, b"".join(refs), tuple(each.stored for each in refs.values()))
    assert decode_script(BOUND, header, content) == script
    assert set(header.blob_ids) == set(refs)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x01",
        b"\x93\xc0\x90",
        b"\x93\xc0\x91\x93\x00\x09\x00\x90",
        b"\x93\xc0\x91\x94\x00\x00\x00\x93\x05\x00\x01\x90",
        b"\x93\xc0\x91\x94\x00\x00\x00\x94\x00\x00\x00\x00\x90",
        b"\x92\xc0\x90",
    ],
)
def test_a_body_that_is_no_script_is_damage(body: bytes) -> None:
    with pytest.raises(Corrupt, match="row 0 of 't'"):
        decode_script(BOUND, Header(DELTA_FLAGS, 0, b""), body)


@given(st.integers(0, 255), st.binary(min_size=1, max_size=20))
def test_an_append_in_its_short_form_comes_back(index: int, item: bytes) -> None:
    assert decode_append(encode_append(index, item)) == (index, item)


def test_all_blobs_of_several_rows_are_found() -> None:
    one, other = b"a" * 16, b"b" * 16
    found = all_blob_ids(
        [
            Header(DELTA_FLAGS, 0, b"", 0, one, (1,)),
            Header(DELTA_FLAGS, 0, b""),
            Header(DELTA_FLAGS, 0, b"", 0, other + one, (1, 2)),
        ]
    )
    assert found == {one, other}


@pytest.mark.parametrize(
    "meta",
    [
        Meta(5),
        Meta(5, 0),
        Meta(5, 3, "failed"),
        Meta(5, 1, "idle", "event"),
        Meta(5, 1, "idle", "manual", "post_llm"),
        Meta(5, 2, "working", "error", "error", b"\x80", "other@3.00000000"),
        Meta(-5, 0, origin="other@1.0"),
    ],
)
def test_metadata_comes_back_without_its_defaults(meta: Meta) -> None:
    header = Header(DELTA_FLAGS, 0, BOUND.seal(encode_meta(meta), 7, b"m"), seq=7)
    assert decode_meta(BOUND, header) == meta


def test_a_plain_save_carries_few_bytes_of_metadata() -> None:
    assert len(encode_meta(Meta(1_700_000_000_000_000))) <= 10


def test_damaged_metadata_is_damage() -> None:
    with pytest.raises(Corrupt, match="row 7"):
        decode_meta(BOUND, Header(DELTA_FLAGS, 0, BOUND.seal(b"\x91\xa1x", 7, b"m"), seq=7))


def test_a_small_row_of_a_small_change_is_small() -> None:
    thread = Thread()
    thread.save({"n": 1, "text": "x" * 50})
    written = thread.save({"n": 2, "text": "x" * 50})
    assert len(written.row.header) + len(written.row.body) < 60
