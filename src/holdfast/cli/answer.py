"""What a command has to say: a document for programs, lines for people, and an exit code."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast.cli.screen import Screen

Lines = Callable[[Screen], Iterable[str]]


class Answer(NamedTuple):
    """`document` is printed with `--json`, else what `lines` makes of a screen."""

    document: Any
    lines: Lines
    exit_code: int = 0
