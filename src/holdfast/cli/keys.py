"""The keys of an encrypted store, from a file or the environment: one key, or a ring with a line `ID:KEY` for each.

A key is 32 bytes in hex or base64. The first of a ring writes, the others only read.
"""

import os
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator

from holdfast.codec.keys import KeyRing
from holdfast.records.errors import ConfigurationError
from holdfast.stores.private_files import open_to_read

VARIABLE = "HOLDFAST_KEY"
KEY_BYTES = 32
FORMS = f"one key of {KEY_BYTES} bytes in hex or base64, or a line ID:KEY for each key"


def find_keys(path: str | None) -> KeyRing | None:
    """The keys in the file at `path`, or in HOLDFAST_KEY; None if neither is given."""
    if path is None:
        text = os.environ.get(VARIABLE)
        return parse_keys(text.encode(), f"${VARIABLE}") if text else None
    try:
        with open_to_read(path) as file:
            return parse_keys(file.read(), path)
    except OSError as error:
        raise ConfigurationError(f"cannot read the key file {path}: {error.strerror}") from error


def parse_keys(data: bytes, origin: str) -> KeyRing:
    """One key without an id, which opens whatever it encrypted; or a ring. Errors name a line, and never show it."""
    key = data if len(data) == KEY_BYTES else parse_key(data)
    if key is not None:
        return KeyRing.of(key)
    keys: dict[str, bytes] = {}
    for number, line in _lines(data, origin):
        key_id, _, text = line.rpartition(":")
        key = parse_key(text.encode())
        if key is None:
            raise ConfigurationError(f"line {number} of {origin} holds no key; give {FORMS}")
        name = key_id.strip() or KeyRing.of(key).write
        if name in keys:
            raise ConfigurationError(f"line {number} of {origin}: there are two keys with the id {name!r}; rename one")
        keys[name] = key
    if not keys:
        raise ConfigurationError(f"{origin} holds no key; give {FORMS}")
    return KeyRing(keys, write=next(iter(keys)))


def _lines(data: bytes, origin: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank and not a comment, with their numbers."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{origin} holds no key; give {FORMS}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def parse_key(data: bytes) -> bytes | None:
    """A key in hex or in base64 (also the one for URLs), however it is broken into lines; None if it is none."""
    text = b"".join(data.split())
    for decode in (_from_hex, _from_base64):
        key = decode(text)
        if key is not None and len(key) == KEY_BYTES:
            return key
    return None


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
