"""A list that grows by one item a row, as nearly all do: what such rows have in common is looked up once.

The items are kept beside the cells, and become part of them with the next row of another kind, or when they are read.
"""

import msgspec

from holdfast.codec.limits import Limits
from holdfast.history.cells import Document, Path
from holdfast.history.format import encode_append
from holdfast.history.weight import bytes_to_spare

MAX_INDEX = 255
"""Cells beyond this position cannot use the short form of an append."""


class Growth(msgspec.Struct, eq=False, gc=False):
    """The items appended to one list of a document. Logs share it, and each knows how many of them are its own."""

    path: Path
    start: bytes
    """How the body of each such row begins, before sealing."""
    cells: Document
    """The document without any of them."""
    items: list[bytes]
    spare: int
    """How many bytes more the state can surely take."""
    _asked: tuple[int, Document]
    """The document that was asked for last, and how many of the items it has. One value: any thread may ask."""

    def plus(self, item: bytes, length: int) -> "Growth":
        """With one more after the first `length`. Only the longest of the logs may let it grow in place."""
        if len(self.items) == length:
            self.items.append(item)
            self.spare -= len(item)
            return self
        items, spare = [*self.items[:length], item], self.spare - len(item)
        return Growth(self.path, self.start, self.cells, items, spare, (0, self.cells))

    def document(self, length: int) -> Document:
        """The document with the first `length` items in their place, for a reader on any thread."""
        known, document = self._asked
        if known != length:
            cell = self.cells[self.path].copy().with_all(self.items[:length])
            document = {**self.cells, self.path: cell}
            self._asked = (length, document)
        return document

    def folded(self, length: int) -> Document:
        """The same for the writer of the next row, at the cost of the items: with the lock of the log in hand."""
        return {**self.cells, self.path: self.cells[self.path].with_all(self.items[:length])}


def growth_of(document: Document, index: dict[Path, int], path: Path, limits: Limits) -> Growth | None:
    """For the list at this path; None if it is not there, or an item cannot be appended without another look at it."""
    cell = document.get(path)
    if cell is None or not cell.count or cell.kind != "list" or index[path] > MAX_INDEX:
        return None
    spare = bytes_to_spare(document, path[0], limits)
    return Growth(path, encode_append(index[path], b""), document, [], spare, (0, document))
