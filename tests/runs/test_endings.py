"""How a run ends, and what the thread is then."""

import asyncio
from typing import Any

import pytest

import holdfast
from runs.worlds import World


async def status(world: World, thread_id: str = "t") -> tuple[str, str | None, str | None]:
    info = await world.store.thread(thread_id)
    assert info.status is not None
    return info.status.value, info.owner, info.error


async def test_a_run_that_just_ends_leaves_its_thread_idle(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("work", list)
        info = await world.store.thread("t")
        assert (info.status, bool(info.owner)) == ("working", True)
    assert await status(world) == ("idle", None, None)


async def test_an_error_that_leaves_the_block_is_kept(world: World) -> None:
    with pytest.raises(ValueError, match="no good"):
        async with world.store.run("t") as run:
            await run.step("work", list)
            raise ValueError("no good")
    assert await status(world) == ("failed", None, "ValueError: no good")
    async with world.store.run("t") as run:
        assert run.status == "working"
        assert await run.step("work", _never) == []
        await run.complete("fine")
    assert await status(world) == ("complete", None, None)


def _never() -> Any:
    raise AssertionError("executed again")


async def test_a_run_can_say_that_it_failed(world: World) -> None:
    for error, text in ((ValueError("no"), "ValueError: no"), ("just so", "just so")):
        async with world.store.run("t") as run:
            await run.fail(error)
            assert run.status == "failed"
        assert await status(world) == ("failed", None, text)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_an_interruption_leaves_the_thread_at_work(world: World, error: type[BaseException]) -> None:
    with pytest.raises(error):
        async with world.store.run("t") as run:
            run.record(holdfast.Step(action="looked"))
            raise error
    assert await status(world) == ("working", None, None)
    assert len((await world.store.latest("t")).steps) == 1  # type: ignore[union-attr]


async def test_a_complete_thread_has_its_result_and_takes_nothing_new(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("work", lambda: 1)
        await run.append("list", 1, "k")
        await run.complete({"result": (1, 2)})
        assert run.finished
        with pytest.raises(holdfast.Finished, match="'more' is new; reopen=True"):
            await run.step("more", _never)
    async with world.open().run("t") as run:
        assert (run.finished, run.status, run.result) == (True, "complete", {"result": (1, 2)})
        assert await run.step("work", _never) == 1
        await run.append("list", 1, "k")
        for new in (
            lambda: run.step("more", _never),
            lambda: run.begin_step("more"),
            lambda: run.append("list", 2),
            lambda: run.checkpoint({}),
            lambda: run.ask("more?"),
            lambda: run.sleep(1),
            lambda: run.fail("no"),
            lambda: run.complete("another result"),
        ):
            with pytest.raises(holdfast.Finished):
                await new()
        with pytest.raises(holdfast.Finished):
            run.record(holdfast.Step())
        await run.complete({"result": (1, 2)})
    assert await status(world) == ("complete", None, None)


async def test_an_error_within_a_finished_run_does_not_change_the_thread(world: World) -> None:
    with pytest.raises(ValueError, match="late"):
        async with world.store.run("t") as run:
            await run.complete(1)
            raise ValueError("late")
    assert await status(world) == ("complete", None, None)


async def test_a_complete_thread_can_be_opened_again(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("work", lambda: 1)
        await run.complete(1)
    async with world.store.run("t", reopen=True) as run:
        assert (run.finished, run.status, run.result) == (False, "working", None)
        assert await run.step("work", _never) == 1
        assert await run.step("more", lambda: 2) == 2
        await run.complete(2)
    async with world.store.run("t") as run:
        assert run.result == 2


async def test_labels_are_given_to_a_thread_by_its_run(world: World) -> None:
    async with world.store.run("t", labels={"app": "a"}) as run:
        await run.step("work", list)
    async with world.store.run("t", labels={"user": "u"}):
        pass
    assert (await world.store.thread("t")).labels == {"app": "a", "user": "u"}
    assert [info.thread_id for info in await world.store.threads(labels={"app": "a", "user": "u"})] == ["t"]
    with pytest.raises(holdfast.UnstorableValue):
        world.store.run("t", labels={"app": 1})  # type: ignore[dict-item]


async def test_a_block_is_entered_once(world: World) -> None:
    block = world.store.run("t")
    async with block:
        pass
    with pytest.raises(holdfast.ConfigurationError, match="entered before"):
        async with block:
            pass


async def test_a_run_is_over_when_its_block_is(world: World) -> None:
    async with world.store.run("t") as run:
        pass
    with pytest.raises(holdfast.Fenced, match="is over"):
        await run.step("late", _never)


async def test_a_run_that_did_nothing_leaves_an_idle_thread_without_a_checkpoint(world: World) -> None:
    async with world.store.run("t"):
        pass
    assert await world.store.latest("t") is None
    assert await status(world) == ("idle", None, None)
    assert not (await world.store.recover(lambda run: None)).resumed


@pytest.mark.parametrize("terms", [{"lease": 0.4}, {"lease": "long"}, {"wait": -1}, {"lease": True}])
async def test_terms_that_make_no_sense_are_refused(world: World, terms: dict[str, Any]) -> None:
    with pytest.raises(holdfast.ConfigurationError):
        world.store.run("t", **terms)


async def test_runs_within_runs_keep_apart(world: World) -> None:
    @world.step()
    async def look() -> str:
        return str(world.api.current().thread_id)

    async with world.store.run("outer"):
        async with world.store.run("inner"):
            assert await look() == "inner"
        assert await look() == "outer"
        assert world.api.current().thread_id == "outer"


async def test_one_shot_writes_are_for_threads_that_no_run_holds(world: World) -> None:
    async with world.store.run("t") as run:
        await run.checkpoint({"n": 1})
        with pytest.raises(holdfast.LeaseHeld, match="write through that run"):
            await world.store.save("t", {"n": 2})
        await run.checkpoint({"n": 3})
    await world.store.save("t", {"n": 4})
    async with world.store.run("t") as run:
        assert run.state == {"n": 4}
