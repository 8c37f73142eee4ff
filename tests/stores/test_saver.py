"""The write path under an interrupt, after which a notebook or a console goes on."""

import pytest

from holdfast import sync
from holdfast.ports import Ticket
from holdfast.records.rows import Swap
from holdfast.stores.committer import Committer


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
