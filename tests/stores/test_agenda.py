"""The agenda: what follows from a head, which swaps touch it, that all backends agree, and that damage is found."""

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

import holdfast.sync as holdfast
from holdfast.records.head import FORMAT, PLAIN, Head, decode_head, encode_head
from holdfast.records.rows import Swap
from holdfast.records.words import Durability
from holdfast.stores.agenda import (
    HIDE,
    NO_LIMITS,
    PARKED,
    Entry,
    Pace,
    QueueLimits,
    Taken,
    after_taking,
    agrees,
    entry_of,
    moves,
)
from holdfast.stores.file.backend import FileBackend
from holdfast.stores.listed_agenda import agenda_of
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.sqlite import SQLiteBackend
from holdfast.stores.sqlite_agenda import SQLiteAgenda
from holdfast.testing.conformance import check
from holdfast.testing.conformance.agendas import PREFIX, ROUTE, queued
from holdfast.testing.conformance.samples import Line, key, rows
from holdfast.testing.faults import FaultyBackend

BEGUN = b"route 3 "
HELD = {"status": "working", "token": 1, "owner": "me", "expires_at": 9_000}


@pytest.mark.parametrize(
    ("fields", "held", "due"),
    [
        ({"status": "queued"}, False, 1_000),
        ({"status": "queued", "expires_at": 7_000}, False, 7_000),
        ({"status": "working"}, False, 1_000),
        ({"status": "working", "expires_at": 7_000}, False, 7_000),
        (HELD, True, 9_000),
        ({"status": "input_required", "expires_at": 7_000}, False, 7_000),
        ({"status": "input_required"}, False, PARKED),
    ],
)
def test_an_open_thread_has_an_entry(fields: dict[str, Any], held: bool, due: int) -> None:
    after = queued(**{"priority": 1, "lane": b"l", **fields})
    assert entry_of(after) == Entry("q", ROUTE, 1, b"l", held, due)
    assert entry_of(replace(after, route=b"")) is None


@pytest.mark.parametrize("status", ["idle", "complete", "failed", "cancelled", ""])
def test_a_closed_thread_has_none(status: str) -> None:
    assert entry_of(queued(status=status)) is None
    assert entry_of(queued(**{**HELD, "status": status})) is None
    assert entry_of(queued(deleted=True)) is None


def test_appends_and_renewals_move_nothing() -> None:
    held = queued(**HELD)
    assert not moves(held, replace(held, seq=2, updated_at=2_000, expires_at=10_000))
    assert not moves(queued(), queued(updated_at=2_000))
    assert not moves(Head(status="idle"), Head(status="working", owner="me", expires_at=1))
    assert moves(held, replace(held, expires_at=8_000)), "earlier: the clock was set back"
    assert moves(held, replace(held, token=2, expires_at=10_000)), "taken over"
    assert moves(queued(), held)
    assert moves(held, replace(held, route=b"other"))
    assert moves(queued(), queued(expires_at=5_000))
    assert moves(queued(), queued(status="complete"))


def test_a_head_without_a_place_is_written_as_before() -> None:
    plain, placed = Head(status="idle"), queued()
    assert len(encode_head(b"\0t", plain)) < len(encode_head(b"\0t", replace(placed, queue="", lane=b"")))
    for each in (plain, placed):
        assert decode_head(b"\0t", encode_head(b"\0t", each)) == each
    assert (plain.format, placed.format) == (PLAIN, FORMAT)
    with pytest.raises(holdfast.Corrupt, match="which has no queue"):
        decode_head(b"\0t", encode_head(b"\0t", replace(placed, format=PLAIN)))


# Rule 1, on a real store


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with closing(holdfast.open(tmp_path / "holdfast.db")) as opened:
        yield opened


