"""Records, checkpoints and appends: with a key once, without one each time, in durable functions by their place."""

from typing import Any

import pytest

import holdfast
from runs.worlds import World


async def work(run: holdfast.Run, *, keyed: bool) -> None:
    key = "k" if keyed else None
    await run.record(holdfast.Step(action="looked", tool_output=[1]), key)
    await run.checkpoint({"plan": ["look"], "n": len(run.steps)}, phase="post_tool", metadata={"a": 1}, key=key)
    await run.append("plan", "write", key)
    await run.append(("deep", "list"), 1, key)


async def test_with_a_key_each_is_made_once(world: World) -> None:
    for _ in range(3):
        async with world.store.run("t") as run:
            await work(run, keyed=True)
            assert run.state == {"plan": ["look", "write"], "n": 1, "deep": {"list": [1]}}
            assert [step.action for step in run.steps] == ["looked"]
    assert len(await world.store.history("t")) == 4


async def test_without_a_key_each_is_made_each_time(world: World) -> None:
    for count in (1, 2):
        async with world.store.run("t") as run:
            await work(run, keyed=False)
            assert (run.state["n"], len(run.steps)) == (count, count)
    assert len(await world.store.history("t")) == 8


async def test_in_a_durable_function_each_has_its_place(world: World) -> None:
    lives: list[int] = []

    @world.durable(labels={"app": "test"})
    async def agent() -> Any:
        for number in range(3):
            await world.api.append("numbers", number)
            await world.api.record(holdfast.Step(action="same"))
        await world.api.checkpoint({**world.api.current().state, "done": True})
        lives.append(1)
        if len(lives) == 1:
            raise KeyboardInterrupt
        return world.api.current().state

    with pytest.raises(KeyboardInterrupt):
        await agent.run("t")
    assert await agent.run("t") == {"numbers": [0, 1, 2], "done": True}
    assert len((await world.store.latest("t")).steps) == 3  # type: ignore[union-attr]


async def test_parallel_branches_are_told_apart_by_content(world: World) -> None:
    lives: list[int] = []

    async def branch(name: str) -> None:
        await world.api.append("found", name)
        await world.api.record(holdfast.Step(action=name))
        await world.api.checkpoint({**world.api.current().state, name: True}, key=name)

    @world.durable()
    async def agent() -> Any:
        lives.append(1)
        await branch("main")
        await world.gather(*map(branch, ["a", "b"] if len(lives) == 1 else ["b", "a"]))
        if len(lives) == 1:
            raise KeyboardInterrupt
        return sorted(world.api.current().state["found"])

    with pytest.raises(KeyboardInterrupt):
        await agent.run("t")
    assert await agent.run("t") == ["a", "b", "main"]
    latest = await world.store.latest("t")
    assert latest is not None
    assert sorted(step.action for step in latest.steps) == ["a", "b", "main"]


async def test_checkpoints_of_parallel_branches_are_told_apart_too(world: World) -> None:
    lives: list[int] = []

    async def branch(name: str) -> None:
        await world.api.checkpoint({"by": name})

    @world.durable()
    async def agent() -> None:
        lives.append(1)
        if len(lives) == 1:
            await world.gather(branch("a"))
            raise KeyboardInterrupt
        await world.gather(branch("b"))
        await world.gather(branch("a"))

    with pytest.raises(KeyboardInterrupt):
        await agent.run("t")
    await agent.run("t")
    assert [(await world.store.get("t", info.seq)).state for info in await world.store.history("t")] == [
        {"by": "b"},
        {"by": "a"},
    ]


async def test_a_list_within_a_larger_value_is_appended_to(world: World) -> None:
    async with world.store.run("t") as run:
        await run.checkpoint({"a": {"b": {"c": {"d": [1]}}}})
        await run.append(("a", "b", "c", "d"), 2)
        assert run.state == {"a": {"b": {"c": {"d": [1, 2]}}}}
        with pytest.raises(holdfast.UnstorableValue, match="must be a list"):
            await run.append(("a", "b"), 3)


