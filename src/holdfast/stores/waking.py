"""Waking workers: a write that makes a thread due is announced here, after its commit.

No wake-up is lost, because both sides keep to one order. A process with a message for a thread writes the message, then
calls `make_due`. A run that releases its thread writes the release, then looks for messages, and calls `make_due` if
there is one. An announcement is only a hint; the agenda is the truth.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.ports import Ports
from holdfast.records.head import Head
from holdfast.records.identity import prefix_of
from holdfast.records.rows import Swap
from holdfast.stores.agenda import Agenda, Announcing, OneHost, entry_of
from holdfast.stores.backend import Backend, readable_head

if TYPE_CHECKING:
    from holdfast.stores.reader import Reader

SOON = 5_000_000
"""What becomes due within 5 s is announced: it may be over before an idle worker looks by itself."""
TELL = "tell:"
"""How the key of a message begins that asks a thread to wake another one when it ends; its value names that one."""


def announce(backend: Backend, swaps: Iterable[Swap]) -> None:
    """Announce the threads that these accepted swaps made due, now or soon."""
    queues: dict[bytes, set[str]] = {}
    for swap in swaps:
        if swap.moves and _is_due_soon(swap.head):
            queues.setdefault(prefix_of(swap.thread), set()).add(swap.head.queue)
    if queues and isinstance(backend, Announcing):
        for prefix, names in queues.items():
            backend.announce(prefix, names)


def _is_due_soon(head: Head) -> bool:
    entry = entry_of(head)
    return entry is not None and not entry.held and entry.due <= head.updated_at + SOON


def make_due(backend: Backend, agenda: Agenda, thread: bytes) -> None:
    """Make a thread due now, and announce it: a message was left for it. Blocking."""
    encoded = backend.heads([thread])[0]
    head = None if encoded is None else readable_head(thread, encoded)
    if head is None or not head.route:
        return
    agenda.look_again(thread, agenda.now())
    if isinstance(backend, Announcing):
        backend.announce(prefix_of(thread), {head.queue})


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
