"""The query behind a listing of threads, and the comparison of what it found with what the heads say."""

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.records.errors import Corrupt, IncompatibleCheckpoint
from holdfast.records.head import LOST_HEAD, decode_head
from holdfast.stores.backend import readable_head
from holdfast.stores.postgres.swapping import KEY_BYTES, key_of

LAST = (1 << 63) - 1
LESS, EQUAL, UNEQUAL, OVERLAPS = (f"OPERATOR(pg_catalog.{sign})" for sign in ("<", "=", "<>", "&&"))


def listing_query(
    select: str,
    prefix: bytes,
    statuses: Collection[str],
    labels: Sequence[Collection[bytes]],
    cursor: str | None,
    limit: int,
) -> tuple[str, list[Any]]:
    """Newest created first; one more than `limit` is asked for, to know whether there is a next page.

    Every name is qualified: see sql/postgres.sql.
    """
    parameters: list[Any] = []

    def given(value: object) -> str:
        parameters.append(value)
        return f"${len(parameters)}"

    conditions = [f"born {LESS} {given(LAST if cursor is None else min(int(cursor), LAST))}"]
    if prefix:
        # A thread whose name was damaged must not be passed over as one of another namespace.
        begins = f"substring(thread FROM 1 FOR {given(len(prefix))}::integer) {EQUAL} {given(prefix)}"
        hashed = f"substring(pg_catalog.sha256(thread) FROM 1 FOR {KEY_BYTES})"
        conditions.append(f"({begins} OR key {UNEQUAL} {hashed})")
    if statuses:
        conditions.append(f"status {EQUAL} ANY({given(list(statuses))}::pg_catalog.text[])")
    else:
        conditions.append(f"status {UNEQUAL} ''")
    # Labels that overlap are not empty: to say so lets PostgreSQL use the index, which has only threads with labels.
    conditions += [
        f"labels {OVERLAPS} {given(list(choices))}::pg_catalog.bytea[] AND labels {UNEQUAL} '{{}}'"
        for choices in labels
    ]
    return f"{select} {' AND '.join(conditions)} ORDER BY born DESC LIMIT {given(limit + 1)}", parameters


def listed_head(key: bytes, thread: bytes, encoded: bytes, status: str, labels: list[bytes]) -> bytes:
    """The head of a thread; `LOST_HEAD` if the columns that the thread is found by differ from what it says."""
    head = readable_head(thread, encoded)
    agrees = head is None or (head.listed_as, list(head.labels)) == (status, labels)
    return encoded if agrees and key == key_of(thread) else LOST_HEAD


def problem_of(key: bytes, thread: bytes, encoded: bytes, status: str, labels: list[bytes]) -> str:
    """What is wrong with the head of a thread, or with its columns; empty if nothing is."""
    try:
        decode_head(thread, listed_head(key, thread, encoded, status, labels))
    except (Corrupt, IncompatibleCheckpoint) as error:
        return str(error)
    return ""
