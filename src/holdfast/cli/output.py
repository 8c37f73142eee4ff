"""What a command prints: lines for people, a JSON document for programs.

Ids and values come from anywhere, so only printable characters reach a terminal.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from math import isfinite
from textwrap import wrap
from typing import Any, Final, NamedTuple
from unicodedata import category, east_asian_width

import click
import msgspec

from holdfast.codec.opaque import Opaque
from holdfast.history.lazy_steps import LazySteps
from holdfast.records.shown import shown

HIDDEN: Final = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Categories of characters that a terminal obeys or does not show."""
GAP: Final = 2
NARROWEST: Final = 6
_WORDS: Final = {
    "green": ("complete", "completed", "answered", "ok", "added"),
    "yellow": ("input_required", "suspended", "open", "warn", "changed"),
    "red": ("failed", "expired", "fail", "removed"),
    "cyan": ("working",),
    "blue": ("idle",),
    "magenta": ("cancelled",),
}
COLOURS: Final = {word: colour for colour, words in _WORDS.items() for word in words}
UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
DRY_RUN: Final = "dry run: nothing was changed; add --yes to do it"


class Answer(NamedTuple):
    """What a command returns: a document for `--json`, lines for people (read only without `--json`), an exit code."""

    document: Any
    lines: Iterable[str]
    exit_code: int = 0


def printable(text: str) -> str:
    """Return the text with control characters, invisible ones and lone surrogates written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    escaped = (char.encode("unicode_escape").decode() if category(char) in HIDDEN else char for char in text)
    return "".join(escaped)


def width_of(text: str) -> int:
    """Return how many columns a printable text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if category(char) in {"Mn", "Me"}:
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1


def padded(text: str, width: int) -> str:
    """Fill the text with spaces up to a number of columns."""
    return text + " " * (width - width_of(text))


def cut(text: str, width: int) -> str:
    """Shorten the text to a number of columns, with an ellipsis."""
    if width_of(text) <= width:
        return text
    kept, taken = [], 0
    for char in text:
        taken += _columns(char)
        if taken > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def span(duration: timedelta) -> str:
    """Write a duration in its largest unit: `41 s`, `3 h`."""
    seconds = int(duration.total_seconds())
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{duration.total_seconds() * 1000:.0f} ms"


def size(count: int) -> str:
    """Write a number of bytes: `312 B`, `4.7 KB`."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def counted(count: int, noun: str) -> str:
    """Write a number of things: `1 thread`, `2 threads`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def plain(value: Any) -> Any:
    """Convert a value to dicts with str keys, lists, str, numbers, bool and None, without recursion. Not reversible.

    Tuples and sets become lists, times ISO 8601, decimals and ids text, bytes base64, objects their fields.
    """
    root = [value]
    sets: list[list[Any]] = []
    waiting: list[Any] = [root]
    for parts in waiting:  # grows while it is read
        for place, part in enumerate(parts) if type(parts) is list else list(parts.items()):
            parts[place] = made = _opened(part)
            if type(made) in {list, dict}:
                waiting.append(made)
                if isinstance(part, set | frozenset):
                    sets.append(made)
    for members in reversed(sets):
        members.sort(key=repr)
    return root[0]


def _opened(value: Any) -> Any:
    """Return a plain value, or a new list or dict of parts that are still to be converted."""
    if value is None or isinstance(value, bool):
        return value
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    return _fields(value)


def _fields(value: Any) -> Any:
    """Return the fields of an object, or its text if it has none."""
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(type(value), "model_fields"):
        return {str(name): field for name, field in vars(value).items()}
    try:
        return str(value)
    except ValueError:  # a number of more digits than Python writes
        return shown(value)


def _whole(value: int) -> Any:
    """Return an int, or its text in hex if it has more digits than Python writes."""
    text = shown(int(value))
    return text if "x" in text else int(value)


def _tuple(value: tuple[Any, ...]) -> Any:
    names = getattr(value, "_fields", None)
    return list(value) if names is None else dict(zip(names, value, strict=True))


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {key if type(key) is str else str(plain(key)): item for key, item in value.items()}


_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (Opaque, lambda value: {"class": value.name, "fields": value.content}),
    (Enum, lambda value: plain(value.value)),
    (str, str),
    (int, _whole),
    (float, lambda value: value if isfinite(value) else str(value)),
    (bytes | bytearray, lambda value: b64encode(value).decode()),
    (datetime | date | time, lambda value: value.isoformat()),
    (timedelta, lambda value: value.total_seconds()),
    (Mapping, _mapping),
    (tuple, _tuple),
    (list | set | frozenset, list),
    (LazySteps, LazySteps.all),
)


def dump(value: Any, indent: int | None = 2) -> str:
    """Write the value as a JSON document in ASCII, so that nothing in it controls a terminal."""
    return json.dumps(plain(value), indent=indent)


