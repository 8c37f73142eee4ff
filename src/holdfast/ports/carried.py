"""Work that threads of our pools do in the context of their caller: how a run knows its branches there."""

from collections.abc import Callable
from contextvars import Context, copy_context
from threading import get_ident
from typing import TypeVar

T = TypeVar("T")


class Carried:
    """One piece of work, from when it is submitted until it is done."""

    def __init__(self) -> None:
        self.context = copy_context()
        self.thread = 0

    def run(self, function: Callable[[], T]) -> T:
        """Call the function on this thread, in the caller's context."""
        self.thread = get_ident()
        return self.context.run(function)


under_way: set[Carried] = set()


def other_work(belongs: Callable[[Context], bool]) -> list[Carried]:
    """The work that is under way, on other threads than this, in a context that belongs to somebody."""
    return [work for work in list(under_way) if work.thread != get_ident() and belongs(work.context)]
