"""Reading how a thread stands: nothing is run, nothing is claimed."""

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.faults import FaultyBackend
from holdfast.testing.handles import blocking_store
from kinds import SHARED, url_of
from runs.worlds import World


async def test_the_outcome_of_a_complete_thread_is_its_result(world: World) -> None:
    async with world.store.run("t") as run:
        await run.complete({"paid": 40, "to": ("ana", b"\xff")})
    outcome = await world.open().outcome("t")
    assert outcome == holdfast.Outcome(
        status=holdfast.Status.COMPLETE, thread_id="t", result={"paid": 40, "to": ("ana", b"\xff")}
    )
    assert (outcome.error, outcome.requests) == (None, ())


async def test_the_outcome_of_a_durable_function_is_what_it_returned(world: World) -> None:
    @world.durable(store=world.store)
    async def double(number: int) -> int:
        return number * 2

    await double.run("t", 21)
    assert (await world.store.outcome("t")).result == 42


async def test_the_outcome_of_a_failed_thread_is_its_error(world: World) -> None:
    with pytest.raises(ValueError, match="no money"):
        async with world.store.run("t"):
            raise ValueError("no money")
    outcome = await world.open().outcome("t")
    assert (outcome.status, outcome.error, outcome.result) == ("failed", "ValueError: no money", None)
    async with world.store.run("t") as run:
        await run.complete("at last")
    outcome = await world.store.outcome("t")
    assert (outcome.status, outcome.error, outcome.result) == ("complete", None, "at last")


async def test_the_outcome_of_a_waiting_thread_is_its_open_requests(world: World) -> None:
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await run.ask("refund", {"amount": 40}, choices=("yes", "no"))
    outcome = await world.open().outcome("t")
    assert (outcome.status, outcome.requests) == ("input_required", caught.value.requests)
    await world.store.answer(outcome.requests[0].id, "yes")
    assert (await world.store.outcome("t")).requests == (), "as store.requests says"


async def test_the_outcome_of_a_cancelled_thread_says_so(world: World) -> None:
    await world.store.save("t", 1)
    await world.store.cancel("t")
    outcome = await world.store.outcome("t")
    assert outcome.status == "cancelled"
    assert "cancelled from outside" in str(outcome.error)


async def test_an_outcome_is_read_while_another_run_holds_the_thread(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("one", list)
        before = await world.store.thread("t")
        assert (await world.open().outcome("t")).status == "working"
        assert await world.store.thread("t") == before, "nothing was written, and nobody claimed it"
    async with world.store.run("new"):
        assert (await world.open().outcome("new")).status == "working", "it has no row yet"


async def test_a_saved_thread_has_no_result(world: World) -> None:
    await world.store.save("idle", {"a": 1})
    await world.store.save("complete", {"a": 1}, status="complete")
    assert await world.store.outcome("idle") == holdfast.Outcome(status=holdfast.Status.IDLE, thread_id="idle")
    assert (await world.store.outcome("complete")).result is None


async def test_there_is_no_outcome_of_a_thread_that_is_not_there(world: World) -> None:
    await world.store.save("deleted", 1)
    await world.store.delete("deleted")
    for thread_id in ("never", "deleted"):
        with pytest.raises(holdfast.NotFound, match=thread_id):
            await world.store.outcome(thread_id)


@pytest.mark.parametrize("shared_kind", SHARED)
def test_every_store_tells_outcomes(shared_kind: str, tmp_path: Path) -> None:
    with sync.open(url_of(shared_kind, tmp_path), durability="process") as store:
        with store.run("t") as run:
            run.complete([1, 2])
        assert store.outcome("t").result == [1, 2]


def test_an_outcome_needs_reads_alone() -> None:
    backend = FaultyBackend(MemoryBackend())
    store: Any = blocking_store(backend)
    with store.run("t") as run:
        run.complete(1)
    backend.calls.clear()
    store.outcome("t")
    assert set(backend.calls) <= {"heads", "rows", "blobs", "inbox"}


def test_listings_do_not_decode_results() -> None:
    backend = FaultyBackend(MemoryBackend())
    store: Any = blocking_store(backend)
    with store.run("t") as run:
        run.complete({"large": "x" * 100_000})
    backend.calls.clear()
    assert [info.status for info in store.threads()] == ["complete"]
    assert set(backend.calls) == {"threads"}, "no row was read"
