"""How things look to a person: widths, colours, times, sizes and tables. Nothing here reads or writes a store."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from textwrap import wrap
from typing import Any, Final

import click
import msgspec

from holdfast.cli.text import cut, printable, width_of

GAP: Final = 2
NARROWEST: Final = 6
COLOURS: Final = {
    "working": "cyan",
    "idle": "blue",
    "input_required": "yellow",
    "complete": "green",
    "failed": "red",
    "cancelled": "magenta",
    "open": "yellow",
    "answered": "green",
    "expired": "red",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
    "added": "green",
    "removed": "red",
    "changed": "yellow",
    "completed": "green",
    "suspended": "yellow",
}
UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


class Column(msgspec.Struct, frozen=True):
    """A column of a table: its title, and whether it gives way when the screen is narrow, or holds numbers."""

    title: str
    gives_way: bool = False
    number: bool = False


class Screen(msgspec.Struct, frozen=True):
    """What is printed on: how wide, in colour or not, with times in full or relative to `now`."""

    width: int = 80
    narrow: bool = True
    """True for a terminal, where lines are cut to its width; a file or a pipe takes them whole."""
    colour: bool = False
    utc: bool = False
    now: datetime = datetime.now(UTC)

    def word(self, word: str) -> str:
        """A word of our vocabulary, in its colour."""
        return self.style(word.replace("_", " "), fg=COLOURS.get(word))

    def style(self, text: str, **looks: Any) -> str:
        """The text with looks, where there is colour."""
        return click.style(text, **looks) if self.colour else text

    def heading(self, text: str) -> str:
        """A heading."""
        return self.style(text, bold=True)

    def faint(self, text: str) -> str:
        """Text that may be overlooked."""
        return self.style(text, dim=True)

    def fit(self, text: str, width: int | None = None) -> str:
        """Any text as one printable line that fits the screen."""
        return self.cut(printable(text), self.width if width is None else width)

    def cut(self, text: str, width: int) -> str:
        """Printable text, shortened to that many columns where the screen is narrow."""
        return cut(text, width) if self.narrow else text

    def wrapped(self, text: str, width: int) -> list[str]:
        """Any text as printable lines of that many columns, or as one where the screen is not narrow."""
        return wrap(printable(text), width) if self.narrow else [printable(text)]

    def time(self, moment: datetime | None) -> str:
        """A moment: how long ago or ahead, or in full."""
        if moment is None:
            return "-"
        if self.utc:
            return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        away = self.now - moment
        if abs(away) < timedelta(seconds=1):
            return "now"
        return f"{span(away)} ago" if away > timedelta() else f"in {span(-away)}"

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Iterable[str]:
        """A table that fits: columns that may give way are cut. Cells are plain text; statuses get their colours."""
        cells = [[printable(cell) for cell in row] for row in rows]
        widths = _fitted(columns, cells, self.width if self.narrow else None)
        yield self.heading(_line(columns, [column.title for column in columns], widths).rstrip())
        for row in cells:
            yield self._row(columns, row, widths).rstrip()

    def _row(self, columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
        padded = [_pad(column, cell, width) for column, cell, width in zip(columns, row, widths, strict=True)]
        looks = [COLOURS.get(cell.replace(" ", "_"), COLOURS.get(cell)) for cell in row]
        coloured = [self.style(text, fg=look) if look else text for text, look in zip(padded, looks, strict=True)]
        return (" " * GAP).join(coloured)

    def facts(self, pairs: Iterable[tuple[str, str]]) -> Iterable[str]:
        """Names and values, one pair per line, values aligned and cut to fit; a value may be empty: it is left out."""
        kept = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in kept), default=0) + GAP
        for name, value in kept:
            yield self.faint(name.ljust(width)) + value


def span(duration: timedelta) -> str:
    """A duration in its largest unit: `41 s`, `3 h`."""
    seconds = int(duration.total_seconds())
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{duration.total_seconds() * 1000:.0f} ms"


def size(count: int) -> str:
    """A number of bytes: `312 B`, `4.7 KB`."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def counted(count: int, noun: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _fitted(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int | None) -> list[int]:
    widths = [
        max([width_of(column.title), *(width_of(row[number]) for row in cells)])
        for number, column in enumerate(columns)
    ]
    excess = 0 if room is None else sum(widths) + GAP * (len(widths) - 1) - room
    while excess > 0:
        flexible = [number for number, column in enumerate(columns) if column.gives_way and widths[number] > NARROWEST]
        if not flexible:
            break
        widest = max(flexible, key=widths.__getitem__)
        widths[widest] -= 1
        excess -= 1
    return widths


def _pad(column: Column, text: str, width: int) -> str:
    shown = cut(text, width)
    space = " " * (width - width_of(shown))
    return space + shown if column.number else shown + space


def _line(columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = [_pad(column, text, width) for column, text, width in zip(columns, texts, widths, strict=True)]
    return (" " * GAP).join(padded)
