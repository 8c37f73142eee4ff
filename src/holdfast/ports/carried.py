"""Work on threads of our pools, with the context of its caller: so a run finds its branches there."""

from collections.abc import Callable
from contextvars import Context, copy_context
from threading import get_ident
from typing import TypeVar

T = TypeVar("T")


class Carried:
    """A call, from when it is submitted until it is done."""

    def __init__(self) -> None:
        self.context = copy_context()
        self.thread = 0

    def run(self, function: Callable[[], T]) -> T:
        """Call the function on this thread, in the caller's context."""
        self.thread = get_ident()
        return self.context.run(function)


under_way: set[Carried] = set()


def other_work(belongs: Callable[[Context], bool]) -> list[Carried]:
    """Return the unfinished work on other threads whose context belongs to the caller's run."""
    return [work for work in list(under_way) if work.thread != get_ident() and belongs(work.context)]
