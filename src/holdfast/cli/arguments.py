"""What people type, as values: JSON, durations, names with values. Each refusal is a usage error."""

import json
import re
import sys
from datetime import timedelta
from typing import Any, Final

import click

UNITS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d|w|)")


def json_value(text: str) -> Any:
    """Any JSON value; `@FILE` reads it from a file, `-` from standard input."""
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
    """A duration such as `90s`, `15min`, `24h`, `7d`."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; one looks like 90s, 15min, 24h or 7d")
    try:
        return timedelta(seconds=float(found[1]) * UNITS[found[2]])
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is too long") from error


def named_text(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def named_json(text: str) -> tuple[str, Any]:
    """`KEY=JSON`."""
    name, value = named_text(text)
    return name, json_value(value)
