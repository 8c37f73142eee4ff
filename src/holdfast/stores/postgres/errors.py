"""What PostgreSQL's and psycopg's errors mean for a caller: translated here, and nowhere else."""

import psycopg

from holdfast.records.errors import Corrupt, OutcomeUnknown, StoreError, StoreUnavailable

DAMAGED = {"XX001", "XX002"}
ENDED = {"57P01", "57P02", "57P03", "57P05", "25P03"}
"""The server ended the session: the outcome of a commit that was under way is unknown."""
PASSING = {"40001", "40P01", "55P03", "25006", "57P03"}
"""Certainly nothing was written, and another attempt may fare better: the other side of a conflict or a failover."""
READ_ONLY = "25006"
MISSING = {"3F000", "42P01", "42883", "42703"}

ADVICE = {
    "25006": "the server takes no writes: it is a standby, or a failover is under way",
    "42501": "the role may not do this: grant it the rights that docs/postgres.md lists",
    "53100": "the server's disk is full",
    "53200": "the server is out of memory",
    "53300": "the server has no free connection: raise max_connections, or lower connections=",
    "57014": "the statement was cancelled, by statement_timeout or by an administrator",
}


def is_lost(connection: "psycopg.Connection[object] | psycopg.AsyncConnection[object]", error: psycopg.Error) -> bool:
    """True if the session is over: an answer that was on its way will not come."""
    return connection.closed or error.sqlstate in ENDED


def is_passing(error: psycopg.Error) -> bool:
    """True if the statement was rolled back for a reason that may be gone at the next attempt."""
    return error.sqlstate in PASSING


def translated(error: psycopg.Error, *, in_doubt: bool = False) -> StoreError:
    """The error to raise for one of the driver; `in_doubt` if a write was sent and its answer lost."""
    state = error.sqlstate or ""
    text = " ".join(str(error).split()) or type(error).__name__
    if in_doubt:
        return OutcomeUnknown(f"the connection to PostgreSQL was lost while it wrote: {text}")
    if state in DAMAGED:
        return Corrupt(f"PostgreSQL found its files damaged: {text}", record="database")
    if state in MISSING:
        return StoreUnavailable(f"PostgreSQL: this store's schema is gone, or not complete: {text}")
    advice = ADVICE.get(state)
    return StoreUnavailable(f"PostgreSQL: {advice} ({text})" if advice else f"PostgreSQL: {text}")
