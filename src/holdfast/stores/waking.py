"""Waking workers: a write that makes a thread due is announced here, after its commit.

No wake-up is lost. A message makes its thread due in the same commit (`Agenda.call`), and a release that finds a
message which its run has not heard leaves the thread due (`Swap.heard`). An announcement is only a hint; the agenda is
the truth.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.ports import Ports
from holdfast.records.identity import prefix_of
from holdfast.records.rows import Swap
from holdfast.stores.agenda import TELL, Agenda, Announcing, OneHost, entry_of
from holdfast.stores.backend import Backend, readable_head

if TYPE_CHECKING:
    from holdfast.stores.reader import Reader

SOON = 5_000_000
"""What becomes due within 5 s is announced: it may be over before an idle worker looks by itself."""


def announce(backend: Backend, swaps: Iterable[Swap]) -> None:
    """Announce the threads that these accepted swaps made due, now or soon."""
    if isinstance(backend, Announcing):
        for prefix in {prefix_of(swap.thread) for swap in swaps if swap.moves and _may_be_due_soon(swap)}:
            backend.announce(prefix)


def _may_be_due_soon(swap: Swap) -> bool:
    entry = entry_of(swap.head)
    is_soon = entry is not None and not entry.held and entry.due <= swap.head.updated_at + SOON
    return is_soon or swap.heard is not None


def call(reader: "Reader", thread: bytes, key: str, value: bytes) -> bool:
    """Leave a message for a thread, which is due then, and announce it; False if there is one. Blocking."""
    is_new = reader.agenda.call(thread, key, value)
    if isinstance(reader.backend, Announcing):
        reader.backend.announce(prefix_of(thread))
    return is_new


def make_due(backend: Backend, agenda: Agenda, thread: bytes) -> None:
    """Make a thread due now, and announce it: what it waits for has ended. Blocking."""
    agenda.look_again(thread, agenda.now())
    if isinstance(backend, Announcing):
        backend.announce(prefix_of(thread))


def ask_for_wakeup(backend: Backend, thread: bytes, waiting: bytes) -> None:
    """Ask a thread to wake another one when it ends: it does so after the end was stored. Blocking."""
    backend.post(thread, TELL + sha256(waiting).hexdigest()[:32], waiting)


def wake_waiting(reader: "Reader", thread: bytes) -> list[bytes]:
    """Wake the threads that wait for the end of this one, and return them. Blocking."""
    found = [waiting for key, waiting in reader.backend.inbox(thread).items() if key.startswith(TELL)]
    for waiting in found:
        make_due(reader.backend, reader.agenda, waiting)
    return found


def wake_threads_of_the_dead(backend: Backend, agenda: Agenda, prefix: bytes, ports: Ports) -> None:
    """Make the threads due whose owners are certainly dead, if the store's users are all on one host. Blocking."""
    if not isinstance(backend, OneHost):
        return
    is_dead: dict[str, bool] = {}
    for thread, encoded in backend.held(prefix):
        head = readable_head(thread, encoded)
        process = "" if head is None else head.owner.rpartition(":")[0]
        if head is not None and process not in is_dead:
            is_dead[process] = ports.is_certainly_dead(head.owner)
        if is_dead.get(process):
            agenda.look_again(thread, agenda.now())
