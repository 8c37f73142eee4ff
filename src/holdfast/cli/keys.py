"""The key of an encrypted store: from a file or the environment, as hex or base64 of 32 bytes."""

import os
from base64 import b64decode
from binascii import Error
from pathlib import Path

from holdfast.records.errors import ConfigurationError

VARIABLE = "HOLDFAST_KEY"
KEY_BYTES = 32


def find_key(path: str | None) -> bytes | None:
    """The key in the file at `path`, or in HOLDFAST_KEY; None if neither is given."""
    if path is None:
        text = os.environ.get(VARIABLE)
        return parse_key(text.encode(), f"${VARIABLE}") if text else None
    try:
        return parse_key(Path(path).read_bytes(), path)
    except OSError as error:
        raise ConfigurationError(f"cannot read the key file {path}: {error.strerror}") from error


def parse_key(data: bytes, origin: str) -> bytes:
    """A key of 32 bytes: as they are, in hex, or in base64 (also the one for URLs)."""
    if len(data) == KEY_BYTES:
        return data
    text = b"".join(data.split())
    for decode in (_from_hex, _from_base64):
        key = decode(text)
        if key is not None and len(key) == KEY_BYTES:
            return key
    raise ConfigurationError(f"{origin} holds no key: {KEY_BYTES} bytes in hex or base64 are needed")


def _from_hex(text: bytes) -> bytes | None:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None


def _from_base64(text: bytes) -> bytes | None:
    try:
        return b64decode(text.translate(bytes.maketrans(b"-_", b"+/")) + b"=" * (-len(text) % 4), validate=True)
    except (Error, ValueError):
        return None
