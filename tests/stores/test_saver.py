"""The write path under an interrupt, after which a notebook or a console goes on; and with many threads at once."""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import KeyReused, sync
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


@pytest.mark.parametrize("path", ["events", ["page", "events"]], ids=["a list", "a list within a value"])
def test_an_item_is_appended_once_under_a_key(path: Any) -> None:
    with sync.MemoryStore() as store:
        store.save("t", {"events": ["first"], "page": {"events": ["first"]}})
        for item, key in (("a", "1"), ("b", "2"), ("a", None), ("a", "1")):
            latest = store.append("t", path, item, idempotency_key=key)
        events = latest.state["events"] if path == "events" else latest.state["page"]["events"]
        assert events == ["first", "a", "b", "a"]
        with pytest.raises(KeyReused, match="was used for other content"):
            store.append("t", path, "c", idempotency_key="1")
