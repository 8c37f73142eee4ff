"""The index columns of SQLite's table of threads: their numbers, and what listings find them by.

The heads are the truth: what differs from a head is damage.
"""

from collections.abc import Collection, Sequence
from hashlib import sha256

import msgspec

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.head import LOST_HEAD, Head, decode_head
from holdfast.records.identity import shown_id_of
from holdfast.stores.backend import readable_head

NUMBER_BITS = 28
WINDOW = 16
NO_HEAD_YET = b"\0"
"""Stored instead of a head while a thread has only messages."""
LATEST_BIRTH = (1 << 63) - 1
"""The largest integer that SQLite can compare with."""


def first_number(thread: bytes) -> int:
    """Return the first number to try for a thread: its hash, folded into the range of numbers."""
    return int.from_bytes(sha256(thread).digest()[:5], "big") % ((1 << NUMBER_BITS) - WINDOW)


def is_near(number: int, thread: bytes) -> bool:
    """True if a thread can have this number."""
    return 0 <= number - first_number(thread) < WINDOW


def listing_query(
    prefix: bytes, statuses: Collection[str], labels: Sequence[Collection[bytes]], cursor: str | None, limit: int
) -> tuple[str, list[object]]:
    """Return the query for a page and its parameters. It asks for `limit` + 1, to know if there is a next page."""
    older, births = _older_than(cursor)
    conditions = [older, "substr(thread, 1, ?) = ?"]
    parameters: list[object] = [*births, len(prefix), prefix]
    if statuses:
        conditions.append(f"status IN ({_marks(statuses)})")
        parameters += statuses
    else:
        conditions.append("status <> ''")
    for choices in labels:
        conditions.append(f"number IN (SELECT number FROM labels WHERE token IN ({_marks(choices)}))")  # noqa: S608
        parameters += choices
    where = " AND ".join(conditions)
    chosen = f"SELECT number FROM threads WHERE {where} ORDER BY birth DESC LIMIT ?"  # noqa: S608
    columns = f"typeof (birth), {BIRTH}, number, thread, head, status, labels, {IS_DATED}"
    sql = f"SELECT {columns} FROM heads WHERE number IN ({chosen}) ORDER BY birth DESC"  # noqa: S608
    return sql, [*parameters, limit + 1]


BIRTH = "CASE typeof (birth) WHEN 'text' THEN CAST (birth AS BLOB) ELSE birth END"
"""The birth as stored, even if it is text that Python cannot decode."""
IS_DATED = "typeof (birth) = 'integer' AND birth < 4611686018427387904"


def cursor_after(kind: str, birth: float | bytes) -> str:
    """Return the cursor after a thread. Births are integers; a birth that was changed is prefixed with its type."""
    return str(birth) if kind == "integer" else f"{kind}:{birth.hex() if isinstance(birth, bytes) else birth}"


def _older_than(cursor: str | None) -> tuple[str, list[object]]:
    """Return the condition for threads after this cursor, and its parameters; `ValueError` if it is not a cursor."""
    if cursor is None:
        return "true", []
    kind, colon, birth = cursor.rpartition(":")
    if not colon:
        return "birth < ?", [min(int(cursor), LATEST_BIRTH)]
    if kind == "real":
        return "birth < ?", [float(birth)]
    if kind not in {"text", "blob"}:
        raise ValueError(cursor)
    return f"birth < CAST (? AS {kind})", [bytes.fromhex(birth)]


def listed_head(number: int, thread: bytes, encoded: bytes | None, status: str, packed: bytes, is_dated: bool) -> bytes:
    """Return the head of a thread, or `LOST_HEAD` if its index columns differ from the head."""
    if encoded is None or not is_dated or not is_near(number, thread):
        return LOST_HEAD
    head = Head() if encoded == NO_HEAD_YET else readable_head(thread, encoded)
    agrees = head is None or (head.listed_as, pack_tokens(head.labels)) == (status, packed)
    return encoded if agrees else LOST_HEAD


def problem(columns: tuple[int, bytes, bytes | None, str, bytes, bool]) -> str:
    """Describe what is wrong with a thread's head or columns; empty if nothing is."""
    number, thread, *_ = columns
    if type(thread) is not bytes:
        return f"thread number {number} is damaged: its key has the type {type(thread).__name__}"
    encoded = listed_head(*columns)
    try:
        if encoded != NO_HEAD_YET:
            decode_head(thread, encoded)
    except (Corrupt, IncompatibleCheckpoint) as error:
        return str(error)
    return ""


def label_problems(
    heads: Sequence[tuple[int, bytes, bytes, str, bytes, bool]], indexed: set[tuple[bytes, int]]
) -> list[str]:
    """Describe how the index over labels differs from the labels of the threads."""
    names = {number: repr(shown_id_of(thread)) for number, thread, *_ in heads if type(thread) is bytes}
    wanted = {(token, number) for number, _, _, _, packed, _ in heads for token in _tokens(packed)}
    wrong = {names.get(number, f"number {number}") for _, number in wanted ^ indexed}
    return [f"the index over labels differs from the labels of thread {name}" for name in sorted(wrong)]


def _tokens(packed: bytes) -> tuple[bytes, ...]:
    """Return the tokens in a thread's column; none if that is damaged, which `problem` reports."""
    try:
        return msgspec.msgpack.decode(packed, type=tuple[bytes, ...]) if packed else ()
    except (msgspec.MsgspecError, TypeError):
        return ()


def pack_tokens(tokens: tuple[bytes, ...]) -> bytes:
    """Pack the tokens of a head's labels into one value; empty for none, the common case."""
    return msgspec.msgpack.encode(tokens) if tokens else b""


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
