"""Leases are swaps too: by the rules of stores/decisions.py, a backend lets one writer in at a time."""

from collections.abc import Callable
from functools import partial

from holdfast.records.errors import Deleted, Fenced, LeaseHeld
from holdfast.records.head import encode_head
from holdfast.records.rows import Drop, Swap
from holdfast.records.words import Status
from holdfast.stores import decisions
from holdfast.stores.agenda import swap_of
from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.samples import Line, head, row, rows

LEASE = 30_000_000
NOW = 1_000_000_000


def refuses(error: type[Exception], decide: Callable[[], object]) -> None:
    """Check that the decision raises this error."""
    try:
        decide()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


class Leases(Kit):
    """Test that there is one writer at a time, whatever the clocks say."""

    def _begun(self) -> Line:
        line = Line(self.opened())
        line.put(head(1), rows(1))
        return line

    @staticmethod
    def _claim(line: Line, owner: str, now: int = NOW) -> int:
        claimed = decisions.claimed(line.head, "thread", owner, LEASE, now)
        line.put(claimed)
        return claimed.token

    @staticmethod
    def _row_by(line: Line, token: int | None, now: int, seq: int = 2) -> Swap:
        """Return the row that the holder of `token` (None: a one-shot write) may swap in now."""
        present = line.head
        decisions.check_may_write(present, "thread", token, now)
        after = head(seq, token=present.token, owner=present.owner, expires_at=present.expires_at)
        if token is None and present.owner:
            after = head(seq, token=present.token + 1)
        encoded = encode_head(line.key, present)
        return swap_of(line.key, present, encoded, after, encode_head(line.key, after), (row(seq),))

    def test_a_claim_is_kept(self) -> None:
        """The head has owner, token and expiry, and the status is working."""
        line = self._begun()
        token = self._claim(line, "me")
        assert (line.head.owner, line.head.token, line.head.expires_at) == ("me", token, NOW + LEASE)
        assert line.head.status == Status.WORKING

    def test_a_thread_that_never_was_can_be_claimed(self) -> None:
        """A run may begin before its first row."""
        line = Line(self.opened())
        line.put(decisions.claimed(None, "thread", "me", LEASE, NOW))
        assert line.head.owner == "me"
        assert line.head.seq == 0

    def test_a_held_thread_cannot_be_claimed(self) -> None:
        """The second claim raises an error that names the holder and the time left."""
        line = self._begun()
        self._claim(line, "me")
        try:
            self._claim(line, "you", NOW + LEASE // 2)
        except LeaseHeld as error:
            assert error.owner == "me"
            assert 14 < error.remaining <= 15
        else:
            raise AssertionError("a held thread was claimed")

    def test_of_two_claims_of_one_head_one_is_refused(self) -> None:
        """Both claims are right by the head they read; the swap accepts one."""
        line = self._begun()
        mine = line.swap(decisions.claimed(line.head, "thread", "me", LEASE, NOW))
        yours = line.swap(decisions.claimed(line.head, "thread", "you", LEASE, NOW))
        assert line.backend.swap([yours]) == [True]
        line.refused(mine)
        assert line.head.owner == "you"

    def test_a_one_shot_write_is_refused_while_a_lease_is_held(self) -> None:
        """It raises `LeaseHeld`; if it was decided before the claim, its swap is refused."""
        line = self._begun()
        early = self._row_by(line, None, NOW)
        self._claim(line, "me")
        line.refused(early)
        refuses(LeaseHeld, lambda: self._row_by(line, None, NOW + LEASE - 1))
        assert line.seqs == [1]

    def test_a_one_shot_write_ends_a_dead_lease(self) -> None:
        """After expiry it is accepted and raises the token, which fences the old holder for good."""
        line = self._begun()
        token = self._claim(line, "me")
        late = self._row_by(line, token, NOW + 1)
        assert line.backend.swap([self._row_by(line, None, NOW + LEASE)]) == [True]
        assert line.head.token == token + 1
        line.refused(late)
        refuses(Fenced, lambda: self._row_by(line, token, NOW + LEASE, 3))

    def test_a_stale_token_is_refused(self) -> None:
        """After a takeover the old holder is `Fenced`, and a swap it had ready is refused."""
        line = self._begun()
        old = self._claim(line, "me")
        ready = self._row_by(line, old, NOW + 1)
        new = self._claim(line, "you", NOW + LEASE)
        assert new == old + 1
        line.refused(ready)
        refuses(Fenced, lambda: self._row_by(line, old, NOW + LEASE))
        refuses(Fenced, lambda: decisions.renewed(line.head, "thread", old, LEASE, NOW))
        refuses(Fenced, lambda: decisions.released(line.head, "thread", old, Status.IDLE, NOW))
        assert line.backend.swap([self._row_by(line, new, NOW + LEASE)]) == [True]

    def test_a_holder_writes_though_its_lease_ran_out(self) -> None:
        """Until a takeover the token counts, not the clock."""
        line = self._begun()
        token = self._claim(line, "me")
        assert line.backend.swap([self._row_by(line, token, NOW + 10 * LEASE)]) == [True]

    def test_a_renewal_extends_the_lease(self) -> None:
        """A renewal keeps the token."""
        line = self._begun()
        token = self._claim(line, "me")
        line.put(decisions.renewed(line.head, "thread", token, LEASE, NOW + LEASE // 2))
        refuses(LeaseHeld, lambda: decisions.claimed(line.head, "thread", "you", LEASE, NOW + LEASE))
        assert line.head.token == token

    def test_a_renewal_and_a_takeover_cannot_both_succeed(self) -> None:
        """The later one is refused."""
        line = self._begun()
        token = self._claim(line, "me")
        renewal = line.swap(decisions.renewed(line.head, "thread", token, LEASE, NOW + LEASE))
        takeover = line.swap(decisions.claimed(line.head, "thread", "you", LEASE, NOW + LEASE))
        assert line.backend.swap([renewal]) == [True]
        line.refused(takeover)
        assert line.head.owner == "me"

    def test_a_release_lets_the_next_in(self) -> None:
        """The release sets the run's final status, and the next claim gets a higher token."""
        line = self._begun()
        token = self._claim(line, "me")
        line.put(decisions.released(line.head, "thread", token, Status.COMPLETE, NOW + 1))
        assert (line.head.status, line.head.owner) == (Status.COMPLETE, "")
        assert self._claim(line, "you", NOW + 2) == token + 1

    def test_a_clock_that_goes_back_lets_nobody_in(self) -> None:
        """It can only delay a takeover: tokens only rise, and there is one holder."""
        line = self._begun()
        tokens = [self._claim(line, "first")]
        for number, now in enumerate((NOW - LEASE, NOW - 1, 0)):
            refuses(LeaseHeld, partial(decisions.claimed, line.head, "thread", "you", LEASE, now))
            assert line.backend.swap([self._row_by(line, tokens[0], now, number + 2)]) == [True]
            line.stored = line.encoded or b""
        tokens.append(self._claim(line, "second", NOW + LEASE))
        line.put(decisions.renewed(line.head, "thread", tokens[1], LEASE, 0))
        tokens.append(self._claim(line, "third", NOW))
        assert tokens == sorted(set(tokens))
        assert line.seqs == [4, 3, 2, 1]

    def test_a_deleted_thread_takes_no_writer(self) -> None:
        """Claims and writes raise `Deleted`; the tombstone keeps the token."""
        line = self._begun()
        token = self._claim(line, "me")
        ready = self._row_by(line, token, NOW)
        line.put(decisions.deleted(line.head, NOW), drop=Drop(everything=True))
        line.refused(ready)
        refuses(Deleted, lambda: self._row_by(line, token, NOW))
        refuses(Deleted, lambda: decisions.claimed(line.head, "thread", "you", LEASE, NOW))
        assert line.head.token == token

    def test_a_revived_thread_takes_no_writer_of_its_former_life(self) -> None:
        """Tokens keep rising, so an old one is always refused, even if seq and owner are the same again."""
        line = self._begun()
        token = self._claim(line, "me")
        ready = self._row_by(line, token, NOW)
        line.put(decisions.deleted(line.head, NOW), drop=Drop(everything=True))
        line.put(decisions.revived(line.head))
        refuses(Fenced, lambda: self._row_by(line, token, NOW))
        line.put(head(1, token=line.head.token), rows(1))
        new = self._claim(line, "me")
        assert new > token + 1
        line.refused(ready)
        assert line.seqs == [1]
