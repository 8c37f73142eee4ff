"""Who may change a thread's head, and what it becomes: the rules of leases, tokens and tombstones, as pure functions.

Each takes the head as it was read and returns the head to swap in, or raises why not. If a conflicting write won and
the swap is refused, read again and decide again.
"""

from collections.abc import Collection

from msgspec.structs import replace

from holdfast.history.log import Log
from holdfast.processes import named
from holdfast.records.errors import Deleted, Fenced, LeaseHeld
from holdfast.records.head import FORMAT, Head, Marks
from holdfast.records.words import Status


def deletion(name: str) -> Deleted:
    """Return the error of a write to a tombstone."""
    return Deleted(f"thread {name!r} was deleted; store.revive({name!r}) makes its id usable again, empty")


def holding(head: Head, name: str, now: int) -> LeaseHeld:
    """Return the error of a write to a thread that another run holds."""
    remaining = (head.expires_at - now) / 1e6
    return LeaseHeld(
        f"thread {name!r} is held by {named(head.owner)} for at least another {remaining:.1f} s;"
        " write through that run, or wait for its end",
        owner=head.owner,
        remaining=remaining,
    )


def check_may_write(head: Head, name: str, token: int | None, now: int) -> None:
    """Raise unless a run has the current token, or a one-shot write (no token) finds the thread held by no run."""
    if head.deleted:
        raise deletion(name)
    if token is None:
        if head.owner and head.expires_at > now:
            raise holding(head, name, now)
    elif head.token != token or not head.owner:
        raise Fenced(f"thread {name!r} was taken over (token {head.token}, ours was {token})")


def written(head: Head, log: Log, now: int, stored_bytes: int, token: int | None, status: str, lease: int) -> Head:
    """Return the head after the rows up to the end of `log`. A one-shot write over an expired lease ends that lease."""
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
    """Return the head with a lease for `owner` and the next token. `dead_owner` names a holder known to be dead.

    The thread's status becomes `working`, unless another `status` is given.
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
    """Return the head with the lease extended."""
    check_may_write(head, name, token, now)
    return replace(head, expires_at=now + lease)


def released(head: Head, name: str, token: int, status: str, now: int, wake_at: int = 0) -> Head:
    """Return the head without its lease, with the run's last status; to be resumed at `wake_at`, if that is set."""
    check_may_write(head, name, token, now)
    return replace(head, owner="", expires_at=wake_at, status=status, updated_at=now)


def as_found(head: Head) -> tuple[str, int]:
    """Return the status and wake time that release a thread as it was found. A former owner is not restored."""
    return head.status or Status.IDLE.value, 0 if head.owner else head.expires_at


def may_go_on(head: Head, now: int) -> bool:
    """True if a thread that no run holds is `queued` or was left `working`, or its timer or deadline is due."""
    if head.deleted or head.held(now):
        return False
    if head.status in {Status.QUEUED.value, Status.WORKING.value}:
        return head.expires_at <= now
    return head.status == Status.INPUT_REQUIRED.value and 0 < head.expires_at <= now


def may_run(head: Head, now: int, dead_owner: str = "") -> bool:
    """True if a worker that found the thread due may run it: nobody alive holds it, and it is open.

    A queued thread is never begun before its time. One that waits may be due early, because it was called.
    """
    if head.deleted or (head.owner != dead_owner and head.held(now)):
        return False
    if head.status == Status.QUEUED.value:
        return head.expires_at <= now
    return head.status in {Status.WORKING.value, Status.INPUT_REQUIRED.value}


def placed(head: Head, queue: str, priority: int, route: bytes, unbegun: Collection[bytes]) -> Head:
    """Return the head with a place in the agenda.

    A submitted thread has one already: only its route changes, from one of those of `unbegun` threads.
    """
    if head.route in unbegun:
        return replace(head, route=route)
    return head if head.route else replace(head, format=FORMAT, queue=queue, priority=priority, route=route)


def deleted(head: Head, now: int) -> Head:
    """Return a tombstone. It keeps the token, so that a late writer is always refused."""
    return Head(token=head.token, deleted=True, created_at=head.created_at, updated_at=now)


def buried(now: int) -> Head:
    """Return a tombstone for a thread whose head, and so its token, cannot be read.

    Tokens grow by one with each claim, so no token in use is as large as the time in microseconds.
    """
    return Head(token=now, deleted=True, created_at=now, updated_at=now)


def revived(head: Head) -> Head:
    """Return an empty head that continues the tokens."""
    return Head(token=head.token + 1)


def marked(head: Head, marks: Marks) -> Head:
    """Return the head with other marks."""
    return replace(head, marks=marks)
