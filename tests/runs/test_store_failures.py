"""A store that fails under a run: never swallowed, and what was acknowledged is there."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

import holdfast
from harness.broken_backends import NoFencing
from holdfast.testing.faults import Fault
from holdfast.testing.handles import blocking_store
from runs.worlds import SWAPS, World


async def steps_of(world: World) -> list[str]:
    latest = await world.open().latest("t")
    return [] if latest is None else [step.action for step in latest.steps]


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_write_that_is_refused_by_the_store_stops_the_run(world: World, at: int) -> None:
    store, acknowledged = world.open(), list[str]()
    faulty = world.faults[-1]
    with pytest.raises(holdfast.StoreUnavailable, match="injected"):
        async with store.run("t") as run:
            faulty.plan = Fault(at, "unavailable", SWAPS)
            for name in ("one", "two", "three"):
                await run.step(name, list)
                acknowledged.append(name)
    assert len(acknowledged) < 3
    assert await steps_of(world) == acknowledged
    async with store.run("t") as run:  # the lease was given back, and the store is fine again
        await run.step("after", list)


async def test_a_failure_that_was_caught_is_raised_by_the_next_call_and_at_the_end(world: World) -> None:
    store = world.open()
    faulty = world.faults[-1]
    with pytest.raises(holdfast.StoreUnavailable):
        async with store.run("t") as run:
            await run.step("one", list)
            faulty.plan = Fault(1, "unavailable", SWAPS)
            with pytest.raises(holdfast.StoreUnavailable):
                await run.step("two", list)
            with pytest.raises(holdfast.StoreUnavailable):
                run.record(holdfast.Step())
            with pytest.raises(holdfast.StoreUnavailable):
                await run.complete()
    assert await steps_of(world) == ["one"]


async def test_a_record_that_nobody_awaited_is_raised_by_the_next_call(world: World) -> None:
    store = world.open()
    faulty = world.faults[-1]
    raised: list[str] = []
    with pytest.raises(holdfast.StoreUnavailable):
        async with store.run("t") as run:
            await run.step("one", list)
            faulty.plan = Fault(1, "unavailable", SWAPS)
            try:
                receipt = run.record(holdfast.Step(action="lost"))
            except holdfast.StoreUnavailable:
                raised.append("at once")  # holdfast.sync: durable on return
            else:
                while not receipt.done:
                    await run.step(f"next {time.time_ns()}", list)
    assert raised == ([] if world.name == "awaitable" else ["at once"])
    assert await steps_of(world) == ["one"]


async def test_a_record_that_nobody_awaited_is_raised_at_the_end_of_the_block(world: World) -> None:
    store = world.open()
    faulty = world.faults[-1]
    with pytest.raises(holdfast.StoreUnavailable):
        async with store.run("t") as run:
            await run.step("one", list)
            faulty.plan = Fault(1, "unavailable", SWAPS)
            run.record(holdfast.Step(action="lost"))
    assert await steps_of(world) == ["one"]


async def test_an_awaited_receipt_raises_why_it_could_not_be_stored(world: World) -> None:
    store = world.open()
    faulty = world.faults[-1]
    with pytest.raises(holdfast.StoreUnavailable):
        async with store.run("t") as run:
            faulty.plan = Fault(1, "unavailable", SWAPS)
            with pytest.raises(holdfast.StoreUnavailable):
                await run.record(holdfast.Step(action="lost"))


async def test_an_error_of_the_body_is_not_hidden_by_that_of_the_store(world: World) -> None:
    store = world.open()
    faulty = world.faults[-1]
    with pytest.raises(ValueError, match="the body's") as caught:
        async with store.run("t") as run:
            await run.step("one", list)
            faulty.plan = Fault(1, "unavailable", SWAPS)
            raise ValueError("the body's")
    assert "injected" in caught.value.__notes__[0]


async def test_a_lost_reply_to_any_write_of_a_run_changes_nothing(world: World) -> None:
    at = 0
    while True:
        at += 1
        store, thread_id = world.open(), f"t{at}"
        faulty = world.faults[-1]
        faulty.plan = Fault(at, "lost reply", SWAPS)
        async with store.run(thread_id, labels={"app": "a"}) as run:
            await run.step("one", list)
            run.record(holdfast.Step(action="two"))
            await run.append("list", 1)
            await run.checkpoint({"list": [1, 2]})
            await run.step("three", list, effect=True)
            await run.complete("result")
        info = await world.store.thread(thread_id)
        assert (info.status, info.owner) == ("complete", None)
        assert [step.action for step in (await world.store.latest(thread_id)).steps] == ["one", "two", "three"]  # type: ignore[union-attr]
        if not faulty.fired:
            break
    assert at > 8
    assert (await world.store.verify()).ok


async def test_a_lost_reply_to_the_release_is_found_out_though_others_have_written_since(world: World) -> None:
    store = world.open()
    faulty, other = world.faults[-1], blocking_store(world.place.open())

    def overtaken(threads: Sequence[bytes]) -> list[bytes | None]:
        if faulty.fired:
            other.save("t", {"by": "another"})
        return faulty.inner.heads(threads)

    async with store.run("t") as run:
        await run.step("one", list)
        faulty.heads = overtaken  # type: ignore[method-assign]
        faulty.plan = Fault(1, "lost reply", SWAPS)
    assert faulty.fired
    assert await steps_of(world) == ["one"]
    other.close()


async def test_a_lost_reply_that_cannot_be_found_out_about_is_raised(world: World) -> None:
    store = world.open()
    faulty = world.faults[-1]
    with pytest.raises(holdfast.OutcomeUnknown):
        async with store.run("t") as run:
            faulty.plan = Fault(1, "lost reply", SWAPS)
            faulty.heads = _unavailable  # type: ignore[assignment, method-assign]
            await run.step("one", list)


def _unavailable(*_: object) -> Any:
    raise holdfast.StoreUnavailable("no answer")


async def test_a_renewal_that_fails_once_is_made_again(world: World) -> None:
    store = world.open()
    faulty = world.faults[-1]
    async with store.run("t", lease=0.5) as run:
        await run.step("one", list)
        faulty.plan = Fault(1, "unavailable", SWAPS)
        world.clock.advance(0.3)
        while not faulty.fired:
            time.sleep(0.01)
        world.clock.advance(0.3)
        while (await world.store.thread("t")).lease.expires_at.timestamp() * 1e6 <= world.clock.now:  # type: ignore[union-attr]
            time.sleep(0.01)
        await run.step("two", list)
    assert await steps_of(world) == ["one", "two"]


async def upkeep(store: holdfast.Store, what: str, run: holdfast.Run) -> None:
    if what == "pin":
        await store.pin(str(run.checkpoint_id))
    elif what == "prune":
        await store.prune(holdfast.Retention(keep_last=1))
    elif what == "rotate":
        await store.rotate()


RING = holdfast.KeyRing({"old": b"o" * 32}, write="old")
NEW_RING = holdfast.KeyRing({"old": b"o" * 32, "new": b"n" * 32}, write="new")


@pytest.mark.parametrize("what", ["pin", "prune", "rotate"])
async def test_upkeep_by_another_does_not_end_a_run(world: World, what: str) -> None:
    store, other = world.open(keys=RING), world.open(keys=NEW_RING)
    async with store.run("t") as run:
        for name in ("one", "two", "three"):
            await run.step(name, list)
            await upkeep(other, what, run)
        receipts = [run.record(holdfast.Step(action=str(number))) for number in range(5)]
        await upkeep(other, what, run)
        for receipt in receipts:
            await receipt
        await run.complete("result")
        await upkeep(other, what, run)
    info = await other.thread("t")
    assert (info.status, info.owner) == ("complete", None)
    latest = await other.latest("t")
    assert latest is not None
    assert [step.action for step in latest.steps] == ["one", "two", "three", "0", "1", "2", "3", "4"]
    assert (await other.verify()).ok


async def test_a_deleted_thread_is_lost_to_its_run(world: World) -> None:
    with pytest.raises(holdfast.Deleted):
        async with world.store.run("t") as run:
            await run.step("one", list)
            await world.open().delete("t")
            await run.step("two", list)
    assert await world.store.latest("t") is None


@pytest.mark.parametrize("steps", [[], ["by another"]], ids=["claimed only", "written to"])
async def test_a_run_whose_thread_was_taken_over_is_fenced(world: World, steps: list[str]) -> None:
    """Its process was stopped for longer than its lease: here by the clock, which its heartbeat does not see."""
    assert await late_write(world, steps) == ["Fenced", "Fenced"]
    assert await steps_of(world) == ["one", *steps]


async def test_without_fencing_the_late_write_gets_through(world: World) -> None:
    """The test above can fail."""
    assert await late_write(world, ["by another"], wrap=NoFencing) != ["Fenced", "Fenced"]


async def late_write(world: World, steps: list[str], **options: Any) -> list[str]:
    """What becomes of a write, and of the end, of a run that was taken over."""
    outcomes: list[str] = []
    store = world.open(**options)
    inner = getattr(store, "_inner", store)
    heartbeat = getattr(inner, "_store", inner)._tools.heartbeat
    try:
        async with store.run("t") as run:
            await run.step("one", list)
            stopped = list(heartbeat._claims)
            for claim in stopped:
                heartbeat.remove(claim)
            world.clock.advance(60)
            async with world.open().run("t") as other:
                for step in steps:
                    await other.step(step, list)
                try:
                    await run.step("late", list)
                except holdfast.Fenced:
                    outcomes.append("Fenced")
    except holdfast.Fenced:
        outcomes.append("Fenced")
    return outcomes