def test_steps_saves_and_renewals_never_write_the_agenda(store: Any) -> None:
    written: list[int] = []
    real = SQLiteAgenda.put

    def spy(self: SQLiteAgenda, *arguments: Any) -> None:
        written.append(arguments[1])
        real(self, *arguments)

    @holdfast.durable(store=store, name="agenda steps")
    def steps() -> int:
        run, before = holdfast.current(), len(written)
        for number in range(20):
            run.step(f"s{number}", int)
        return len(written) - before

    with patch.object(SQLiteAgenda, "put", spy):
        store.save("plain", {"a": 1})
        store.append("plain", "list", 1)
        with store.run("block") as run:
            run.step("s", int)
        assert written == []
        assert steps.run("t") == 0
        assert len(written) == 2, "the first row, and the end"


# All backends agree


class Clock:
    """A time that all backends of a test share."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def _limits(random: Random) -> QueueLimits:
    if random.random() < 0.4:
        return NO_LIMITS
    pace = Pace(b"bucket", 800_000, random.choice([0, 800_000])) if random.random() < 0.4 else None
    return QueueLimits(random.choice([None, 2, 4]), random.choice([None, 1, 2]), pace, frozenset([ROUTE]))


def _check_limits(backend: Any, taken: Taken, limits: QueueLimits) -> None:
    """What was free and is taken now is within the limits, together with what was held."""
    held = [entry for entry in backend.entries(PREFIX).values() if entry.held]
    for due in taken.entries:
        if not due.entry.held:
            assert limits.concurrency is None or len(held) <= limits.concurrency
            assert limits.each is None or sum(each.lane == due.entry.lane for each in held) <= limits.each


class Story:
    """Writes, calls, looks and takes at random, the same on all backends; after each, all of them agree."""

    def __init__(self, backends: Sequence[Any], clock: Clock, random: Random, *, has_low: bool = True) -> None:
        self._backends = backends
        self._clock = clock
        self._random = random
        self._has_low = has_low
        """False for a backend that finds what was due before the low-water mark too, as it may."""
        self._heads: dict[int, Head] = {}
        self._called: dict[int, set[str]] = {}

    def tell(self) -> None:
        """Tell it."""
        verbs = [self._write] * 5 + [self._look, self._call, self._take, self._take, self._spend]
        for seq in range(2, 250):
            self._clock.now += self._random.randrange(1, 700_000)
            self._random.choice(verbs)(seq, self._random.randrange(12))
            self._compare()

    def _each(self, verb: Callable[[Any], Any]) -> Any:
        """Do the same with all backends, which must answer the same."""
        answers = [verb(backend) for backend in self._backends]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    def _write(self, seq: int, number: int) -> None:
        random, now = self._random, self._clock.now
        status = random.choice(["queued", "working", "working", "input_required", "complete", "failed"])
        owner = random.choice(["", "me"]) if status == "working" else ""
        due = random.choice([0, now + random.randrange(3_000_000)])
        lane, route = random.choice([b"", b"a", b"b"]), random.choice([ROUTE, BEGUN])
        old = self._heads.get(number, queued(lane=lane, priority=random.randrange(-2, 3), route=route))
        after = replace(old, seq=seq, updated_at=now, checkpoint=seq)
        if random.random() > 0.3:
            token = old.token + bool(owner)
            after = replace(after, status=status, owner=owner, token=token, expires_at=due or (seq if owner else 0))
        self._heads[number] = after
        called = self._called.setdefault(number, set())
        heard = random.choice([None, frozenset(called), frozenset(sorted(called)[:1]) | {"never left"}])
        consumed = tuple(sorted(called)[:1]) if random.random() < 0.3 else ()
        called.difference_update(consumed)

        def put(backend: Any) -> list[bool]:
            line = Line(backend, key(f"t{number}"))
            line.stored = line.encoded or b""
            swap = line.swap(after, rows(seq), consumed=consumed)
            return list(backend.swap([replace(swap, heard=heard)]))

        assert self._each(put) == [True]

    def _look(self, _: int, number: int) -> None:
        due = self._clock.now + self._random.randrange(-10, 2_000_000)
        self._each(lambda backend: backend.look_again(key(f"t{number}"), due))

    def _call(self, _: int, number: int) -> None:
        if number in self._heads:
            name = self._random.choice(["1", "2", "tell:x"])
            is_new = self._each(lambda backend: backend.call(key(f"t{number}"), name, b"message"))
            assert is_new == (name not in self._called[number])
            self._called[number].add(name)

    def _take(self, _: int, __: int) -> None:
        random, limits = self._random, _limits(self._random)
        most, lane = random.randrange(1, 4), random.choice([b"", b"a", b"b"])
        low = random.choice([0, self._clock.now - random.randrange(3_000_000)]) if self._has_low else 0
        now = self._clock.now

        def take(backend: Any) -> Taken:
            taken: Taken = backend.take(PREFIX, "q", [ROUTE, BEGUN], most, lane, limits, low)
            return replace(taken, next_due=max(taken.next_due, now))

        taken = self._each(take)
        _check_limits(self._backends[0], taken, limits)
        for each in taken.entries[1:]:  # what is due at the same time has no order
            self._each(lambda backend, each=each: backend.look_again(each.thread, PARKED))  # type: ignore[misc]

    def _spend(self, _: int, __: int) -> None:
        cost, burst = self._random.randrange(-500_000, 900_000), self._random.choice([0, 400_000])
        self._each(lambda backend: backend.spend(b"bucket", cost, burst))

    def _compare(self) -> None:
        entries = self._each(lambda backend: backend.entries(PREFIX))
        self._each(lambda backend: backend.depth(PREFIX, "q"))
        for number, after in self._heads.items():
            assert agrees(entries.get(key(f"t{number}")), entry_of(after), self._clock.now)


@pytest.mark.parametrize("seed", range(6))
def test_sqlite_tells_the_same_story_as_memory(tmp_path: Path, seed: int) -> None:
    clock = Clock()
    backends: list[Any] = [MemoryBackend(), SQLiteBackend(str(tmp_path / "model.db"), Durability.PROCESS)]
    for backend in backends:
        backend.open()
        backend.now = clock
    Story(backends, clock, Random(seed)).tell()
    backends[1].close()


def test_a_worker_that_died_after_taking_delays_a_thread_by_a_moment() -> None:
    backend, clock = MemoryBackend(), Clock()
    backend.now = clock  # type: ignore[method-assign]
    Line(backend).put(queued(), rows(1))
    assert backend.take(PREFIX, "q", [ROUTE], 1).entries
    clock.now += HIDE - 1
    assert not backend.take(PREFIX, "q", [ROUTE], 1).entries
    clock.now += 1
    assert backend.take(PREFIX, "q", [ROUTE], 1).entries


# Broken agendas


class Forgetful(FaultyBackend):
    """Never updates an entry."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        return self.inner.swap([replace(swap, moves=not swap.expected) for swap in swaps], wait=wait)


