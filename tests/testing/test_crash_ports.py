"""A process that dies on demand does nothing more: it writes nothing, releases nothing, calls nobody."""

import asyncio
from collections.abc import Iterator

import pytest

from holdfast import Step, sync
from holdfast.ports import Ports, Signal, Ticket, run_blocking
from holdfast.runs.scope import Frame
from holdfast.runs.store import Store
from holdfast.stores.memory import MemoryBackend
from holdfast.testing import CrashPorts, Life
from holdfast.testing.clock import Clock
from holdfast.testing.crash_effects import CHECKED, Died, EffectBackend
from holdfast.testing.crash_ports import mortal_loop, ports_of
from holdfast.testing.faults import Crash
from holdfast.testing.handles import blocking_store


class Nobody:
    """A witness who looks away."""

    def executes(self, frame: Frame, *, with_key: bool) -> None: ...

    def failed(self, frame: Frame) -> None: ...


class World:
    """A backend, and the lives over it."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.clock = Clock()
        self._lives = 0

    def life(self, crash_at: int = 0) -> Life:
        self._lives += 1
        return Life(self._lives, self.clock, crash_at)

    def ports(self, life: Life, *, awaitable: bool = False) -> CrashPorts:
        return ports_of(life, Nobody(), awaitable=awaitable)

    def store(self, life: Life) -> sync.Store:
        return blocking_store(EffectBackend(self.backend, life), ports=self.ports(life))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.backend.close()


def work(store: sync.Store) -> list[int]:
    with store.run("t") as run:
        return [run.step(f"step {number}", lambda number=number: number) for number in range(2)]


def test_there_is_a_point_before_and_after_every_effect(world: World) -> None:
    life = world.life()
    work(world.store(life))
    effects = ["claim 1", "step 'step 0'", "row 1", "step 'step 1'", "row 2", "the release as idle"]
    assert life.points == [f"{when} {effect}" for effect in effects for when in ("before", "after")]


@pytest.mark.parametrize("crash_at", range(1, 13))
def test_a_dead_process_does_nothing_more(world: World, crash_at: int) -> None:
    life = world.life(crash_at)
    store = world.store(life)
    with pytest.raises(Died):
        work(store)
    left = world.backend.heads([b"\0t"])
    assert len(life.points) == crash_at
    for attempt in (lambda: work(store), lambda: store.save("other", 1), lambda: store.latest("t"), store.verify):
        with pytest.raises(Crash):
            attempt()
    assert len(life.points) == crash_at
    assert world.backend.heads([b"\0t"]) == left
    assert work(world.store(world.life())) == [0, 1]


def test_what_a_dead_process_must_not_do_is_named_as_in_the_ports() -> None:
    assert {name for name in CHECKED if hasattr(Ports, name)} == CHECKED


def test_the_claim_of_a_dead_life_is_taken_over_at_once(world: World) -> None:
    with pytest.raises(Died):
        work(world.store(world.life(crash_at=6)))
    before = world.clock.now
    second = world.life()
    with world.store(second).run("t", wait=0) as run:
        assert world.store(world.life()).thread("t").owner == "life-2:1"
        assert run.resumed
    assert world.clock.now == before
    assert not world.ports(second).is_certainly_dead("life-2:1")
    assert world.ports(second).is_certainly_dead("life-1:1")
    assert not world.ports(second).is_certainly_dead("somebody else")


def test_the_clock_goes_on_by_sleeps_alone(world: World) -> None:
    life = world.life()
    ports = world.ports(life)
    before = ports.now()
    run_blocking(ports.sleep(90))
    assert ports.now() - before == 90_000_000
    assert life.points == ["before a sleep of 90 s", "after a sleep of 90 s"]


def test_sleeps_side_by_side_take_as_long_as_the_longest(world: World) -> None:
    ports = world.ports(world.life(), awaitable=True)
    before = ports.now()

    async def sleeping() -> None:
        await ports.gather([ports.sleep(5), ports.sleep(60), ports.sleep(1)])

    asyncio.run(sleeping())
    assert ports.now() - before == 60_000_000


def test_entropy_is_the_same_for_the_same_seed_and_life(world: World) -> None:
    first, again = (ports_of(Life(1, world.clock), Nobody(), awaitable=False, seed=3) for _ in range(2))
    other_life = ports_of(Life(2, world.clock), Nobody(), awaitable=False, seed=3)
    other_seed = ports_of(Life(1, world.clock), Nobody(), awaitable=False, seed=4)
    assert first.entropy(16) == again.entropy(16)
    assert len({ports.entropy(16) for ports in (first, other_life, other_seed)}) == 3


def test_no_thread_is_started(world: World) -> None:
    def never() -> float | None:
        raise AssertionError("a heartbeat was started")

    ports = world.ports(world.life())
    ports.beat(never, Signal())
    ports.close()


def test_plain_code_in_an_awaitable_run_dies_with_it(world: World) -> None:
    life = world.life()
    awaitable = world.ports(life, awaitable=True)
    plain = awaitable.for_plain_code()
    assert plain.blocking
    assert plain.for_plain_code() is plain
    life.dead = True
    with pytest.raises(Died):
        run_blocking(plain.wait(Ticket()))


def test_no_other_task_gets_another_turn(world: World) -> None:
    turns: list[bool] = []
    life = world.life(crash_at=5)
    store = Store(EffectBackend(world.backend, life), ports=world.ports(life, awaitable=True))

    async def dying() -> None:
        async with store.run("t") as run:
            await asyncio.gather(run.step("dies", lambda: 1), looking_on())

    async def looking_on() -> None:
        while True:
            turns.append(life.dead)
            await asyncio.sleep(0)

    with mortal_loop() as loop, pytest.raises(Died, match="before row 1"):
        loop.run_until_complete(dying())
    assert turns
    assert not any(turns)


def test_what_was_queued_and_not_committed_is_lost(world: World) -> None:
    life = world.life(crash_at=3)
    store = Store(EffectBackend(world.backend, life), ports=world.ports(life, awaitable=True))

    async def dying() -> None:
        async with store.run("t") as run:
            receipt = run.record(Step(action="queued"))
            assert not receipt.done
            await run.step("dies", lambda: 1)

    with mortal_loop() as loop, pytest.raises(Died):
        loop.run_until_complete(dying())
    assert life.points[-1] == "before step 'dies'"
    with world.store(world.life()).run("t") as run:
        assert run.steps == []
