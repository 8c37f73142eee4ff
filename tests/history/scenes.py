"""Logs without a store: states become rows, and rows states."""

from typing import Any

from holdfast.codec.seal import Seal
from holdfast.history.binding import Binding
from holdfast.history.log import Log, Revision, Written
from holdfast.history.meta import Meta, encode_meta
from holdfast.history.restore import fill, fold, read_state
from holdfast.history.state_cells import draft_state
from holdfast.history.tuning import Tuning
from holdfast.records.rows import Row

TIGHT = Tuning(inline_max=64, keyframe_rows=6, keyframe_rows_max=9, keyframe_bytes=600, pack_max=256, small_piece=16)


def binding(thread_id: str = "t", incarnation: bytes = b"i" * 16) -> Binding:
    return Binding(b"\0" + thread_id.encode(), incarnation, Seal())


class Thread:
    """A thread's rows and blobs, as a backend would keep them."""

    def __init__(self, tuning: Tuning = TIGHT, bound: Binding | None = None) -> None:
        self.log = Log(bound or binding(), tuning, {})
        self.rows: dict[int, Row] = {}
        self.blobs: dict[bytes, bytes] = {}

    def save(self, state: Any, *, fresh: bool = False) -> Written:
        revision = Revision(self.log)
        draft, leaves = draft_state(state, self.log.document)
        revision.replace_state(draft, leaves)
        written = revision.write(encode_meta(Meta(1_000, 1)), fresh=fresh)
        self.rows[written.row.seq] = written.row
        self.blobs |= written.blobs
        self.log = written.log
        return written

    def leading_to(self, seq: int) -> list[Row]:
        return [self.rows[at] for at in range(self.rows[seq].base, seq + 1)]

    def state(self, seq: int) -> Any:
        bound = self.log.binding
        return read_state(bound, fill(fold(bound, self.leading_to(seq), seq), self.blobs, self.log.tuning).document)
