"""The write path under an interrupt, after which a notebook or a console goes on; and with many threads at once."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import sync
from holdfast.ports import Ticket
from holdfast.records.rows import Swap
from holdfast.stores.committer import Committer
from holdfast.stores.writer import Writer


def test_a_write_that_was_queued_under_a_key_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Committer.submit

    def queue_and_strike(committer: Committer, ticket: Ticket, swap: Swap) -> None:
        submit(committer, ticket, swap)
        raise KeyboardInterrupt

    with sync.MemoryStore() as store:
        store.save("t", {"a": 1}, idempotency_key="first")
        with monkeypatch.context() as patch:
            patch.setattr(Committer, "submit", queue_and_strike)
            with pytest.raises(KeyboardInterrupt):
                store.save("t", {"a": 2}, idempotency_key="second")
        assert store.save("t", {"a": 2}, idempotency_key="second").seq == 2
        assert len(store.history("t").items) == 2


def test_a_save_without_a_queue_does_not_overtake_one_that_it_builds_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be refused, and so would the other: each time the thread has to be read again."""
    restarts, restart = list[int](), Writer.restart

    def counted(writer: Writer, epoch: int) -> bool:
        restarts.append(epoch)
        return restart(writer, epoch)

    monkeypatch.setattr(Writer, "restart", counted)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with sync.MemoryStore() as store, ThreadPoolExecutor(16) as pool:
            store.save("t", {"numbers": []})
            list(pool.map(lambda number: store.append("t", "numbers", number), range(600)))
            assert sorted(store.get("t", 601).state["numbers"]) == list(range(600))
    finally:
        sys.setswitchinterval(interval)
    assert restarts == []
