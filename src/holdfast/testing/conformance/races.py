"""Several threads of one program on one backend: exactly one wins, and no reader sees half a swap."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TypeVar

from holdfast.records.head import decode_head
from holdfast.records.rows import Swap
from holdfast.stores.backend import Backend
from holdfast.testing.conformance.kit import Kit, needs_reopen
from holdfast.testing.conformance.samples import Line, blob, head, key, row, rows

T = TypeVar("T")
RACERS = 4


def race(contestants: list[Callable[[], T]]) -> list[T]:
    """Run all functions at the same moment, and return their results."""
    start = Barrier(len(contestants))

    def begin(contestant: Callable[[], T]) -> T:
        start.wait()
        return contestant()

    with ThreadPoolExecutor(len(contestants)) as pool:
        return list(pool.map(begin, contestants))


def _accepted(backend: Backend, swap: Swap) -> bool:
    return backend.swap([swap])[0]


class Races(Kit):
    """Test that every method may be called from any thread."""

    rounds = 25
    """How often each race is run; fewer for a store whose every call is slow."""

    def test_of_swaps_onto_one_head_exactly_one_wins(self) -> None:
        """In every round one is accepted, and head and row are the winner's."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        self._one_wins(line, [line.backend] * RACERS)

    @needs_reopen
    def test_of_two_backends_exactly_one_wins(self) -> None:
        """It is the same for two backends on one place, as in two processes."""
        line = Line(self.opened())
        line.put(head(1), rows(1))
        other = self.reopened(line.backend)
        self._one_wins(line, [line.backend, other] * (RACERS // 2))

    def _one_wins(self, line: Line, backends: list[Backend]) -> None:
        for seq in range(2, self.rounds + 2):
            swaps = [
                line.swap(head(seq, token=number), (row(seq, body=b"%d" % number),)) for number in range(len(backends))
            ]
            outcomes = race([partial(_accepted, at, swap) for swap, at in zip(swaps, backends, strict=True)])
            assert outcomes.count(True) == 1, f"{outcomes.count(True)} swaps onto one head were accepted"
            winner = outcomes.index(True)
            line.stored = swaps[winner].replacement
            assert line.encoded == line.stored
            assert line.backend.rows(line.key, seq)[-1] == row(seq, body=b"%d" % winner)

    def test_of_two_first_swaps_exactly_one_makes_the_thread(self) -> None:
        """Two first swaps race like any others."""
        backend = self.opened()
        for number in range(self.rounds):
            line = Line(backend, key(f"thread {number}"))
            swaps = [line.swap(head(1, token=token), (row(1, body=b"%d" % token),)) for token in range(RACERS)]
            outcomes = race([partial(_accepted, backend, swap) for swap in swaps])
            assert outcomes.count(True) == 1
            winner = outcomes.index(True)
            assert line.encoded == swaps[winner].replacement
            assert backend.rows(line.key, 1) == [row(1, body=b"%d" % winner)]

    def test_swaps_of_different_threads_do_not_hinder_each_other(self) -> None:
        """All of them are accepted."""
        backend = self.opened()
        lines = [Line(backend, key(f"thread {number}")) for number in range(RACERS)]

        def write(line: Line) -> None:
            for seq in range(1, self.rounds):
                line.put(head(seq), rows(seq))

        race([partial(write, line) for line in lines])
        for line in lines:
            assert line.seqs == list(range(self.rounds - 1, 0, -1))

    def test_of_messages_of_one_key_exactly_one_stays(self) -> None:
        """One call returns True, and its message is there."""
        backend = self.opened()
        for number in range(self.rounds):
            name = f"message {number}"
            outcomes = race([partial(backend.post, key(), name, b"%d" % value) for value in range(RACERS)])
            assert outcomes.count(True) == 1
            assert backend.inbox(key())[name] == b"%d" % outcomes.index(True)

    def test_a_reader_never_sees_a_head_before_its_row_and_blob(self) -> None:
        """Whatever head is read, its row and blob are there."""
        line = Line(self.opened())
        line.put(head(1), (row(1, 1),), dict([blob(1)]))
        backend = line.backend

        def write() -> list[int]:
            for seq in range(2, self.rounds * 4):
                line.put(head(seq, base=seq), (row(seq, seq),), dict([blob(seq)]))
            return []

        def read() -> list[int]:
            seen: list[int] = []
            while not seen or seen[-1] < self.rounds * 4 - 1:
                encoded = backend.heads([line.key])[0]
                assert encoded is not None
                seq = decode_head(line.key, encoded).seq
                assert backend.rows(line.key, seq) == [row(seq, seq)]
                assert backend.blobs(line.key, [blob(seq)[0]]) == dict([blob(seq)])
                seen.append(seq)
            return seen

        _, seen = race([write, read])
        assert seen == sorted(seen), "a reader saw an older head after a newer one"