class Late(FaultyBackend):
    """Never looks again: what was taken, or poked, stays as it is."""

    def look_again(self, thread: bytes, due: int) -> None:
        """Does nothing."""


class Deaf(FaultyBackend):
    """Releases a thread although nobody has heard its messages."""

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        return self.inner.swap([replace(swap, heard=None) for swap in swaps], wait=wait)


class Silent(FaultyBackend):
    """Leaves messages, and says nothing."""

    def call(self, thread: bytes, key: str, value: bytes) -> bool:
        return self.inner.post(thread, key, value)


class Brief(FaultyBackend):
    """Never says that there is more."""

    def take(self, *arguments: Any, **limits: Any) -> Taken:
        return replace(super().take(*arguments, **limits), has_more=False)


class Generous(FaultyBackend):
    """Gives what nobody asked for."""

    def take(self, prefix: bytes, queue: str, routes: Collection[bytes], most: int, *rest: Any, **limits: Any) -> Taken:
        return super().take(prefix, queue, [*routes, b"route 2 "], most, *rest, **limits)


class Forgiving(FaultyBackend):
    """Gives everything to everybody."""

    def take(self, prefix: bytes, queue: str, routes: Collection[bytes], most: int, *rest: Any, **limits: Any) -> Taken:
        taken = super().take(prefix, queue, routes, most, *rest, **limits)
        for due in taken.entries:
            self.inner.look_again(due.thread, PARKED)  # type: ignore[attr-defined]
        return taken


