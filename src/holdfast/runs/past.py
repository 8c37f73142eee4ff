"""The checkpoints behind a run's thread: which ones lead to where it is now, and what it was at each. Blocking."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.codec import decode
from holdfast.history.journal import Journal
from holdfast.history.meta import decode_meta
from holdfast.history.restore import read_state
from holdfast.records.errors import NotFound

if TYPE_CHECKING:
    from holdfast.runs.run import Run

BEGINNING = 0
PAGE = 64
TARGET = "rolled_back_to"
"""In the metadata of a checkpoint that a restore wrote: the checkpoint it is like."""


class Pruned(Exception):
    """The checkpoints that a restore needs were pruned."""


class Then(msgspec.Struct, frozen=True):
    """What a thread was at a checkpoint."""

    seq: int
    state: Any
    journal: Journal

    @property
    def step_count(self) -> int:
        """How many steps it had."""
        return self.journal.step_count

    @property
    def rollback_count(self) -> int:
        """How often it had been rolled back."""
        return len(self.journal.rollbacks)


class Past:
    """The checkpoints of a run's thread, read as needed."""

    def __init__(self, run: "Run") -> None:
        self._reader = run._reader
        self._thread = run._ledger.claim.thread
        self._binding = run._ledger.claim.log.binding

    def lineage(self, start: int | None = None) -> Iterator[int]:
        """Checkpoints from `start` (the newest by default) back; without those that a restore undid, or wrote."""
        skip_to, before = start, None if start is None else start + 1
        while True:
            seen, headers = self._reader.survey(self._thread, before, PAGE)
            for header in headers:
                hidden = not header.is_checkpoint or not seen.head.marks.shows(header.seq)
                if hidden or (skip_to is not None and header.seq > skip_to):
                    continue
                target = self._target(decode_meta(self._binding, header).metadata)
                if target is None:
                    yield header.seq
                skip_to = header.seq - 1 if target is None else target
            if len(headers) < PAGE:
                return
            before = headers[-1].seq

    @staticmethod
    def _target(metadata: bytes) -> int | None:
        found: int | None = decode(metadata).get(TARGET) if metadata else None
        return found

    def at(self, seq: int, life: str = "") -> Then:
        """The thread at a checkpoint; at the beginning, empty. `NotFound` if it is gone."""
        if seq == BEGINNING and not life:
            return Then(seq, {}, Journal())
        log = self._reader.load_checkpoint(self._thread, seq, life).log
        return Then(seq, read_state(self._binding, log.document), Journal.of(log.document))

    def at_latest(self, seq: int) -> Then:
        """The thread at a checkpoint; if it was pruned since it was chosen, at the newest one before it."""
        try:
            return self.at(seq)
        except NotFound:
            older = next(self.lineage(seq), None)
            return self.at(self.beginning() if older is None else older)

    def beginning(self) -> int:
        """The beginning, where no checkpoint is left that would do; `Pruned` if there may have been one."""
        if self._reader.survey(self._thread, None, 1)[0].head.marks.floor > 1:
            raise Pruned("the checkpoints before the failing step were pruned, so that there is none to go back to")
        return BEGINNING
