"""Progress of long work, on standard error, if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Progress = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A function that moves a bar; it does nothing where nobody would see the bar."""
    if quiet or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def move(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield move
