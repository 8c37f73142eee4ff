"""A thread that somebody cancels: while it runs, while it waits, while nobody is at it."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.stores.claim import CANCEL
from holdfast.stores.memory import MemoryBackend
from patience import GIVE_UP_SECONDS
from runs.worlds import World


async def is_cancelled(world: World) -> bool:
    info = await world.store.thread("t")
    return (info.status, info.owner) == ("cancelled", None)


async def until_told(run: holdfast.Run) -> None:
    """Make steps until the run hears that it was cancelled: at the heartbeat at the latest."""
    number = 0
    while True:
        number += 1
        await run.step(f"step {number}", time.sleep, 0.01)


@pytest.mark.parametrize("other", [False, True], ids=["by its own handle", "by another"])
async def test_a_live_run_is_told_and_stops(world: World, other: bool) -> None:
    store = world.open() if other else world.store
    with pytest.raises(holdfast.RunCancelled):
        async with world.store.run("t", lease=0.5) as run:
            await run.step("work", list)
            await store.cancel("t")
            await store.cancel("t")
            await until_told(run)
    assert await is_cancelled(world)


async def test_a_run_of_the_same_handle_stops_at_its_next_step(world: World) -> None:
    with pytest.raises(holdfast.RunCancelled):
        async with world.store.run("t") as run:
            await run.step("work", list)
            await world.store.cancel("t")
            await run.step("more", _never)
    assert await is_cancelled(world)


def _never() -> Any:
    raise AssertionError("executed")


class Overlooking(MemoryBackend):
    """Counts how often it is asked for several inboxes, and of one cannot tell."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.broken = b""

    def inboxes(self, threads: Sequence[bytes]) -> list[dict[str, bytes]]:
        self.asked.append(len(threads))
        if self.broken in threads:
            raise holdfast.Corrupt("a broken inbox", record="inbox")
        return [self.inbox(thread) for thread in threads]


@pytest.mark.parametrize("is_broken", [False, True], ids=["all well", "one cannot be read"])
def test_the_heartbeat_looks_into_all_inboxes_at_once(is_broken: bool) -> None:
    backend = Overlooking()
    store = sync.Store(backend)
    backend.broken = store._store._reader.key("a") if is_broken else b"none"
    ends_at = time.monotonic() + GIVE_UP_SECONDS
    with store.run("a", lease=0.5) as bystander:
        with pytest.raises(holdfast.RunCancelled), store.run("b", lease=0.5) as run:
            sync.Store(backend).cancel("b")
            while time.monotonic() < ends_at:
                run.step(f"step {len(run.steps)}", time.sleep, 0.01)
        assert bystander.step("goes on", list) == []
    assert 2 in backend.asked


@pytest.mark.parametrize("ending", ["just ends", "asks"])
async def test_a_run_that_ends_before_it_is_told_is_cancelled_all_the_same(world: World, ending: str) -> None:
    with pytest.raises(holdfast.RunCancelled):
        async with world.store.run("t") as run:
            await run.step("work", list)
            await world.open().cancel("t")
            if ending == "asks":
                await run.ask("refund")
    assert await is_cancelled(world)


async def test_a_run_that_fails_before_it_is_told_has_failed(world: World) -> None:
    with pytest.raises(ValueError, match="first"):
        async with world.store.run("t") as run:
            await run.step("work", list)
            await world.open().cancel("t")
            raise ValueError("first")
    assert (await world.store.thread("t")).status == "failed"


async def test_a_run_that_comes_to_its_result_first_is_complete(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("work", list)
        await world.open().cancel("t")
        await run.complete(1)
    assert (await world.store.thread("t")).status == "complete"


async def test_a_message_to_a_run_that_died_reaches_the_next(world: World) -> None:
    async with world.doomed("t") as run:
        await run.step("work", list)
        await world.store.cancel("t")
    with pytest.raises(holdfast.RunCancelled):
        async with world.store.run("t") as run:
            await run.step("more", _never)
    assert await is_cancelled(world)


async def test_a_thread_that_waits_or_rests_is_cancelled_at_once(world: World) -> None:
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            await run.ask("refund")
    await world.store.cancel("t")
    assert await is_cancelled(world)
    await world.store.save("idle", {})
    await world.store.cancel("idle")
    assert (await world.store.thread("idle")).status == "cancelled"
    assert not (await world.store.recover(lambda run: None)).resumed


async def test_the_question_of_a_cancelled_thread_is_listed_no_more(world: World) -> None:
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            await run.ask("go on?")
    assert len(await world.store.requests(status=None)) == 1
    await world.store.cancel("t")
    assert len(await world.store.requests(status=None)) == 0


async def test_a_cancelled_thread_does_nothing_new(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("work", lambda: 1)
    await world.store.cancel("t")
    async with world.store.run("t") as run:
        assert (run.finished, run.result) == (True, None)
        assert await run.step("work", _never) == 1
        with pytest.raises(holdfast.Finished, match="cancelled"):
            await run.step("more", _never)
    async with world.store.run("t", reopen=True) as run:
        assert await run.step("more", lambda: 2) == 2


async def test_a_request_to_cancel_that_comes_after_the_end_does_not_cancel_what_reopens_the_thread(
    world: World,
) -> None:
    async with world.store.run("t") as run:
        await run.complete(1)
    world.faults[-1].inner.post(b"\0t", CANCEL, b"")  # its sender saw the run alive
    async with world.store.run("t", reopen=True) as run:
        assert await run.step("more", lambda: 2) == 2


async def test_what_is_not_there_or_over_is_not_cancelled(world: World) -> None:
    with pytest.raises(holdfast.NotFound):
        await world.store.cancel("t")
    async with world.store.run("t") as run:
        await run.complete(1)
    await world.store.cancel("t")
    assert (await world.store.thread("t")).status == "complete"
    await world.store.delete("t")
    with pytest.raises(holdfast.NotFound):
        await world.store.cancel("t")


async def test_a_cancelled_durable_function_is_not_gone_on_with(world: World) -> None:
    @world.durable()
    async def agent() -> str:
        await world.api.ask("refund")
        return "done"

    with pytest.raises(holdfast.Suspended):
        await agent.run("t")
    await world.store.cancel("t")
    for call in (agent.run, agent.resume, agent.start):
        with pytest.raises(holdfast.RunCancelled, match="was cancelled"):
            await call("t")
    assert await is_cancelled(world)