@pytest.mark.parametrize("path", [(), 5, ("a", 1)])
async def test_a_path_that_is_none_is_refused(world: World, path: Any) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.HoldfastError):
            await run.append(path, 1)


async def test_what_cannot_be_stored_is_refused_and_the_run_goes_on(world: World) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.UnstorableValue):
            await run.checkpoint({"client": object()})
        with pytest.raises(holdfast.UnstorableValue):
            run.record(holdfast.Step(tool_output=object()))
        with pytest.raises(holdfast.ConfigurationError, match=r"holdfast\.Step, not str"):
            run.record("looked")  # type: ignore[arg-type]
        with pytest.raises(holdfast.ConfigurationError, match="phase"):
            await run.checkpoint({}, phase="noon")
        await run.append("plan", "write")
        assert run.state == {"plan": ["write"]}


async def test_the_run_knows_what_it_has(world: World) -> None:
    async with world.store.run("t") as run:
        assert (run.state, run.seq, run.checkpoint_id, run.steps, run.result) == ({}, 0, None, [], None)
        await run.checkpoint({"n": 1}, phase=holdfast.Phase.PRE_LLM, cause="interval")
        assert run.thread_id == "t"
        assert run.status is holdfast.Status.WORKING
        assert repr(run) == "Run('t', status='working', seq=1)"
        assert run.checkpoint_id is not None
        checkpoint = await world.store.load(run.checkpoint_id)
        assert (checkpoint.state, checkpoint.phase, checkpoint.cause) == ({"n": 1}, "pre_llm", "interval")


async def test_a_receipt_says_when_its_record_is_stored(world: World) -> None:
    async with world.store.run("t") as run:
        receipt = run.record(holdfast.Step(action="looked"), "k")
        await receipt
        assert receipt.done
        await receipt
        again = run.record(holdfast.Step(action="looked"), "k")
        assert again.done
        await again


async def test_records_that_nobody_awaits_are_stored_in_order(world: World) -> None:
    async with world.store.run("t") as run:
        for number in range(50):
            run.record(holdfast.Step(action=str(number)))
        await run.complete()
    latest = await world.store.latest("t")
    assert latest is not None
    assert [step.action for step in latest.steps] == [str(number) for number in range(50)]


async def test_a_backlog_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.stores import committer

    monkeypatch.setattr(committer, "BACKLOG_BYTES", 10_000)
    most = 0
    async with world.store.run("t") as run:
        for number in range(40):
            run.record(holdfast.Step(action=str(number), tool_output="x" * 1000 + str(number)))
            most = max(most, _queued_bytes(run))
    assert most < 15_000
    assert len((await world.store.latest("t")).steps) == 40  # type: ignore[union-attr]


def _queued_bytes(run: Any) -> int:
    inner = getattr(run, "_inner", run)
    return int(getattr(inner, "_run", inner)._ledger.claim.committer._queued_bytes)


async def test_a_plain_function_on_another_thread_can_record(world: World) -> None:
    def looked() -> None:
        run = world.api.current()
        run.record(holdfast.Step(action="from within"))

    async with world.store.run("t") as run:
        await run.step("look", looked)
        assert [step.action for step in run.steps] == ["from within", "look"]


async def test_the_rows_of_the_journal_say_what_happened(world: World) -> None:
    store = world.store
    with pytest.raises(holdfast.Suspended) as caught:
        async with store.run("t") as run:
            await run.step("search", list)
            await run.step("pay", list, effect=True)
            await run.ask("refund")
    await store.answer(caught.value.requests[0].id, value="yes")
    async with store.run("t") as run:
        await run.ask("refund")
        await run.complete("done")
    rows = (await store.history("t", journal=True)).items
    assert [row.metadata for row in reversed(rows)] == [
        {"step": "search", "ms": 0},
        {"begun": "pay"},
        {"step": "pay", "ms": 0},
        {"asked": "refund"},
        {"answered": 1},
        {"ended": "complete"},
    ]
