"""A seal gives back what was sealed, or says that it was damaged; never anything else."""

import os
import random
import subprocess
import sys
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.codec import Limits, Seal, compression
from holdfast.codec import seal as seal_module
from holdfast.records.errors import ConfigurationError, Corrupt, KeyUnavailable, LimitExceeded

KEY = bytes(range(32))
TEXT = b"the agent said that it would, and then it did not; " * 400
THRESHOLD = seal_module.COMPRESS_FROM
chance = random.Random(5)
SEALS = {
    "plain": Seal(),
    "uncompressed": Seal(compress=False),
    "encrypted": Seal(key=KEY, entropy=chance.randbytes),
    "encrypted uncompressed": Seal(compress=False, key=KEY, entropy=chance.randbytes),
}


@pytest.mark.parametrize("seal", SEALS.values(), ids=SEALS)
@given(data=st.one_of(st.binary(), st.binary(min_size=1).map(lambda part: part * THRESHOLD)), identity=st.binary())
@settings(max_examples=settings().max_examples * 2 // 5, deadline=None)
def test_what_was_sealed_comes_back(seal: Seal, data: bytes, identity: bytes) -> None:
    assert seal.unseal(seal.seal(data, identity), identity, record="row 1") == data


def test_only_longer_bytes_are_compressed_and_only_if_it_pays() -> None:
    seal = Seal()
    assert len(TEXT) > THRESHOLD
    assert seal.seal(TEXT[: THRESHOLD - 1], b"") == b"\x0f" + TEXT[: THRESHOLD - 1]
    assert len(seal.seal(TEXT[:THRESHOLD], b"")) < THRESHOLD // 2
    noise = chance.randbytes(2 * THRESHOLD)
    assert seal.seal(noise, b"") == b"\x0f" + noise
    assert Seal(compress=False).seal(TEXT, b"") == b"\x0f" + TEXT
    assert Seal(compress=False).unseal(seal.seal(TEXT, b""), b"", record="r") == TEXT


@pytest.mark.parametrize("data", [b"", b"short", TEXT])
def test_no_byte_of_an_encrypted_record_can_be_changed(data: bytes) -> None:
    seal = SEALS["encrypted"]
    sealed = seal.seal(data, b"id")
    for position in range(len(sealed)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(sealed)
            damaged[position] ^= flip
            with pytest.raises(Corrupt) as caught:
                seal.unseal(bytes(damaged), b"id", record="row 7")
            assert caught.value.record == "row 7"


def test_no_encrypted_record_can_be_cut_or_extended() -> None:
    seal = SEALS["encrypted"]
    sealed = seal.seal(TEXT, b"id")
    for damaged in [sealed[:length] for length in range(len(sealed))] + [sealed + b"\x00"]:
        with pytest.raises(Corrupt):
            seal.unseal(damaged, b"id", record="r")


def test_no_encrypted_record_can_stand_in_for_another() -> None:
    seal = SEALS["encrypted"]
    sealed = seal.seal(b"data", b"thread 1, row 1")
    for identity in (b"thread 1, row 2", b"", b"thread 1, row 1 "):
        with pytest.raises(Corrupt, match="another record"):
            seal.unseal(sealed, identity, record="r")


def test_another_key_opens_nothing() -> None:
    sealed = SEALS["encrypted"].seal(b"data", b"id")
    with pytest.raises(Corrupt):
        Seal(key=b"x" * 32, entropy=chance.randbytes).unseal(sealed, b"id", record="r")


@pytest.mark.parametrize("plain", ["plain", "uncompressed"])
def test_where_encryption_is_asked_for_plaintext_is_refused(plain: str) -> None:
    with pytest.raises(Corrupt, match="not encrypted"):
        SEALS["encrypted"].unseal(SEALS[plain].seal(TEXT, b"id"), b"id", record="r")


def test_without_a_key_encrypted_bytes_ask_for_one() -> None:
    with pytest.raises(KeyUnavailable, match="keys="):
        Seal().unseal(SEALS["encrypted"].seal(TEXT, b"id"), b"id", record="r")


def test_the_same_bytes_are_never_sealed_the_same_way_twice() -> None:
    seal = SEALS["encrypted"]
    assert len({seal.seal(b"data", b"id") for _ in range(50)}) == 50
    assert TEXT[:20] not in SEALS["encrypted uncompressed"].seal(TEXT, b"id")


@pytest.mark.parametrize("sealed", [b"", b"\x00", b"\x0e", b"\x34abc", b"\xff"])
def test_an_unknown_tag_is_damage(sealed: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        Seal().unseal(sealed, b"", record="blob 3")
    assert caught.value.record == "blob 3"


def test_a_damaged_tag_never_passes_for_another() -> None:
    seal = Seal()
    for sealed in (seal.seal(b"x", b""), seal.seal(TEXT, b"")):
        for bit in range(8):
            with pytest.raises(Corrupt):
                seal.unseal(bytes((sealed[0] ^ 1 << bit,)) + sealed[1:], b"", record="r")


def test_damaged_compressed_bytes_are_damage_or_other_bytes_for_the_digest_to_find() -> None:
    seal = Seal()
    sealed = seal.seal(TEXT, b"")
    for position in range(1, len(sealed)):
        for bit in range(8):
            damaged = bytearray(sealed)
            damaged[position] ^= 1 << bit
            try:
                seal.unseal(bytes(damaged), b"", record="r")
            except (Corrupt, LimitExceeded):
                continue
    for cut in (sealed[:-1], sealed + b"\x00", sealed + sealed[1:], sealed[:5]):
        with pytest.raises(Corrupt):
            seal.unseal(cut, b"", record="r")


def test_a_bomb_is_refused_before_it_expands() -> None:
    bomb = b"\x33" + compression.compress(bytes(50 * 2**20))
    assert len(bomb) < 10_000
    with pytest.raises(LimitExceeded, match="would expand to 52428800"):
        Seal().unseal(bomb, b"", record="r")
    with pytest.raises(LimitExceeded):
        Seal(limits=Limits(size=100)).unseal(Seal().seal(TEXT, b""), b"", record="r")


def test_what_is_sealed_densely_takes_less_room_and_is_read_the_same() -> None:
    words = b"".join(sha256(bytes((at % 251,))).hexdigest()[: at % 60].encode() for at in range(4000))
    dense, plain = (Seal().seal(words, b"", dense=dense) for dense in (True, False))
    assert len(dense) < len(plain)
    assert Seal().unseal(dense, b"", record="r") == Seal().unseal(plain, b"", record="r") == words


def test_a_bomb_that_hides_its_size_is_refused() -> None:
    compression.compress(b"")
    compressor = compression._spares[compression._LEVEL].pop()
    hidden = compressor.compress(bytes(10_000)) + compressor.flush()
    with pytest.raises(Corrupt, match="without their length"):
        Seal().unseal(b"\x33" + hidden, b"", record="r")


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    short, long = compression.compress(bytes(300)), compression.compress(bytes(400))
    assert short[:5] == long[:5]
    lie = long[:5] + short[5:7] + long[7:]
    with pytest.raises(Corrupt):
        Seal().unseal(b"\x33" + lie, b"", record="r")


def test_what_compresses_beyond_the_limit_is_kept_as_it_is() -> None:
    zeros = bytes(10 * 2**20)
    sealed = Seal().seal(zeros, b"")
    assert sealed == b"\x0f" + zeros
    assert Seal().unseal(sealed, b"", record="r") == zeros
    assert len(Seal().seal(bytes(2**20), b"")) < 1000


def test_a_seal_shows_no_key() -> None:
    assert repr(SEALS["encrypted"]) == "Seal(compress=True, encrypted=True)"
    assert SEALS["encrypted"].encrypted
    assert not Seal().encrypted


def test_a_key_needs_its_size_and_a_source_of_nonces() -> None:
    with pytest.raises(ConfigurationError, match="32 bytes"):
        Seal(key=b"short", entropy=chance.randbytes)
    with pytest.raises(ConfigurationError, match="entropy"):
        Seal(key=KEY)


def test_encryption_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigurationError, match=r"extra 'crypto': pip install '\.\[crypto\]' in its checkout"):
        Seal(key=KEY, entropy=chance.randbytes)


def test_importing_the_codec_loads_nothing_that_only_some_programs_need() -> None:
    code = (  # without the package's own __init__, which loads the other rooms
        "import sys, types, importlib.util as finder; room = types.ModuleType('holdfast');"
        "room.__path__ = finder.find_spec('holdfast').submodule_search_locations;"
        "sys.modules['holdfast'] = room; import holdfast.codec; print(*sys.modules)"
    )
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    loaded = set(run.stdout.split())
    assert "holdfast.codec.seal" in loaded
    assert "holdfast.stores" not in loaded
    assert not {"pydantic", "cryptography", "asyncio", "secrets", "hashlib", "hmac"} & loaded
    assert not [name for name in loaded if "zstd" in name]
