"""The journal as it is stored: entries of every version of the format, read as those of today."""

from typing import Any, TypeAlias

import msgspec

from holdfast.codec import encode
from holdfast.history.cells import Cell, Document
from holdfast.history.entries import JOURNAL, Answered, AnyEntry, Asked, Entry, Noted
from holdfast.records.errors import Corrupt
from holdfast.records.ranges import UNDECODABLE, Count, Moment
from holdfast.records.usage import PICODOLLARS, UsageSnapshot


class Turned(Entry, frozen=True, tag="turn"):
    """A turn of a session, as it was stored before turns became notes."""

    key: str
    fingerprint: bytes
    value: bytes
    role: str
    phase: str
    model: str
    usage: tuple[Count, Count, Count, Count, Count]
    cost: int | None
    at: Moment
    took: int
    type: str = ""
    message: str = ""
    failed: tuple[str, ...] = ()
    streamed: bool = False

    def renewed(self) -> Noted:
        """The same as a note."""
        usage = msgspec.structs.asdict(UsageSnapshot(*self.usage))
        content: dict[str, Any] = {
            "model": self.model,
            "role": self.role,
            "phase": self.phase,
            "usage": {name: count for name, count in usage.items() if count},
            "_fingerprint": self.fingerprint,
            "_streamed": self.streamed,
        }
        if self.cost is not None:
            content["cost_usd"] = self.cost / PICODOLLARS  # also if it is nothing: that is a price
        error = "" if self.value else f"{self.type}: {self.message}"
        return Noted(
            "turn",
            encode({name: value for name, value in content.items() if value or name == "cost_usd"}),
            self.at,
            self.key,
            self.value,
            error,
            self.took,
            self.failed,
            self.key or "turn",
            "llm_output",
        )


class HandedOver(Entry, frozen=True, tag="hand"):
    """A hand-over of a session, as it was stored before hand-overs became notes."""

    key: str
    role: str
    phase: str
    at: Moment

    def renewed(self) -> Noted:
        """The same as a note."""
        content = encode({"role": self.role, "phase": self.phase})
        return Noted("hand_over", content, self.at, self.key, action="hand_over")


_Stored: TypeAlias = AnyEntry | Turned | HandedOver
_decode = msgspec.msgpack.Decoder(list[_Stored]).decode


def read_entries(document: Document) -> list[AnyEntry]:
    """The entries in a document, in their order."""
    cell = document.get(JOURNAL)
    if cell is None:
        return []
    entries = parsed_entries(cell)
    _check_answers(entries)
    return entries


def parsed_entries(cell: Cell) -> list[AnyEntry]:
    """The entries in a part of a journal."""
    try:
        stored = _decode(cell.encoded())
    except UNDECODABLE as error:
        raise Corrupt(f"the journal cannot be read: {error}", record="journal") from error
    return [each.renewed() if isinstance(each, Turned | HandedOver) else each for each in stored]


def _check_answers(entries: list[AnyEntry]) -> None:
    """Refuse an answer to a request that was not asked before it."""
    asked_count = 0
    for entry in entries:
        if isinstance(entry, Asked):
            asked_count += 1
        elif isinstance(entry, Answered) and not 1 <= entry.number <= asked_count:
            raise Corrupt(
                f"the journal cannot be read: it has {asked_count} requests, and an answer to request {entry.number}",
                record="journal",
            )
