"""Pages that can fetch the page after them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.records.thread import Page

T = TypeVar("T")


class AsyncPage(Page[T]):
    """A page of the awaitable API."""

    __slots__ = ("_fetch",)

    def __init__(self, items: list[T], next: str | None, fetch: Callable[[str], Awaitable["AsyncPage[T]"]]) -> None:  # noqa: A002
        super().__init__(items, next)
        self._fetch = fetch

    async def next_page(self) -> "AsyncPage[T] | None":
        """The page after this one, None after the last."""
        return None if self.next is None else await self._fetch(self.next)
