"""The write path under an interrupt, after which a notebook or a console goes on; and with many threads at once."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread, main_thread
from typing import Any

import pytest

from holdfast import KeyReused, sync
from holdfast.ports import Ticket
from holdfast.records.rows import Swap
from holdfast.stores.committer import Committer
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.writer import Writer
from holdfast.testing.handles import blocking_store
from patience import GIVE_UP_SECONDS


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


def test_a_key_is_not_recorded_by_a_write_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads save under one key; a write of the first is refused, and it has not written again yet."""
    restart, entered, saved = Writer.restart, Event(), Event()
    backend = MemoryBackend()

    def contended(writer: Writer, epoch: int) -> bool:
        if current_thread() is not main_thread():
            entered.set()
            saved.wait(GIVE_UP_SECONDS)
            return restart(writer, epoch)
        is_fresh = restart(writer, epoch)
        if not entered.is_set():
            other.save("t", {"a": 2})
            pool.submit(store.save, "t", {"a": 9}, idempotency_key="key")
            assert entered.wait(GIVE_UP_SECONDS)
        return is_fresh

    with blocking_store(backend) as store, blocking_store(backend) as other, ThreadPoolExecutor(1) as pool:
        store.save("t", {"a": 0}, idempotency_key="first")
        other.save("t", {"a": 1})
        monkeypatch.setattr(Writer, "restart", contended)
        checkpoint, latest = store.save("t", {"a": 9}, idempotency_key="key"), other.latest("t")
        saved.set()
        assert latest is not None
        assert (latest.id, latest.state) == (checkpoint.id, {"a": 9})
    assert entered.is_set()


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
