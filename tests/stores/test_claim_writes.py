"""Writes under a claim: in their order, and no more than what they say."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Fenced, OutcomeUnknown, sync
from holdfast.codec import encode
from holdfast.records.head import decode_head
from holdfast.records.rows import Swap
from holdfast.stores.claim import Claim, Gate, take
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.writer import Intent

JOURNAL = ("journal",)


def append(**said: Any) -> Intent:
    return Intent(appends=((JOURNAL, encode(["mark", "x"])),), **said)


@pytest.fixture
def claim() -> Iterator[Claim]:
    with sync.MemoryStore() as store:
        inner = store._store
        thread = inner._reader.key("t")
        claim = take(inner._ports, inner._reader, inner._committer, thread, 30_000_000)
        claim.wait_for(claim.submit(Intent(appends=((JOURNAL, encode(["mark", "first"])),))))
        yield claim


def test_a_write_is_kept_back_while_one_before_it_is_held(claim: Claim) -> None:
    claim.gate = Gate()
    pending = claim.submit(append())
    assert not claim.committer._queue
    assert len(claim.gate.kept_back) == 1
    claim.pass_on()
    claim.wait_for(pending)


def test_a_write_after_the_release_is_refused(claim: Claim) -> None:
    claim.wait_for(claim.release("idle"))
    with pytest.raises(Fenced):
        claim.submit(append())


def test_a_write_that_was_refused_is_made_again_as_it_was() -> None:
    with sync.MemoryStore() as store, store.run("t") as run:
        run.step("first", lambda: 1)
        claim = run._run._ledger.claim
        pending = claim.submit(append(cause="error", metadata=encode({"step": "again"})))
        store.pin(store.history("t").items[0].id)  # the head is another now, and still the run's
        claim.wait_for(pending)
        (newest, *_) = store.history("t").items
        assert (newest.cause, newest.metadata) == ("error", {"step": "again"})


def test_the_log_of_sqlite_is_folded_in_after_many_messages(tmp_path: Path) -> None:
    with sync.open(tmp_path / "x.db", durability="process") as store:
        store.save("t", {})
        backend = store._store._backend
        for number in range(1_000):
            backend.post(b"\0t", f"key {number}", b"x")
        assert (tmp_path / "x.db-wal").stat().st_size < 3 << 20


def test_an_append_over_a_lease_that_expired_ends_it() -> None:
    """The run that had it is refused from then on, though the append says nothing but what to append."""
    with sync.MemoryStore() as store:
        inner = store._store
        store.save("t", {"letters": ["a"]})
        thread = inner._reader.key("t")
        claim = take(inner._ports, inner._reader, inner._committer, thread, 1)
        store.append("t", "letters", "b")
        seen = inner._reader.seen(thread)
        assert seen is not None
        assert (seen.head.token, seen.head.owner, seen.head.expires_at) == (claim.token + 1, "", 0)
        pending = claim.submit(Intent(appends=((("state", "letters"), encode("late")),)))
        with pytest.raises(Fenced):
            claim.wait_for(pending)
        latest = store.latest("t")
        assert latest is not None
        assert latest.state == {"letters": ["a", "b"]}


def test_an_append_that_says_more_than_what_to_append_says_it(claim: Claim) -> None:
    item = ((JOURNAL, encode(["mark", "more"])),)
    backend = claim._reader.backend
    backend.post(claim.thread, "message", b"x")
    claim.wait_for(claim.submit(Intent(appends=item, consumed=("message",))))
    assert backend.inbox(claim.thread) == {}
    claim.wait_for(claim.submit(Intent(appends=item, labels={"user": "ana"})))
    tokens = claim._reader.bindings.label_tokens({"user": "ana"})
    assert [thread for thread, _ in backend.threads(b"", (), [tokens], None, 9).heads] == [claim.thread]
    claim.wait_for(claim.submit(Intent(appends=item, status="input_required")))
    assert claim.writer.seen.head.status == "input_required"
    assert [thread for thread, _ in backend.threads(b"", ("input_required",), [], None, 9).heads] == [claim.thread]


def test_each_append_of_a_run_lengthens_its_lease(claim: Claim) -> None:
    before = claim.writer.seen.head.expires_at
    claim.wait_for(claim.submit(append()))
    assert claim.writer.seen.head.expires_at > before


def test_a_store_that_never_says_what_became_of_a_write_ends_the_run() -> None:
    class Silent(MemoryBackend):
        tried = 0
        is_silent = False

        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            if self.is_silent:
                self.tried += 1
                raise OutcomeUnknown("disk I/O error")
            return super().swap(swaps, wait=wait)

    backend = Silent()
    with sync.Store(backend) as store, suppress(OutcomeUnknown), store.run("t") as run:
        run.step("first", lambda: 1)
        backend.is_silent = True
        with pytest.raises(OutcomeUnknown):
            run.step("second", lambda: 2)
    assert 0 < backend.tried < 64


def test_a_claim_is_undone_though_another_write_comes_between(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queued write of the claim, or a pin, may change the head after the release has read it."""
    backend, swap = claim._reader.backend, MemoryBackend.swap
    queued = claim.submit(append())

    def swap_after_the_queued_one(backend: MemoryBackend, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        monkeypatch.undo()
        claim.wait_for(queued)
        return swap(backend, swaps, wait=wait)

    monkeypatch.setattr(MemoryBackend, "swap", swap_after_the_queued_one)
    claim.undo()
    (stored,) = backend.heads([claim.thread])
    assert stored is not None
    assert decode_head(claim.thread, stored).owner == ""