class Unfair(FaultyBackend):
    """Begins with the same lane each time."""

    def take(self, prefix: bytes, queue: str, routes: Collection[bytes], most: int, *rest: Any, **limits: Any) -> Taken:
        return super().take(prefix, queue, routes, most, b"", *rest[1:], **limits)


class Unlimited(FaultyBackend):
    """Keeps no limit of this kind."""

    def take(  # type: ignore[override]
        self, prefix: bytes, queue: str, routes: Collection[bytes], most: int, after: bytes = b"", **limits: Any
    ) -> Taken:
        given = self.without(limits.get("limits", NO_LIMITS))
        return super().take(prefix, queue, routes, most, after, given)

    def without(self, limits: QueueLimits) -> QueueLimits:
        return limits


class Crowded(Unlimited):
    """Holds more of a queue than its concurrency."""

    def without(self, limits: QueueLimits) -> QueueLimits:
        return replace(limits, concurrency=None)


class Greedy(Unlimited):
    """Holds more of a lane than its limit."""

    def without(self, limits: QueueLimits) -> QueueLimits:
        return replace(limits, each=None)


class Hasty(Unlimited):
    """Begins threads at any pace."""

    def without(self, limits: QueueLimits) -> QueueLimits:
        return replace(limits, pace=None)


class Rich(FaultyBackend):
    """Grants everything."""

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        super().spend(bucket, cost, burst)
        return 0


class Charging(FaultyBackend):
    """Charges what it refuses."""

    def spend(self, bucket: bytes, cost: int, burst: int) -> int:
        wait = super().spend(bucket, cost, burst)
        return wait and wait + super().spend(bucket, cost, PARKED)


class Loose(FaultyBackend):
    """Gives the place of a taken thread away when the thread is called."""

    def look_again(self, thread: bytes, due: int) -> None:
        if due <= self.inner.now():  # type: ignore[attr-defined]
            super().look_again(thread, PARKED)
        super().look_again(thread, due)


class Stuck(FaultyBackend):
    """Keeps a place for a thread that cannot be read."""

    def take(self, *arguments: Any, **limits: Any) -> Taken:
        with patch("holdfast.stores.memory.after_taking", lambda *given, **_: after_taking(*given, is_readable=True)):
            return super().take(*arguments, **limits)


BROKEN = [Forgetful, Late, Deaf, Silent, Brief, Generous, Forgiving, Unfair, Crowded, Greedy, Hasty]
BROKEN += [Rich, Charging, Loose, Stuck]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_agenda_breaks_a_promise(broken: Callable[[MemoryBackend], Any]) -> None:
    with pytest.raises(AssertionError, match="broken promise: "):
        check(lambda: broken(MemoryBackend()))


@pytest.mark.parametrize(
    "damage", ["DELETE FROM agenda", "UPDATE agenda SET due = due + 60000000", "UPDATE agenda SET place = x'78'"]
)
def test_verify_finds_what_differs_from_the_heads(tmp_path: Path, damage: str) -> None:
    import sqlite3

    path = tmp_path / "holdfast.db"
    with holdfast.open(path) as opened:
        opened.submit("app:f", "a", (1,))
        assert opened.verify().ok
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(damage)
    with holdfast.open(path) as opened:
        (problem,) = opened.verify().problems
        assert (problem.thread_id, problem.record) == ("a", "agenda")
        assert "store.recover()" in problem.message


def test_a_backup_and_a_copy_have_the_agenda(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "a.db") as opened, holdfast.open(tmp_path / "b.db") as target:
        opened.submit("app:f", "a", (1,), priority=2)
        opened.backup(tmp_path / "c.db")
        opened.copy_to(target)
        wanted = agenda_of(opened._store._backend).entries(PREFIX)
        with holdfast.open(tmp_path / "c.db") as backup:
            for each in (target, backup):
                assert agenda_of(each._store._backend).entries(PREFIX) == wanted != {}
                assert each.verify().ok


def test_a_backend_without_an_agenda_lists_its_threads(tmp_path: Path) -> None:
    assert check(lambda: FileBackend(str(tmp_path / str(len(list(tmp_path.iterdir()))))))
