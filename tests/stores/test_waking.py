"""Idle workers hear of what is due, and only of that; and dead owners are found."""

from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from holdfast.records.head import FORMAT, Head, encode_head
from holdfast.records.identity import namespace_prefix, thread_key
from holdfast.records.rows import Swap
from holdfast.stores.agenda import Announcing, swap_of
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.stores.waking import SOON, announce, wake_threads_of_the_dead
from holdfast.testing.clock import Clock

PREFIX = namespace_prefix("")
THREAD = thread_key(PREFIX, "t")
DUE = Head(format=FORMAT, status="queued", queue="q", route=b"route 1 ", created_at=1, updated_at=5)


def swap_to(head: Head) -> Swap:
    return swap_of(THREAD, Head(), b"", head, encode_head(THREAD, head))


class Noting(MemoryBackend):
    """Notes what is announced."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[bytes] = []

    def announce(self, prefix: bytes) -> None:
        self.heard.append(prefix)


@pytest.mark.parametrize(
    ("head", "is_heard"),
    [
        (DUE, True),
        (replace(DUE, status="working"), True),
        (replace(DUE, expires_at=DUE.updated_at + SOON), True),
        (replace(DUE, expires_at=DUE.updated_at + SOON + 1), False),
        (replace(DUE, owner="somebody", expires_at=3), False),
        (replace(DUE, status="complete"), False),
        (replace(DUE, route=b""), False),
    ],
)
def test_only_what_is_due_soon_is_announced(head: Head, *, is_heard: bool) -> None:
    backend = Noting()
    announce(backend, [swap_to(head)])
    assert backend.heard == ([PREFIX] if is_heard else [])


def test_a_release_that_may_find_a_message_is_announced() -> None:
    backend = Noting()
    announce(backend, [replace(swap_to(replace(DUE, status="input_required")), heard=frozenset())])
    assert backend.heard == [PREFIX]


def test_a_listener_in_memory_wakes_at_once_and_once() -> None:
    backend = MemoryBackend()
    listener = backend.listener(PREFIX)
    assert not listener.wait(0)
    teller = Thread(target=backend.announce, args=(PREFIX,))
    teller.start()
    assert listener.wait(60)
    teller.join()
    assert not listener.wait(0)
    listener.close()


def test_a_listener_of_a_file_hears_of_writes_by_others(tmp_path: Path) -> None:
    here, there = SQLiteBackend(str(tmp_path / "a.db")), SQLiteBackend(str(tmp_path / "a.db"))
    here.open()
    there.open()
    assert isinstance(here, Announcing)
    listener = here.listener(PREFIX)
    listener.wait(0)
    assert not listener.wait(0)
    there.swap([swap_to(DUE)])
    assert listener.wait(60)
    assert not listener.wait(0)
    here.close()
    there.close()


def test_threads_of_dead_owners_become_due(tmp_path: Path) -> None:
    backend = SQLiteBackend(str(tmp_path / "a.db"))
    backend.open()
    late = backend.now() + 60_000_000
    backend.swap([swap_to(replace(DUE, status="working", owner="dead:1:1:1:1:1", expires_at=late))])

    class Seeing(type(Clock().ports())):  # type: ignore[misc]
        def is_certainly_dead(self, owner: str) -> bool:
            return bool(owner == self.dead)

    ports = Seeing(Clock())
    for dead, count in (("another:1:1:1:1:1", 0), ("dead:1:1:1:1:1", 1)):
        ports.dead = dead
        wake_threads_of_the_dead(backend, backend, PREFIX, ports)
        assert len(backend.take(PREFIX, "q", [b"route 1 "], 5).entries) == count
    backend.close()
