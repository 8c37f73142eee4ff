"""With keys nothing of what a run did, asked or was told can be read in the raw files."""

from pathlib import Path

import pytest

import holdfast
from runs.worlds import World

CANARY = "canary-bird"


async def sing(store: holdfast.Store) -> None:
    """Leave the canary in every place that takes content."""
    async with store.run("t", labels={"app": CANARY}) as run:
        await run.step("work", lambda _: CANARY, CANARY)
        await run.step("pay", lambda _, idempotency_key: CANARY, CANARY, effect=True)
        await run.record(holdfast.Step(action=CANARY, tool_output=CANARY, metadata={"a": CANARY}))
        await run.checkpoint({"state": CANARY}, metadata={"m": CANARY})
        await run.append("list", CANARY)
        for error in (ValueError(CANARY), ConnectionError(CANARY)):
            with pytest.raises(holdfast.StepFailed):
                await run.step(f"fail {type(error).__name__}", _raise, retries=1, backoff=0)
    with pytest.raises(holdfast.Suspended) as caught:
        async with store.run("t") as run:
            await run.ask(CANARY, {"payload": CANARY}, choices=(CANARY,), deadline=10, default=CANARY)
    await store.answer(caught.value.requests[0].id, CANARY, CANARY, by=CANARY, comment=CANARY)
    with pytest.raises(ValueError, match=CANARY):
        async with store.run("t") as run:
            await run.ask(CANARY, {"payload": CANARY}, choices=(CANARY,), deadline=10, default=CANARY)
            raise ValueError(CANARY)
    async with store.run("t") as run:
        await run.complete(CANARY)
    with pytest.raises(holdfast.Suspended) as caught:
        async with store.run("waits") as run:
            await run.ask("open", CANARY)
    await store.answer(caught.value.requests[0].id, value=CANARY, by=CANARY)


def _raise() -> None:
    raise ValueError(CANARY)


def found_in(directory: Path) -> bool:
    return any(CANARY.encode() in path.read_bytes() for path in directory.rglob("*") if path.is_file())


async def test_nothing_readable_is_left_in_an_encrypted_store(world: World, tmp_path: Path) -> None:
    store = world.open(keys=holdfast.KeyRing({"k": b"k" * 32}, write="k"))
    await sing(store)
    assert not found_in(tmp_path)
    assert (await store.thread("t")).labels == {"app": CANARY}
    payloads = [request.payload for request in await store.requests(status=None)]
    assert sorted(payloads, key=str) == [CANARY, {"payload": CANARY}]


async def test_the_canary_can_be_found(world: World, tmp_path: Path) -> None:
    """The test above can fail."""
    on_disk = any(tmp_path.iterdir())
    await sing(world.store)
    assert found_in(tmp_path) is on_disk
