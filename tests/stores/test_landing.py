"""Did a write land? The stored head and log tell, whatever was written since."""

from collections.abc import Iterator, Sequence

import pytest

from holdfast import OutcomeUnknown, sync
from holdfast.codec import encode
from holdfast.ports import Ticket
from holdfast.records.rows import Swap
from holdfast.stores.claim import Claim, take
from holdfast.stores.landing import landed
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.writer import Intent

LEASE = 30_000_000


class Recording(MemoryBackend):
    """Remembers the swaps, and loses replies on demand: before the swap is made, or after it."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps: list[Swap] = []
        self.loses: list[str] = []

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        self.swaps += swaps
        loses = self.loses.pop(0) if self.loses else ""
        if loses == "request":
            raise OutcomeUnknown("the request was lost")
        outcomes = super().swap(swaps, wait=wait)
        if loses == "reply":
            raise OutcomeUnknown("the reply was lost")
        return outcomes


@pytest.fixture
def backend() -> Recording:
    return Recording()


@pytest.fixture
def store(backend: Recording) -> Iterator[sync.Store]:
    with sync.Store(backend) as store:
        yield store


def claimed(store: sync.Store) -> Claim:
    inner = store._store
    return take(inner._ports, inner._reader, inner._committer, inner._reader.key("t"), LEASE)


def told(store: sync.Store, swap: Swap) -> bool | None:
    return landed(store._store._reader, swap)


def test_a_row_has_landed_though_others_followed(store: sync.Store, backend: Recording) -> None:
    store.save("t", {"n": 1})
    first = backend.swaps[-1]
    store.save("t", {"n": 2})
    store.append("t", "letters", "a")
    assert told(store, first) is True


def test_a_row_whose_place_another_took_has_not_landed(store: sync.Store, backend: Recording) -> None:
    store.save("t", {"n": 1})
    backend.loses = ["request", "request"]
    with pytest.raises(OutcomeUnknown):
        store.save("t", {"n": 2})
    lost = backend.swaps[-1]
    assert told(store, lost) is None, "it may still arrive"
    store.save("t", {"n": 3})
    assert told(store, lost) is False


def test_the_first_row_of_a_thread_that_another_created_has_not_landed(store: sync.Store, backend: Recording) -> None:
    with sync.Store(backend) as other:
        backend.loses = ["request", "request"]
        with pytest.raises(OutcomeUnknown):
            store.save("t", {"n": 1})
        lost = backend.swaps[-1]
        other.save("t", {"n": 2})
        assert told(store, lost) is False


def test_a_claim_has_landed_while_it_stands_and_a_release_once_it_is_made(
    store: sync.Store, backend: Recording
) -> None:
    store.save("t", {"n": 1})
    claim = claimed(store)
    taken = backend.swaps[-1]
    assert told(store, taken) is True
    claim.wait_for(claim.submit(Intent(appends=((("journal",), encode(["mark", "x"])),))))
    assert told(store, taken) is True
    claim.wait_for(claim.release("idle"))
    release = backend.swaps[-1]
    assert told(store, taken) is None, "it may have been taken over"
    store.save("t", {"n": 2}, status="failed")
    assert told(store, release) is True
    claimed(store)
    assert told(store, release) is None


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_pin_whose_request_or_reply_is_lost_is_made(store: sync.Store, backend: Recording, lost: str) -> None:
    first = store.save("t", {"n": 1})
    backend.loses = [lost]
    store.pin(first.id)
    head = store._store._reader.seen(store._store._reader.key("t"))
    assert head is not None
    assert head.head.marks.pinned == (1,)


def test_a_save_whose_reply_is_lost_is_not_written_again(store: sync.Store, backend: Recording) -> None:
    store.save("t", {"n": 1})
    backend.loses = ["reply"]
    assert store.save("t", {"n": 2}).seq == 2
    assert [each.seq for each in store.history("t")] == [2, 1]
    assert len(backend.swaps) == 2


def test_a_save_that_may_still_be_on_its_way_is_sent_again_and_made_once(store: sync.Store, backend: Recording) -> None:
    store.save("t", {"n": 1})
    backend.loses = ["request"]
    assert store.save("t", {"n": 2}).seq == 2
    late = backend.swaps[1]
    assert backend.swaps[2] == late
    assert backend.swap([late]) == [False], "the first copy comes too late"
    assert [each.seq for each in store.history("t")] == [2, 1]


def test_a_claim_that_may_still_be_on_its_way_is_sent_again_and_is_ours(store: sync.Store, backend: Recording) -> None:
    store.save("t", {"n": 1})
    backend.loses = ["request"]
    claim = claimed(store)
    assert [swap.head.owner for swap in backend.swaps[1:]] == [claim.owner, claim.owner]
    assert backend.swap([backend.swaps[1]]) == [False]
    claim.wait_for(claim.release("idle"))


def test_a_delete_whose_reply_is_lost_spares_the_next_life(store: sync.Store, backend: Recording) -> None:
    with sync.Store(backend) as other:
        other.save("t", {"n": 1})
        made = backend.swap

        def lose_reply(swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            backend.swap = made  # type: ignore[method-assign]
            made(swaps, wait=wait)
            other.revive("t")
            other.save("t", {"new": 1})
            raise OutcomeUnknown("the reply was lost")

        backend.swap = lose_reply  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown):
            store.delete("t")
        latest = other.latest("t")
        assert latest is not None
        assert latest.state == {"new": 1}


def test_a_callback_that_an_interrupt_has_cut_off_is_called_again() -> None:
    ticket, called = Ticket(), list[str]()
    ticket.when_settled(lambda: called.append("first"))
    ticket.when_settled(lambda: called.append("second"))
    ticket._callbacks.pop(0)  # taken out, and then the interrupt
    ticket.outcome = ticket.settled = True
    ticket.call_all()
    assert called == ["first", "second"]
