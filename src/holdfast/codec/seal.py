"""The seal: bytes to bytes, compressed, then encrypted if there is a key. The first byte says which.

Encryption binds the bytes to the identity of their record, so that no record can replace another. What stays readable
is authenticated by a MAC, under a derived key. Nonces come from the caller's entropy.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from holdfast.codec.limits import DEFAULT, Limits
from holdfast.records.errors import ConfigurationError, Corrupt, KeyUnavailable, missing_extra

Entropy = Callable[[int], bytes]
"""Returns that many random bytes, fit for keys and nonces."""

# Any two tags differ in four bits, so a damaged one is not mistaken for another.
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
# and a restore reads hundreds of small records; the next keyframe packs them into larger ones and compresses those.
COMPRESS_FROM: Final = 4096


class Seal:
    """Seals and unseals the records of one thread.

    With `key` (32 bytes) it encrypts with AES-256-GCM under nonces from `entropy`, and refuses bytes that are not
    encrypted. Without `compress` it compresses nothing, but still reads compressed bytes.
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
            raise ConfigurationError("a Seal with a key needs `entropy`")
        self._compress = compress
        self._cipher = None if key is None else cipher(key)
        self._mac_key = b"" if key is None else derived(key, b"mac")
        self._entropy = entropy
        self.limits = limits

    def __repr__(self) -> str:
        return f"Seal(compress={self._compress}, encrypted={self._cipher is not None})"

    @property
    def encrypted(self) -> bool:
        """True if the seal encrypts, and refuses bytes that are not encrypted."""
        return self._cipher is not None

    def seal(self, data: bytes, identity: bytes, *, dense: bool = False) -> bytes:
        """Seal a record. `unseal` needs the same `identity`.

        `dense` takes more time to compress, for less space.
        """
        tag, body = self._packed(data, dense)
        if self._cipher is None or self._entropy is None:
            return tag + body
        tag, nonce = _ENCRYPTED[tag], self._entropy(NONCE_SIZE)
        sealed: bytes = self._cipher.encrypt(nonce, body, tag + identity)
        return tag + nonce + sealed

    def unseal(self, data: bytes, identity: bytes, *, record: str) -> bytes:
        """Unseal a record. `record` names it in errors.

        Raises Corrupt if encrypted bytes, or their identity, are not those that were sealed, or if bytes should be
        encrypted and are not; KeyUnavailable if they are encrypted and this seal has no key; LimitExceeded if they
        would expand beyond the limits. Without a key, only the record's digest detects damage.
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
        """Return the authentication code of bytes that stay readable. Only meaningful with a key."""
        return keyed_digest(self._mac_key, data)[:MAC_SIZE]

    def _packed(self, data: bytes, dense: bool) -> tuple[bytes, bytes]:
        """Compress if that saves at least a sixteenth, and if the result can be read within the limits."""
        if self._compress and len(data) >= COMPRESS_FROM:
            compression = _compression()
            frame = compression.compress(data, dense=dense)
            is_worth_it = len(frame) <= len(data) - len(data) // 16
            if is_worth_it and compression.may_expand(len(frame), len(data), self.limits):
                return _ZSTD, frame
        return RAW, data

    def _decrypted(self, tag: bytes, body: bytes, identity: bytes, record: str) -> tuple[bytes, bytes]:
        if tag not in _DECRYPTED:
            raise Corrupt(f"{record} is not encrypted, but the store was opened with keys=", record=record)
        plain = decrypt(self._cipher, body, tag + identity)
        if plain is None:
            raise Corrupt(f"{record}: encrypted bytes are damaged, or belong to another record", record=record)
        return _DECRYPTED[tag], plain


@cache
def _compression() -> Any:
    from holdfast.codec import compression

    return compression


def cipher(key: bytes) -> Any:
    """Return AES-256-GCM under a key; raises ConfigurationError for a key of another size, or without cryptography."""
    if len(key) != KEY_SIZE:
        raise ConfigurationError(f"a key must have {KEY_SIZE} bytes, got {len(key)}")
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise missing_extra("encryption needs the cryptography package", "crypto") from error
    return AESGCM(key)


def keyed_digest(key: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA-256 of a message."""
    import hmac

    return hmac.digest(key, message, "sha256")


def derived(key: bytes, purpose: bytes) -> bytes:
    """Return a separate key for a purpose: one block of HKDF-Expand (RFC 5869); uniform keys need no extraction."""
    return keyed_digest(key, b"holdfast " + purpose + b"\x01")


def decrypt(aes: Any, data: bytes, associated: bytes) -> bytes | None:
    """Decrypt a nonce and ciphertext; return None if they, the key or the associated data do not match."""
    from cryptography.exceptions import InvalidTag

    try:
        plain: bytes = aes.decrypt(data[:NONCE_SIZE], data[NONCE_SIZE:], associated)
    except (InvalidTag, ValueError):
        return None
    return plain
