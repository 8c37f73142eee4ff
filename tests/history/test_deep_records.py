"""Records that nest deeper than any of ours are damage, found before a decoder recurses into them."""

from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from history.scenes import binding
from holdfast.codec import split
from holdfast.history.cells import Cell, rope
from holdfast.history.entries import JOURNAL, read_entries
from holdfast.history.format import decode_script
from holdfast.records.errors import CodecError, Corrupt
from holdfast.records.head import DIGEST_BYTES, Head, decode_head

DEEP = b"\x91" * 100_000 + b"\xc0"


def test_a_head_with_a_deep_field_of_a_newer_version_is_damaged() -> None:
    fields = len(Head.__struct_fields__)
    content = msgspec.msgpack.encode(Head())[3:]
    data = b"\xdc" + (fields + 1).to_bytes(2, "big") + content + DEEP
    with pytest.raises(Corrupt, match="nests deeper than 16 levels"):
        decode_head(b"t", data + sha256(b"t" + data).digest()[:DIGEST_BYTES])


def test_the_body_of_a_row_that_is_deep_is_damaged() -> None:
    header: Any = SimpleNamespace(seq=1)
    with pytest.raises(Corrupt, match="nests deeper than 16 levels"):
        decode_script(binding(), header, DEEP)


def test_a_journal_with_a_deep_entry_cannot_be_read() -> None:
    entry = b"\x9f\xa5begin\xa1k\xc4\x00\x01\x02\xa0\xc4\x00" + DEEP * 8
    cell = Cell("list", 1, len(entry), rope([entry]), rope([entry]))
    with pytest.raises(Corrupt, match="journal cannot be read"):
        read_entries({JOURNAL: cell})


def test_items_that_are_deep_are_not_taken_apart() -> None:
    with pytest.raises(CodecError, match="nests deeper"):
        split("list", 1, DEEP)
