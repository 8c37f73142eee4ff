"""What the demo prints: few words, aligned, in colour where there is any."""

import sys
from collections.abc import Sequence

CODES = {"good": "32", "bad": "31", "faint": "2", "loud": "1", "plain": ""}


class Stage:
    """Standard output, or nothing if the audience is a program."""

    def __init__(self, *, colour: bool = False, quiet: bool = False) -> None:
        self._colour = colour
        self._quiet = quiet

    def say(self, text: str = "", look: str = "plain") -> None:
        """A line."""
        if not self._quiet:
            sys.stdout.write(self._painted(text, look) + "\n")
            sys.stdout.flush()

    def act(self, title: str, note: str = "") -> None:
        """Something new begins."""
        self.say()
        self.say(self._painted(title, "loud") + (f"  {note}" if note else ""))

    def line(self, label: str, amount: str, text: str, look: str = "good") -> None:
        """A name, how long or how many, and what there is to say about it."""
        self.say(f"  {self._painted(f'{label:<9}', look)} {amount:>7}  {text}")

    def row(self, label: str, amount: str, text: str, *, bad: bool) -> None:
        """As `line`, with room for a long name; what is bad stands out."""
        self.line(f"{label:<19}", amount, self._painted(text, "bad" if bad else "good"), "plain")

    def progress(self, text: str) -> None:
        """How far it is; on a terminal only, and always in the same place. Nothing takes it away."""
        if self._colour and not self._quiet:
            sys.stdout.write(f"\r{text}\033[K")
            sys.stdout.flush()

    def verdict(self, text: str, *, ok: bool) -> None:
        """How it ended."""
        self.say()
        self.say(self._painted(text, "good" if ok else "bad"))

    def commands(self, title: str, commands: Sequence[tuple[str, str]]) -> None:
        """What to try next: commands to paste, and what they do."""
        width = max(len(command) for command, _ in commands if len(command) < 48)
        self.act(title)
        for command, note in commands:
            self.say(f"  {command:<{width}}  {self._painted(note, 'faint')}".rstrip())

    def _painted(self, text: str, look: str) -> str:
        return f"\033[{CODES[look]}m{text}\033[0m" if self._colour and text and CODES[look] else text


def seconds(value: float) -> str:
    """A duration as people read it: `1.5 s`, `0.8 ms`."""
    if value >= 0.1:
        return f"{value:.1f} s"
    return f"{value * 1e3:.1f} ms"


def counted(count: int, noun: str) -> str:
    """`1 key`, `2 keys`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def money(cents: int) -> str:
    """An amount."""
    return f"{cents / 100:.2f}"
