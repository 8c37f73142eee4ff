"""Group commit: who shares a batch, who is refused alone, and what happens to those who wait."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from holdfast.ports import Ticket
from holdfast.records.errors import OutcomeUnknown, StoreUnavailable
from holdfast.records.head import Head
from holdfast.records.rows import Swap
from holdfast.stores import committer as module
from holdfast.stores.backend import Busy
from holdfast.stores.committer import Committer
from holdfast.stores.memory import MemoryBackend
from patience import GIVE_UP_SECONDS


class Recording(MemoryBackend):
    """A memory backend that remembers its batches and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[bytes]] = []
        self.failures: list[Exception] = []
        self.poisoned = b""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        self.batches.append([swap.thread for swap in swaps])
        if self.failures:
            raise self.failures.pop()
        if any(swap.thread == self.poisoned for swap in swaps):
            raise StoreUnavailable("a poisoned thread")
        return super().swap(swaps, wait=wait)


def swap(thread: bytes, expected: bytes, replacement: bytes, size: int = 10) -> Swap:
    return Swap(thread, expected, replacement, Head(status="idle"), size=size)


def submitted(committer: Committer, *swaps: Swap) -> list[Ticket]:
    tickets = [Ticket() for _ in swaps]
    for ticket, each in zip(tickets, swaps, strict=True):
        committer.submit(ticket, each)
    return tickets


def test_writes_of_one_thread_that_follow_each_other_are_one_item() -> None:
    backend = Recording()
    committer = Committer(backend)
    tickets = submitted(committer, swap(b"\0a", b"", b"1"), swap(b"\0b", b"", b"1"), swap(b"\0a", b"1", b"2"))
    committer.drive(tickets[0])
    assert [ticket.result() for ticket in tickets] == [True, True, True]
    assert backend.batches == [[b"\0a", b"\0b"]]
    assert backend.heads([b"\0a", b"\0b"]) == [b"2", b"1"]


def test_writes_that_are_merged_have_the_size_of_all() -> None:
    sizes = list[int]()

    class Sized(Recording):
        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            sizes.extend(swap.size for swap in swaps)
            return super().swap(swaps, wait=wait)

    committer = Committer(Sized())
    tickets = submitted(committer, swap(b"\0a", b"", b"1", size=10), swap(b"\0a", b"1", b"2", size=20))
    committer.drive(tickets[0])
    assert sizes == [30]


def test_a_write_that_does_not_follow_the_one_before_it_is_refused_alone() -> None:
    backend = Recording()
    committer = Committer(backend)
    tickets = submitted(committer, swap(b"\0a", b"", b"1"), swap(b"\0a", b"", b"2"), swap(b"\0b", b"", b"1"))
    committer.drive(tickets[2])
    assert [ticket.result() for ticket in tickets] == [True, False, True]
    assert backend.heads([b"\0a"]) == [b"1"]


def test_one_bad_item_does_not_fail_the_others_of_its_batch() -> None:
    backend = Recording()
    backend.poisoned = b"\0b"
    committer = Committer(backend)
    tickets = submitted(committer, swap(b"\0a", b"", b"1"), swap(b"\0b", b"", b"1"), swap(b"\0c", b"", b"1"))
    committer.drive(tickets[0])
    assert tickets[0].result()
    assert tickets[2].result()
    with pytest.raises(StoreUnavailable):
        tickets[1].result()


def test_whatever_a_batch_raises_reaches_everyone_who_waits_for_it() -> None:
    backend = Recording()
    backend.failures = [RuntimeError("a bug")]
    committer = Committer(backend)
    tickets = submitted(committer, swap(b"\0a", b"", b"1"), swap(b"\0b", b"", b"1"))
    committer.drive(tickets[0])
    for ticket in tickets:
        with pytest.raises(RuntimeError):
            ticket.result()


