"""Where the rows of a thread lie after a swap: its stretches, and the segments that have to be put for them. Pure."""

from collections.abc import Iterable

from holdfast.stores.objects.names import SegmentName
from holdfast.stores.objects.segments import StoredRow, Stretch, portions, segment


class Layout:
    """Filled in the order of the log. Segments are made in that folder, for the record of that version."""

    def __init__(self, folder: str, version: int) -> None:
        self.stretches: list[Stretch] = []
        self.segments: dict[SegmentName, bytes] = {}
        self._folder = folder
        self._version = version

    def keep(self, name: SegmentName) -> None:
        """A segment stays, or comes, as it is. It begins a stretch unless the last one leads on to it."""
        before = self._before(name.first)
        first = name.first
        if before and before.end.hex() == name.previous:
            first = self.stretches.pop().first
        self.stretches.append(Stretch(first, name.last, bytes.fromhex(name.digest)))

    def settle(self, rows: Iterable[StoredRow]) -> None:
        """Rows that have no segment, or whose segment is cut, get new ones."""
        for portion in portions(rows):
            before = self._before(portion[0].seq)
            name, content = segment(self._folder, portion, self._version, before.end if before else b"")
            self.segments[name] = content
            self.keep(name)

    def _before(self, seq: int) -> Stretch | None:
        """The stretch that ends right before that row."""
        return self.stretches[-1] if self.stretches and self.stretches[-1].last == seq - 1 else None
