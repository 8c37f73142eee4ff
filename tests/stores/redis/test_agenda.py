"""The agenda in Redis: it is what the heads say, or earlier, whatever dies between a swap and its entry."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import pairwise, product
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.records.head import Head
from holdfast.records.rows import Drop
from holdfast.stores.agenda import HIDE, PARKED, Pace, QueueLimits, Sweeping, Taken, agrees, entry_of
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.redis import RedisBackend
from holdfast.stores.redis.wire import Wire
from holdfast.testing.conformance.agendas import HOUR, OTHER, PREFIX, ROUTE, queued
from holdfast.testing.conformance.samples import Line, head, key, rows
from kinds import parameters
from servers.redis import new_prefix, shared_server
from stores.redis.scenes import KINDS, backend_in, store_in
from stores.test_agenda import Clock, Story

in_both = pytest.mark.parametrize("kind", parameters(*KINDS, quick={"server"}, rare={"cluster"}))
START = 1_000_000


@in_both
@pytest.mark.parametrize("seed", range(4))
def test_redis_tells_the_same_story_as_memory(kind: str, seed: int) -> None:
    clock = Clock()
    backends: list[Any] = [MemoryBackend(), backend_in(kind, new_prefix())]
    for backend in backends:
        backend.open()
    backends[0].now = backends[1]._clock.now = clock
    Story(backends, clock, Random(seed), has_low=False).tell()
    backends[1].close()


# A writer that dies


class Died(Exception):
    """This process is no more."""


def at_call(number: int, action: Callable[[], object]) -> Callable[[int], None]:
    """Something to do before this call."""

    def before(call: int) -> None:
        if call == number:
            action()

    return before


class Mortal:
    """Counts the calls to the servers, and dies before one of them, or after it."""

    def __init__(self, wire: Wire, at: int | None = None, *, after: bool = False) -> None:
        self._send, self._at, self._after = wire._send, at, after
        self.calls = 0
        self.before: Callable[[int], None] = lambda _: None
        wire._send = self.send  # type: ignore[method-assign]

    def send(self, *arguments: Any, **options: Any) -> list[Any]:
        self.calls += 1
        self.before(self.calls)
        if self.calls == self._at and not self._after:
            raise Died
        replies = self._send(*arguments, **options)
        if self.calls == self._at:
            raise Died
        return replies


MINE: dict[str, Any] = {"status": "working", "token": 1, "owner": "me"}
LEASED = queued(**MINE, expires_at=START + HOUR)
MOVES: dict[str, tuple[Head | None, Head]] = {
    "submit": (None, queued(updated_at=START)),
    "submit for later": (None, queued(updated_at=START, expires_at=START + HOUR)),
    "begin": (None, LEASED),
    "claim": (queued(updated_at=START), LEASED),
    "claim with a version": (queued(updated_at=START), replace(LEASED, route=OTHER)),
    "release": (LEASED, queued(status="working", token=1, updated_at=START)),
    "wait": (LEASED, queued(status="input_required", token=1)),
    "retry": (LEASED, queued(status="working", token=1, expires_at=START + HOUR // 2)),
    "end": (LEASED, queued(status="complete", token=1)),
    "another queue": (queued(updated_at=START), queued(queue="other", updated_at=START + 5)),
    "delete": (queued(updated_at=START), head(0, deleted=True, status="")),
}


def opened(kind: str, prefix: str, clock: Clock) -> RedisBackend:
    backend = backend_in(kind, prefix)
    backend.open()
    backend._clock.now = clock  # type: ignore[method-assign]
    return backend


def move(backend: RedisBackend, after: Head) -> None:
    """Swap the head of the thread, whatever it is now."""
    line = Line(backend)
    line.stored = line.encoded or b""
    line.put(after, rows(max(after.seq, 1)), drop=Drop(everything=after.deleted))


def head_of(backend: RedisBackend) -> Head:
    """The present head of the thread."""
    line = Line(backend)
    return line.head if line.encoded else Head()


def is_sound(backend: RedisBackend, now: int) -> bool:
    """True if the entry is as the head says, earlier, or just taken."""
    found = backend.entries(PREFIX)
    assert found.keys() <= {key()}
    return agrees(found.get(key()), entry_of(head_of(backend)), now)


def work(backend: RedisBackend, clock: Clock) -> set[bytes]:
    """Look at everything that is due by and by, as workers do; returns what was found."""
    seen: set[bytes] = set()
    for _ in range(4):
        for queue in ("q", "other"):
            for due in backend.take(PREFIX, queue, [ROUTE, OTHER], 10).entries:
                seen.add(due.thread)
                backend.look_again(due.thread, PARKED)
        clock.now += HIDE
    return seen


def stored_places(backend: RedisBackend) -> list[bool]:
    return [place.is_settled for place in backend._agenda._places(PREFIX).values()]


@in_both
@pytest.mark.parametrize("name", MOVES)
def test_a_writer_that_dies_at_any_call_leaves_no_late_entry(kind: str, name: str) -> None:
    before, after = MOVES[name]
    for at, is_after in product(range(1, 5), (False, True)):
        clock, prefix = Clock(), new_prefix()
        with closing(opened(kind, prefix, clock)) as backend, closing(opened(kind, prefix, clock)) as other:
            if before is not None:
                move(backend, before)
            Mortal(backend.wire, at + 1, after=is_after)  # the first call reads the head
            with suppress(Died):
                move(backend, after)
            assert is_sound(other, clock.now), (at, is_after)
            wanted = entry_of(head_of(other))
            seen = work(other, clock)
            if wanted is not None and wanted.due <= START + 3 * HIDE:
                assert seen == {key()}, (at, is_after)
            assert is_sound(other, clock.now)
            assert stored_places(other) == [True] * (wanted is not None), (at, is_after)


def test_a_swap_that_moves_an_entry_is_three_calls_and_an_append_is_one() -> None:
    with closing(opened("server", new_prefix(), Clock())) as backend:
        line = Line(backend)
        counted = Mortal(backend.wire)
        line.put(LEASED, rows(1))
        assert counted.calls == 3
        line.put(replace(LEASED, seq=2, expires_at=START + 2 * HOUR), rows(2))
        assert counted.calls == 4


def test_a_submit_and_an_append_of_a_store_cost_these_commands() -> None:
    prefix = new_prefix()

    def scripts() -> int:
        with shared_server().client() as client:
            return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

    with store_in("server", prefix) as store:
        store.submit("app:f", "warm", (1,))
        store.append("plain", "list", 0)
        counts = [scripts()]
        store.append("plain", "list", 1)
        counts.append(scripts())
        store.submit("app:f", "a", (1,))
        counts.append(scripts())
        assert [later - sooner for sooner, later in pairwise(counts)] == [1, 3]
        assert store.verify().ok


# Two writers at once


@in_both
@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("first", ["release", "retry", "end", "wait"])
@pytest.mark.parametrize("second", ["submit", "begin", "end"])
def test_of_two_writers_neither_makes_an_entry_late(kind: str, first: str, second: str, dies: bool) -> None:
    """The second one acts within the first one, before each of its calls, and dies at each of its own."""
    takes_over = replace(MOVES[second][1], token=2, seq=2)
    for at, death in product(range(2, 5), range(2, 5) if dies else (None,)):
        clock, prefix = Clock(), new_prefix()
        with closing(opened(kind, prefix, clock)) as one, closing(opened(kind, prefix, clock)) as two:
            move(one, LEASED)

            def intervene(two: RedisBackend = two, death: int | None = death) -> None:
                Mortal(two.wire, death, after=True)
                with suppress(Died):
                    move(two, takes_over)

            Mortal(one.wire).before = at_call(at, intervene)
            with suppress(AssertionError):  # its swap was refused
                move(one, MOVES[first][1])
            assert is_sound(one, clock.now), (at, death)
            wanted = entry_of(head_of(one))
            work(one, clock)
            assert is_sound(one, clock.now), (at, death)
            assert stored_places(one) == [True] * (wanted is not None), (at, death)


def test_a_look_that_read_an_old_head_does_not_hide_a_new_one() -> None:
    clock, prefix = Clock(), new_prefix()
    with closing(opened("server", prefix, clock)) as one, closing(opened("server", prefix, clock)) as two:
        move(one, LEASED)
        Mortal(one.wire).before = at_call(4, lambda: move(two, MOVES["release"][1]))
        one.look_again(key(), PARKED)
        assert [due.thread for due in two.take(PREFIX, "q", [ROUTE], 1).entries] == [key()]


def test_a_look_between_mark_and_swap_does_not_undo_the_mark() -> None:
    clock, prefix = Clock(), new_prefix()
    with closing(opened("server", prefix, clock)) as one, closing(opened("server", prefix, clock)) as two:
        move(one, LEASED)
        Mortal(one.wire, 3, after=True).before = at_call(3, lambda: two.look_again(key(), PARKED))
        with pytest.raises(Died):
            move(one, MOVES["release"][1])
        assert is_sound(two, clock.now)
        clock.now += HIDE
        assert [due.thread for due in two.take(PREFIX, "q", [ROUTE], 1).entries] == [key()]


def test_a_look_that_found_no_thread_does_not_forget_one_that_was_created_late() -> None:
    """Its writer was paused for so long, after it had marked the entry, that a worker looked before the thread was."""
    clock, prefix = Clock(), new_prefix()
    with closing(opened("server", prefix, clock)) as one, closing(opened("server", prefix, clock)) as two:
        swap = Line(one).swap(queued(updated_at=START), rows(1))
        marks = one._agenda.mark([swap])
        clock.now += HIDE

        def create() -> None:
            assert one.wire.attempt([one._swaps.request(swap)], writing=True) == [1]
            one._agenda.settle(marks, [swap], [True])

        worker = Mortal(two.wire)
        worker.before = at_call(5, create)
        assert two.take(PREFIX, "q", [ROUTE], 1).entries == []
        assert worker.calls == 5, "the last call would forget the entry"
        assert is_sound(two, clock.now)
        assert work(two, clock) == {key()}


# Repair


def agenda_keys(prefix: str) -> Iterator[bytes]:
    with shared_server().client() as client:
        yield from (name for name in client.scan_iter(f"{prefix}:*") if b"}:a" in name)


def test_a_sweep_restores_lost_entries_and_forgets_those_without_a_thread() -> None:
    prefix = new_prefix()
    with store_in("server", prefix) as store, closing(backend_in("server", prefix)) as backend:
        assert isinstance(backend, Sweeping)
        store.submit("app:f", "a", (1,))
        store.submit("app:f", "b", (1,), delay=3600)
        assert backend.sweep(PREFIX) == 0
        with shared_server().client() as client:
            client.delete(*agenda_keys(prefix))
        assert {problem.record for problem in store.verify().problems} == {"agenda"}
        assert backend.sweep(PREFIX) == 2
        assert store.verify().ok
        with shared_server().client() as client:
            client.delete(*(name for name in client.scan_iter(f"{prefix}:*") if name.endswith(b"}:t\0b")))
        assert backend.sweep(PREFIX) == 1
        assert backend.sweep(PREFIX) == 0
        assert stored_places(backend) == [True]


# Many entries


def commands_of(client: Any, action: Callable[[], object]) -> int:
    """How many commands a server executes for this, those within scripts included."""
    client.execute_command("CONFIG", "RESETSTAT")
    action()
    return sum(int(stats["calls"]) for stats in client.info("commandstats").values())


def test_a_look_costs_the_same_whatever_others_have_queued() -> None:
    with closing(backend_in("server", new_prefix())) as backend, shared_server().client() as client:
        backend.open()
        Line(backend, key("mine")).put(queued(expires_at=backend.now() + HOUR), rows(1))

        def look() -> Taken:
            return backend.take(PREFIX, "q", [ROUTE], 10)

        look()
        before = commands_of(client, look)
        for number in range(0, 2000, 100):
            lines = [Line(backend, key(f"{number + each:05}")) for each in range(100)]
            parked = queued(lane=b"%d" % number, expires_at=backend.now() + 2 * HOUR)
            others = [queued(route=OTHER, priority=2), parked]
            backend.swap([line.swap(others[at % 2], rows(1)) for at, line in enumerate(lines)])
        assert commands_of(client, look) == before
        assert backend.depth(PREFIX, "q").ready == 1000


def test_a_taker_that_dies_begins_nothing_that_is_not_charged() -> None:
    pace = Pace(b"bucket", 1_000, 2_000)
    limits = QueueLimits(pace=pace, unbegun=frozenset([ROUTE]))
    for at, is_after in product(range(1, 5), (False, True)):
        clock, prefix = Clock(), new_prefix()
        with closing(opened("server", prefix, clock)) as backend, closing(opened("server", prefix, clock)) as other:
            for name in "abcd":
                Line(backend, key(name)).put(queued(), rows(1))
            Mortal(backend.wire, at, after=is_after)
            with suppress(Died):
                backend.take(PREFIX, "q", [ROUTE], 10, limits=limits)
            begun = sum(entry.held for entry in other.entries(PREFIX).values())
            _, paid_off = other._agenda._spend(b"bucket", pace.cost, pace.burst, 0)
            assert begun * pace.cost <= max(0, paid_off - START), (at, is_after)


def test_units_of_a_pace_that_are_not_used_are_given_back() -> None:
    clock = Clock()
    with closing(opened("server", new_prefix(), clock)) as backend:
        Line(backend).put(queued(), rows(1))
        limits = QueueLimits(pace=Pace(b"bucket", 1_000, 5_000), unbegun=frozenset([ROUTE]))
        assert len(backend.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries) == 1
        assert backend.take(PREFIX, "q", [ROUTE], 10, limits=limits).entries == []
        assert backend._agenda._spend(b"bucket", 1_000, 5_000, 0)[1] == clock.now + 1_000


@in_both
def test_a_caller_that_dies_leaves_no_message_that_nobody_looks_for(kind: str) -> None:
    for at, is_after in product(range(1, 7), (False, True)):
        clock, prefix = Clock(), new_prefix()
        with closing(opened(kind, prefix, clock)) as backend, closing(opened(kind, prefix, clock)) as other:
            move(backend, queued(status="input_required", updated_at=START))
            Mortal(backend.wire, at, after=is_after)
            with suppress(Died):
                backend.call(key(), "answer", b"yes")
            was_left = bool(other.inbox(key()))
            assert not was_left or work(other, clock) == {key()}, (at, is_after)
            assert is_sound(other, clock.now)


@in_both
def test_a_release_that_dies_leaves_no_message_that_its_run_has_not_heard(kind: str) -> None:
    for at, is_after in product(range(1, 7), (False, True)):
        clock, prefix = Clock(), new_prefix()
        with closing(opened(kind, prefix, clock)) as backend, closing(opened(kind, prefix, clock)) as other:
            line = Line(backend)
            line.put(LEASED, rows(1))
            backend.post(key(), "answer", b"yes")
            released = replace(LEASED, seq=2, owner="", expires_at=0, status="input_required")
            swap = replace(line.swap(released, rows(2)), heard=frozenset(["older"]))
            Mortal(backend.wire, at, after=is_after)
            with suppress(Died):
                assert backend.swap([swap]) == [True]
            was_released = head_of(other).status == "input_required"
            assert not was_released or work(other, clock) == {key()}, (at, is_after)
            assert is_sound(other, clock.now)
