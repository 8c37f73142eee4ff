"""A page of a listing. It holds its items, never a lock, a cursor or a connection."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Page(Generic[T]):
    """Items, and `next`: an opaque cursor for the page after this one, or None on the last page."""

    __slots__ = ("items", "next")

    def __init__(self, items: list[T], next: str | None = None) -> None:  # noqa: A002  the public name of the field
        self.items = items
        self.next = next

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.items!r}, next={self.next!r})"
