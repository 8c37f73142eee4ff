"""The seal: bytes to bytes, compressed, then encrypted if there is a key. The first byte says which.

Encryption binds the bytes to the identity of their record, so that no record can stand in for another. What stays
readable is authenticated by a MAC, under a key derived from the same one. Nonces come from the caller's entropy.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from holdfast.codec.limits import DEFAULT, Limits
from holdfast.records.errors import ConfigurationError, Corrupt, KeyUnavailable

Entropy = Callable[[int], bytes]
"""A source of that many random bytes, fit for keys and nonces."""

# Any two tags differ in four bits, so a damaged one never passes for another.
RAW: Final = b"\x0f"
_ZSTD: Final = b"\x33"
_ENCRYPTED_RAW: Final = b"\x55"
_ENCRYPTED_ZSTD: Final = b"\x69"
_ENCRYPTED: Final = {RAW: _ENCRYPTED_RAW, _ZSTD: _ENCRYPTED_ZSTD}
_DECRYPTED: Final = {_ENCRYPTED_RAW: RAW, _ENCRYPTED_ZSTD: _ZSTD}

KEY_SIZE: Final = 32
NONCE_SIZE: Final = 12
MAC_SIZE: Final = 16

# Records below this stay as they are. At 512 bytes zstd saves about a half, but takes 9 us to write and 18 us to read,
# and a restore reads hundreds of small records; they are packed into larger ones, and compressed, at the next keyframe.
COMPRESS_FROM: Final = 4096


class Seal:
    """How one thread's records are sealed: `seal` and `unseal`, inverse to each other.

    With `key` (32 bytes) they are encrypted with AES-256-GCM under nonces from `entropy`, and bytes that are not
    encrypted are refused. Without `compress` nothing is compressed; compressed bytes are read all the same.
    """

    __slots__ = ("_cipher", "_compress", "_entropy", "_mac_key", "limits")

    def __init__(
        self,
        *,
        compress: bool = True,
        key: bytes | None = None,
        entropy: Entropy | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        if key is not None and entropy is None:
            raise ConfigurationError("an encrypting Seal needs a source of entropy")
        self._compress = compress
        self._cipher = None if key is None else cipher(key)
        self._mac_key = b"" if key is None else derived(key, b"mac")
        self._entropy = entropy
        self.limits = limits

    def __repr__(self) -> str:
        return f"Seal(compress={self._compress}, encrypted={self._cipher is not None})"

    @property
    def encrypted(self) -> bool:
        """True if the seal encrypts, and refuses what is not encrypted."""
        return self._cipher is not None

    def seal(self, data: bytes, identity: bytes, *, dense: bool = False) -> bytes:
        """The sealed bytes of a record. `identity` must be given again, the same, to `unseal` them.

        `dense` takes more time to compress them, for less room.
        """
        tag, body = self._packed(data, dense)
        if self._cipher is None or self._entropy is None:
            return tag + body
        tag, nonce = _ENCRYPTED[tag], self._entropy(NONCE_SIZE)
        sealed: bytes = self._cipher.encrypt(nonce, body, tag + identity)
        return tag + nonce + sealed

    def unseal(self, data: bytes, identity: bytes, *, record: str) -> bytes:
        """The bytes of a record. `record` names it in errors.

        Raises Corrupt if encrypted bytes, or their identity, are not those that were sealed, or if bytes should be
        encrypted and are not; KeyUnavailable if they are encrypted and this seal has no key; LimitExceeded if they
        would expand beyond the limits. Without a key, damage to the bytes is for the record's digest to find.
        """
        tag, body = data[:1], data[1:]
        if self._cipher is not None:
            tag, body = self._decrypted(tag, body, identity, record)
        elif tag in _DECRYPTED:
            raise KeyUnavailable(f"{record} is encrypted; open the store with keys=")
        if tag == RAW:
            return body
        if tag != _ZSTD:
            raise Corrupt(f"{record}: sealed bytes begin with an unknown tag", record=record)
        plain: bytes = _compression().decompress(body, self.limits, record)
        return plain

    def mac(self, data: bytes) -> bytes:
        """The authentication code of bytes that are stored as they are. Only a seal with a key has one to give."""
        return keyed_digest(self._mac_key, data)[:MAC_SIZE]

    def _packed(self, data: bytes, dense: bool) -> tuple[bytes, bytes]:
        """Compressed if that saves a sixteenth at least, and if it could be read back within the limits."""
        if self._compress and len(data) >= COMPRESS_FROM:
            compression = _compression()
            frame = compression.compress(data, dense=dense)
            is_worth_it = len(frame) <= len(data) - len(data) // 16
            if is_worth_it and compression.may_expand(len(frame), len(data), self.limits):
                return _ZSTD, frame
        return RAW, data

    def _decrypted(self, tag: bytes, body: bytes, identity: bytes, record: str) -> tuple[bytes, bytes]:
        if tag not in _DECRYPTED:
            raise Corrupt(f"{record} is not encrypted, and this store takes only what is", record=record)
        plain = decrypt(self._cipher, body, tag + identity)
        if plain is None:
            raise Corrupt(f"{record}: encrypted bytes are damaged, or belong to another record", record=record)
        return _DECRYPTED[tag], plain


@cache
def _compression() -> Any:
    from holdfast.codec import compression

    return compression


def cipher(key: bytes) -> Any:
    """AES-256-GCM under a key; raises ConfigurationError for a key of another size, or without cryptography."""
    if len(key) != KEY_SIZE:
        raise ConfigurationError(f"a key must be {KEY_SIZE} bytes, not {len(key)}")
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError("encryption needs the cryptography package: pip install 'holdfast[crypto]'") from error
    return AESGCM(key)


def keyed_digest(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256."""
    import hmac

    return hmac.digest(key, message, "sha256")


def derived(key: bytes, purpose: bytes) -> bytes:
    """A separate key for each purpose: HKDF-Expand (RFC 5869), one block; our keys are uniform, so no extraction."""
    return keyed_digest(key, b"holdfast " + purpose + b"\x01")


def decrypt(aes: Any, data: bytes, associated: bytes) -> bytes | None:
    """What a nonce and ciphertext hold; None if they, the key or the associated data are not as at the encryption."""
    from cryptography.exceptions import InvalidTag

    try:
        plain: bytes = aes.decrypt(data[:NONCE_SIZE], data[NONCE_SIZE:], associated)
    except (InvalidTag, ValueError):
        return None
    return plain