class Slow(Recording):
    """Takes a while for each batch, as a disk does."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        time.sleep(0.05)
        return super().swap(swaps, wait=wait)


def driven(committer: Committer, count: int) -> list[threading.Thread]:
    """As many threads, each of which makes five writes of its own and waits for each."""

    def work(name: bytes) -> None:
        for number in range(5):
            (ticket,) = submitted(committer, swap(name, b"%d" % number if number else b"", b"%d" % (number + 1)))
            committer.drive(ticket)
            assert ticket.result()

    threads = [threading.Thread(target=work, args=(b"\0%d" % number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_threads_that_wait_share_the_next_batch() -> None:
    backend = Slow()
    for thread in driven(Committer(backend), 16):
        thread.join(GIVE_UP_SECONDS)
        assert not thread.is_alive()
    assert sum(map(len, backend.batches)) == 80
    assert len(backend.batches) <= 30, "a batch for each write would be 80"


def test_a_waiting_thread_that_is_interrupted_leaves_its_turn_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, leading, interrupted = Recording(), threading.Event(), threading.Event()
    go_on = threading.Event()

    def slow(swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        leading.set()
        assert go_on.wait(GIVE_UP_SECONDS)
        return MemoryBackend.swap(backend, swaps, wait=wait)

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread().name == "interrupted":
                while len(committer._followers) < 2:
                    time.sleep(0.001)
                go_on.set()
                super().wait(GIVE_UP_SECONDS)  # its turn came
                interrupted.set()
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(backend, "swap", slow)
    monkeypatch.setattr(module, "Event", Interrupted)
    committer = Committer(backend)
    first, second, third = (swap(name, b"", b"1") for name in (b"\0a", b"\0b", b"\0c"))

    def drive(each: Swap) -> None:
        (ticket,) = submitted(committer, each)
        with contextlib.suppress(KeyboardInterrupt):
            committer.drive(ticket)

    leader = threading.Thread(target=drive, args=(first,))
    leader.start()
    assert leading.wait(GIVE_UP_SECONDS)
    waiting = threading.Thread(target=drive, args=(third,))
    threading.Thread(target=drive, args=(second,), name="interrupted").start()
    waiting.start()
    assert interrupted.wait(GIVE_UP_SECONDS)
    waiting.join(GIVE_UP_SECONDS)
    assert not waiting.is_alive()
    assert backend.heads([b"\0a", b"\0c"]) == [b"1", b"1"]


def struck(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_is_raised_where_it_struck_and_the_others_are_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    committer = Committer(Recording())
    tickets = submitted(committer, swap(b"\0a", b"", b"1"), swap(b"\0b", b"", b"1"))
    monkeypatch.setattr(MemoryBackend, "swap", struck)
    with pytest.raises(KeyboardInterrupt):
        committer.drive(tickets[0])
    for ticket in tickets:
        with pytest.raises(OutcomeUnknown):
            ticket.result()


def test_an_interrupt_before_a_batch_is_sent_leaves_no_ticket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another strikes before those who wait are told."""
    committer = Committer(Recording())
    tickets = submitted(committer, swap(b"\0a", b"", b"1"), swap(b"\0b", b"", b"1"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_merge", struck)
        patch.setattr(committer, "_give_up", struck)
        with pytest.raises(KeyboardInterrupt):
            committer.drive(tickets[0])
    waiting = threading.Thread(target=committer.drive, args=(tickets[1],), daemon=True)
    waiting.start()
    waiting.join(GIVE_UP_SECONDS)
    assert not waiting.is_alive()
    with pytest.raises(OutcomeUnknown):
        tickets[1].result()


def test_a_turn_that_was_lost_with_its_thread_delays_the_others_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Slow()
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(Committer, "_pass_turn", lambda _: None)
    for thread in driven(Committer(backend), 8):
        thread.join(GIVE_UP_SECONDS)
        assert not thread.is_alive()
    assert sum(map(len, backend.batches)) == 40


def test_an_interrupt_of_a_lone_write_leaves_it_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    committer, (ticket, again) = Committer(Recording()), (Ticket(), Ticket())
    committer.submit(ticket, swap(b"\0a", b"", b"1"))
    with monkeypatch.context() as patch:
        patch.setattr(MemoryBackend, "swap", struck)
        with pytest.raises(KeyboardInterrupt):
            committer.drive(ticket)
    with pytest.raises(OutcomeUnknown):
        ticket.result()
    committer.submit(again, swap(b"\0a", b"", b"1"))
    committer.drive(again)
    assert again.result()


@pytest.mark.parametrize("is_first", [True, False], ids=["before it is in the list", "after it"])
def test_a_callback_is_called_once_if_the_ticket_is_settled_while_it_is_added(is_first: bool) -> None:
    ticket, called = Ticket(), list[str]()

    class Struck(list[Callable[[], None]]):
        """Another thread settles the ticket at the worst moment."""

        def append(self, callback: Callable[[], None]) -> None:
            if is_first:
                ticket.settle(True)
            super().append(callback)
            if not is_first:
                ticket.settle(True)

    ticket._callbacks = Struck()
    ticket.when_settled(lambda: called.append("late"))
    assert called == ["late"]


def test_callbacks_are_called_once_though_two_threads_call_them() -> None:
    ticket, called = Ticket(), list[int]()

    def call_others() -> None:
        called.append(1)
        ticket.call_back()

    ticket.when_settled(call_others)
    for number in (2, 3):
        ticket.when_settled(partial(called.append, number))
    ticket.settle(True)
    assert called == [1, 2, 3]


def test_a_lone_small_write_is_committed_at_once_by_a_nudge() -> None:
    committer = Committer(Recording())
    (ticket,) = submitted(committer, swap(b"\0a", b"", b"1"))
    committer.nudge()
    assert ticket.settled


def test_a_lone_write_that_would_have_to_wait_goes_to_the_writer_thread() -> None:
    backend = Recording()
    backend.failures = [Busy()]
    committer = Committer(backend)
    (ticket,) = submitted(committer, swap(b"\0a", b"", b"1"))
    committer.nudge()
    committer.drive(ticket)
    assert ticket.result()
    assert len(backend.batches) == 2


def test_a_full_queue_is_relieved_by_a_batch_on_the_spot() -> None:
    backend = Recording()
    committer = Committer(backend)
    tickets = submitted(committer, swap(b"\0a", b"", b"1", size=module.BACKLOG_BYTES + 1))
    was_full = committer.is_full
    committer.commit_batch()
    assert (was_full, committer.is_full) == (True, False)
    assert tickets[0].result()


def test_a_batch_is_bounded_in_bytes_and_in_number() -> None:
    backend = Recording()
    committer = Committer(backend)
    half = module.BATCH_BYTES // 2 + 1
    swaps = [swap(b"\0%c" % letter, b"", b"1", size=half) for letter in b"abc"]
    many = [swap(b"\0z%03d" % number, b"", b"1", size=1) for number in range(module.BATCH_SWAPS + 1)]
    tickets = submitted(committer, *swaps, *many)
    committer.drive(tickets[-1])
    assert all(ticket.result() for ticket in tickets)
    assert len(backend.batches[0]) == 2
    assert max(map(len, backend.batches)) <= module.BATCH_SWAPS
