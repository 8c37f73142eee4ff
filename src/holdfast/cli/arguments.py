"""Parse what people type: JSON, durations, names with values, limits and keys."""

import json
import os
import re
import sys
from base64 import b64decode
from binascii import a2b_hex
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import click

from holdfast.codec.keys import KeyRing
from holdfast.codec.limits import Limits
from holdfast.records.errors import ConfigurationError
from holdfast.stores.private_files import open_to_read

UNITS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d|w|)")
SIZES: Final = {None: 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LIMIT: Final = re.compile(r"([a-z_]+)=([0-9]{1,18})(KiB|MiB|GiB)?")
KEY_VARIABLE: Final = "HOLDFAST_KEY"
KEY_BYTES: Final = 32
KEY_FORMS: Final = f"one key of {KEY_BYTES} bytes in hex or base64, or a line ID:KEY for each key"


def json_value(text: str) -> Any:
    """Parse any JSON value; `@FILE` reads it from a file, `-` from standard input."""
    try:
        return json.loads(_content(text))
    except OSError as error:
        raise click.BadParameter(f"cannot read {text[1:]}: {error.strerror}") from error
    except RecursionError as error:
        raise click.BadParameter("this JSON nests too deep") from error
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not JSON ({error}); text needs quotes: '\"text\"'") from error


def _content(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if text.startswith("@"):
        with open(text[1:], encoding="utf-8") as file:  # noqa: PTH123  a plain name is what the user gave
            return file.read()
    return text


def duration(text: str) -> timedelta:
    """Parse a duration such as `90s`, `15min`, `24h`, `7d`."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; write it as 90s, 15min, 24h or 7d")
    try:
        return timedelta(seconds=float(found[1]) * UNITS[found[2]])
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is too long") from error


def named_text(text: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Parse `NAME=VALUE`; errors call it `form`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not {form}")
    return name, value


def named_json(text: str) -> tuple[str, Any]:
    """Parse `KEY=JSON`."""
    name, value = named_text(text, "KEY=JSON")
    return name, json_value(value)


def parse_limits(text: str | None) -> Limits | None:
    """Parse limits such as `memory=1GiB,depth=100`; the others have their defaults."""
    return None if text is None else Limits(**dict(_parse_limit(part.strip()) for part in text.split(",")))


def _parse_limit(part: str) -> tuple[str, int]:
    found = LIMIT.fullmatch(part)
    if found is None or found[1] not in Limits.__struct_fields__:
        names = ", ".join(Limits.__struct_fields__)
        raise ConfigurationError(
            f"--limits: {part!r:.60} is not a limit; give NAME=NUMBER, where the number may end in KiB, MiB or GiB"
            f" and the name is one of {names}, as in memory=1GiB,size=512MiB"
        )
    return found[1], int(found[2]) * SIZES[found[3]]


def find_keys(path: str | None) -> KeyRing | None:
    """Return the keys in the file at `path`, or in HOLDFAST_KEY; None if neither is given."""
    if path is None:
        text = os.environ.get(KEY_VARIABLE)
        return parse_keys(text.encode(), f"${KEY_VARIABLE}") if text else None
    try:
        with open_to_read(path) as file:
            return parse_keys(file.read(), path)
    except OSError as error:
        raise ConfigurationError(f"cannot read the key file {path}: {error.strerror}") from error


def parse_keys(data: bytes, origin: str) -> KeyRing:
    """Parse one key, which decrypts all that it encrypted under any id, or a ring: the first key writes, all read.

    Errors name a line, and never show it.
    """
    key = data if len(data) == KEY_BYTES else parse_key(data)
    if key is not None:
        return KeyRing.of(key)
    keys: dict[str, bytes] = {}
    for number, line in _key_lines(data, origin):
        key_id, _, text = line.rpartition(":")
        key = parse_key(text.encode())
        if key is None:
            raise ConfigurationError(f"line {number} of {origin} holds no key; give {KEY_FORMS}")
        name = key_id.strip() or KeyRing.of(key).write
        if name in keys:
            raise ConfigurationError(f"line {number} of {origin}: a second key has the id {name!r}; rename one")
        keys[name] = key
    if not keys:
        raise ConfigurationError(f"{origin} holds no key; give {KEY_FORMS}")
    return KeyRing(keys, write=next(iter(keys)))


def _key_lines(data: bytes, origin: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither blank nor a comment, with their numbers."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{origin} holds no key; give {KEY_FORMS}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def parse_key(data: bytes) -> bytes | None:
    """Parse a key in hex or base64 (also its alphabet for URLs), over any number of lines; None if it is neither."""
    text = b"".join(data.split())
    with suppress(ValueError):
        if len(key := a2b_hex(text)) == KEY_BYTES:
            return key
    with suppress(ValueError):
        padded = text.translate(bytes.maketrans(b"-_", b"+/")) + b"=" * (-len(text) % 4)
        if len(key := b64decode(padded, validate=True)) == KEY_BYTES:
            return key
    return None
