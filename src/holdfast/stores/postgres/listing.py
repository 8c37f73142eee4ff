"""The query for a page of threads, and the comparison of its columns with the heads."""

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
    """Return the query for a page, newest first, and its parameters. It asks for `limit` + 1, to know if more follow.

    Every name is qualified: see sql/postgres.sql.
    """
    parameters: list[Any] = []

    def given(value: object) -> str:
        parameters.append(value)
        return f"${len(parameters)}"

    conditions = [f"born {LESS} {given(LAST if cursor is None else min(int(cursor), LAST))}"]
    if prefix:
        # A thread whose name was damaged must not be skipped as one of another namespace.
        begins = f"substring(thread FROM 1 FOR {given(len(prefix))}::integer) {EQUAL} {given(prefix)}"
        hashed = f"substring(pg_catalog.sha256(thread) FROM 1 FOR {KEY_BYTES})"
        conditions.append(f"({begins} OR key {UNEQUAL} {hashed})")
    if statuses:
        conditions.append(f"status {EQUAL} ANY({given(list(statuses))}::pg_catalog.text[])")
    else:
        conditions.append(f"status {UNEQUAL} ''")
    # `labels <> '{}'` lets PostgreSQL use the index, which contains only threads with labels.
    conditions += [
        f"labels {OVERLAPS} {given(list(choices))}::pg_catalog.bytea[] AND labels {UNEQUAL} '{{}}'"
        for choices in labels
    ]
    return f"{select} {' AND '.join(conditions)} ORDER BY born DESC LIMIT {given(limit + 1)}", parameters


def listed_head(key: bytes, thread: bytes, encoded: bytes, status: str, labels: list[bytes]) -> bytes:
    """Return the head of a thread, or `LOST_HEAD` if its index columns differ from the head."""
    head = readable_head(thread, encoded)
    agrees = head is None or (head.listed_as, list(head.labels)) == (status, labels)
    return encoded if agrees and key == key_of(thread) else LOST_HEAD


def problem_of(key: bytes, thread: bytes, encoded: bytes, status: str, labels: list[bytes]) -> str:
    """Describe what is wrong with a thread's head or columns; empty if nothing is."""
    try:
        decode_head(thread, listed_head(key, thread, encoded, status, labels))
    except (Corrupt, IncompatibleCheckpoint) as error:
        return str(error)
    return ""
