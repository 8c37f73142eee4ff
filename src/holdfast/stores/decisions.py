"""Who may change a thread's head, and what it becomes: the rules of leases, tokens and tombstones, as pure functions.

Each takes the head as it was read and returns the head to swap in, or raises why not. If the swap is then refused
because somebody was faster, read again and decide again.
"""

from msgspec.structs import replace

from holdfast.history.log import Log
from holdfast.processes import named
from holdfast.records.errors import Deleted, Fenced, LeaseHeld
from holdfast.records.head import Head, Marks
from holdfast.records.words import Status


def deletion(name: str) -> Deleted:
    """The error of a write to a tombstone."""
    return Deleted(f"thread {name!r} was deleted; store.revive({name!r}) brings its id back, empty")


def holding(head: Head, name: str, now: int) -> LeaseHeld:
    """The error of a write to a thread that another run holds."""
    remaining = (head.expires_at - now) / 1e6
    return LeaseHeld(
        f"thread {name!r} is held by {named(head.owner)} for another {remaining:.1f} s at least;"
        " write through that run, or wait for its end",
        owner=head.owner,
        remaining=remaining,
    )


def check_may_write(head: Head, name: str, token: int | None, now: int) -> None:
    """A run writes under its token until it releases it; a one-shot write (no token) where no run holds the thread."""
    if head.deleted:
        raise deletion(name)
    if token is None:
        if head.owner and head.expires_at > now:
            raise holding(head, name, now)
    elif head.token != token or not head.owner:
        raise Fenced(f"thread {name!r} was taken over (token {head.token}, ours was {token})")


def written(head: Head, log: Log, now: int, stored_bytes: int, token: int | None, status: str, lease: int) -> Head:
    """The head after the rows up to the end of `log`. A one-shot write over a dead lease ends that lease."""
    if token is None and head.owner:
        head = replace(head, token=head.token + 1, owner="", expires_at=0)
    return replace(
        head,
        incarnation=log.binding.incarnation,
        seq=log.seq,
        base=log.base,
        checkpoint=log.checkpoint,
        digest=log.digest,
        created_at=head.created_at or now,
        updated_at=now,
        row_count=head.row_count + log.seq - head.seq,
        stored_bytes=head.stored_bytes + stored_bytes,
        status=status,
        expires_at=now + lease if lease else head.expires_at,
    )


def claimed(
    head: Head | None, name: str, owner: str, lease: int, now: int, *, dead_owner: str = "", status: str = ""
) -> Head:
    """The head with a lease for `owner` and the next token. `dead_owner` names a holder known to be dead.

    The thread is at work from here on, unless it is to keep another `status`.
    """
    head = head or Head()
    if head.deleted:
        raise deletion(name)
    if head.owner != dead_owner and head.held(now):
        raise holding(head, name, now)
    return replace(
        head,
        token=head.token + 1,
        owner=owner,
        expires_at=now + lease,
        status=status or Status.WORKING.value,
        created_at=head.created_at or now,
        updated_at=now,
    )


def renewed(head: Head, name: str, token: int, lease: int, now: int) -> Head:
    """The head with the lease extended."""
    check_may_write(head, name, token, now)
    return replace(head, expires_at=now + lease)


def released(head: Head, name: str, token: int, status: str, now: int, wake_at: int = 0) -> Head:
    """The head without its lease, under the status the run leaves behind; to be woken at `wake_at`, if that is set."""
    check_may_write(head, name, token, now)
    return replace(head, owner="", expires_at=wake_at, status=status, updated_at=now)


def as_found(head: Head) -> tuple[str, int]:
    """The status and the moment to wake that give a thread back as it was; an owner that is gone does not come back."""
    return head.status or Status.IDLE.value, 0 if head.owner else head.expires_at


def may_go_on(head: Head, now: int) -> bool:
    """True if a thread that nobody holds was left at work, or its timer or deadline is due."""
    if head.deleted or head.held(now):
        return False
    if head.status == Status.WORKING.value:
        return head.expires_at <= now
    return head.status == Status.INPUT_REQUIRED.value and 0 < head.expires_at <= now


def deleted(head: Head, now: int) -> Head:
    """The tombstone: only the token survives, so that a late writer is refused for ever."""
    return Head(token=head.token, deleted=True, created_at=head.created_at, updated_at=now)


def buried(now: int) -> Head:
    """The tombstone of a thread whose head cannot be read, and with it its token.

    Tokens grow by one with each claim, so none that was ever given is as large as the time in microseconds.
    """
    return Head(token=now, deleted=True, created_at=now, updated_at=now)


def revived(head: Head) -> Head:
    """An empty head that continues the tokens."""
    return Head(token=head.token + 1)


def marked(head: Head, marks: Marks) -> Head:
    """The head with other marks."""
    return replace(head, marks=marks)