def inline(value: Any) -> str:
    """Write a value as JSON on one line."""
    return printable(json.dumps(plain(value), ensure_ascii=False))


def laid_out(value: Any) -> Iterable[str]:
    """Write a value as indented JSON, line by line."""
    return map(printable, json.dumps(plain(value), ensure_ascii=False, indent=2).split("\n"))


def noted(name: str, value: Any) -> str:
    """Write a piece of metadata: `name=value`, or `from → to` for a transition."""
    if name == "transition" and isinstance(value, dict) and {"from", "to"} == set(value):
        return f"{value['from']} → {value['to']}"
    return f"{name}={value if isinstance(value, str) else inline(value)}"


class Column(NamedTuple):
    """A column of a table. One that shrinks is cut where the screen is narrow; numbers are aligned right."""

    title: str
    shrinks: bool
    number: bool


def columns(*titles: str, shrinks: Sequence[str] = (), numbers: Sequence[str] = ()) -> list[Column]:
    """Make the columns of a table by their titles, with those that shrink and those that hold numbers."""
    return [Column(title, title in shrinks, title in numbers) for title in titles]


class Screen(msgspec.Struct, frozen=True):
    """What lines are printed on: its width, with or without colour, with times in UTC or relative to `now`."""

    width: int
    narrow: bool
    """True for a terminal, where lines are cut to its width; a file or a pipe gets whole lines."""
    colour: bool
    utc: bool
    now: datetime

    def word(self, word: str) -> str:
        """Show a status or verdict in its colour."""
        return self.style(word.replace("_", " "), fg=COLOURS.get(word.replace(" ", "_")))

    def style(self, text: str, **looks: Any) -> str:
        """Style the text, if the screen has colours."""
        return click.style(text, **looks) if self.colour else text

    def heading(self, text: str) -> str:
        """Make the text bold."""
        return self.style(text, bold=True)

    def faint(self, text: str) -> str:
        """Make the text faint."""
        return self.style(text, dim=True)

    def fit(self, text: str, width: int | None = None) -> str:
        """Make any text one printable line that fits the screen."""
        return self.cut(printable(text), self.width if width is None else width)

    def cut(self, text: str, width: int) -> str:
        """Shorten printable text to a number of columns, on a narrow screen."""
        return cut(text, width) if self.narrow else text

    def wrapped(self, text: str, width: int) -> list[str]:
        """Break any text into printable lines; into one where the screen is not narrow."""
        return wrap(printable(text), width) if self.narrow else [printable(text)]

    def value(self, indent: str, value: Any) -> str:
        """Show a value on one line behind an indent, cut to fit."""
        return indent + self.cut(inline(value), max(self.width - len(indent), 10))

    def time(self, moment: datetime | None) -> str:
        """Show a moment: relative to now, or in full."""
        if moment is None:
            return "-"
        if self.utc:
            return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        away = self.now - moment
        if abs(away) < timedelta(seconds=1):
            return "now"
        return f"{span(away)} ago" if away > timedelta() else f"in {span(-away)}"

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Iterable[str]:
        """Lay out a table; columns that shrink are cut to fit. Cells are plain text; statuses get their colours."""
        cells = [[printable(cell) for cell in row] for row in rows]
        titles = [column.title for column in columns]
        widths = _fitted(columns, [titles, *cells], self.width if self.narrow else None)
        yield self.heading((" " * GAP).join(_aligned(columns, titles, widths)).rstrip())
        for row in cells:
            looks = [COLOURS.get(cell.replace(" ", "_")) for cell in row]
            texts = zip(_aligned(columns, row, widths), looks, strict=True)
            yield (" " * GAP).join(self.style(text, fg=look) if look else text for text, look in texts).rstrip()

    def facts(self, pairs: Iterable[tuple[str, str]]) -> Iterable[str]:
        """List names and values, one pair per line; pairs with an empty value are left out."""
        kept = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in kept), default=0) + GAP
        return (self.faint(name.ljust(width)) + value for name, value in kept)


def _fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """Return the widths of columns, the widest of those that shrink cut until all fit."""
    widths = [max(map(width_of, cells)) for cells in zip(*rows, strict=True)]
    excess = 0 if room is None else sum(widths) + GAP * (len(widths) - 1) - room
    flexible = [number for number, column in enumerate(columns) if column.shrinks]
    while excess > 0 and flexible:
        widest = max(flexible, key=widths.__getitem__)
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _aligned(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for column, text, width in zip(columns, texts, widths, strict=True):
        shortened = cut(text, width)
        space = " " * (width - width_of(shortened))
        yield space + shortened if column.number else shortened + space


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error, if that is a terminal: call the function with what is done, and the total."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def move(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield move
