"""What the demo prints: short aligned lines, in colour on a terminal."""

from collections.abc import Sequence
from typing import Any

import click

LOOKS: dict[str, dict[str, Any]] = {
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "faint": {"dim": True},
    "loud": {"bold": True},
    "plain": {},
}


class Stage:
    """Prints to standard output, or nothing at all with `quiet`."""

    def __init__(self, *, colour: bool = False, quiet: bool = False) -> None:
        self._colour = colour
        self._quiet = quiet

    def say(self, text: str = "") -> None:
        """Print a line."""
        if not self._quiet:
            click.echo(text, color=self._colour)

    def act(self, title: str, note: str = "") -> None:
        """Begin a new part."""
        self.say(f"\n{click.style(title, bold=True)}" + (f"  {note}" if note else ""))

    def line(self, label: str, amount: str, text: str, look: str = "good") -> None:
        """Print a name, how long or how many, and a text."""
        self.say(f"  {click.style(f'{label:<9}', **LOOKS[look])} {amount:>7}  {text}")

    def row(self, label: str, amount: str, text: str, *, bad: bool) -> None:
        """Print a line with room for a long name, and the text in colour."""
        self.line(f"{label:<19}", amount, click.style(text, **LOOKS["bad" if bad else "good"]), "plain")

    def progress(self, text: str) -> None:
        """Overwrite the current line, on a terminal only."""
        if self._colour and not self._quiet:
            click.echo(f"\r{text}\033[K", nl=False, color=True)

    def verdict(self, text: str, *, ok: bool) -> None:
        """Print how it ended."""
        self.say(f"\n{click.style(text, **LOOKS['good' if ok else 'bad'])}")

    def commands(self, title: str, commands: Sequence[tuple[str, str]]) -> None:
        """Print commands to paste, and what they do."""
        width = max(len(command) for command, _ in commands if len(command) < 48)
        self.act(title)
        for command, note in commands:
            self.say(f"  {command:<{width}}  {click.style(note, dim=True)}" if note else f"  {command}")
