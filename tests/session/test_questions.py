"""Questions of a session: when an answer is used again, and when the question is asked again."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.runs.driver import Driver, Terms, claim, note
from runs.worlds import World
from session.talks import orchestrator


async def answer_of(world: World, choice: str, **options: Any) -> str:
    """What is answered to a session that asks, is suspended, and is resumed."""
    with pytest.raises(holdfast.Suspended) as raised:
        await talk(world, **options)
    (request,) = raised.value.requests
    await world.store.answer(request.id, choice)
    return await talk(world, **options)


async def talk(world: World, **options: Any) -> str:
    async with orchestrator(world).session("t") as session:
        answer = await session.pause_for_input("go on?", choices=("yes", "no"), **options)
        return str(answer.choice)


async def test_an_equal_question_in_a_later_session_is_asked_again(world: World) -> None:
    for choice in ("yes", "no", "yes"):
        assert await answer_of(world, choice) == choice


async def test_a_question_with_a_key_is_asked_once_in_the_thread(world: World) -> None:
    assert await answer_of(world, "yes", key="consent") == "yes"
    assert await talk(world, key="consent") == "yes"
    assert await answer_of(world, "no", key="again") == "no"


async def test_the_same_key_for_another_question_is_refused(world: World) -> None:
    assert await answer_of(world, "yes", key="consent") == "yes"
    async with orchestrator(world).session("t") as session:
        with pytest.raises(holdfast.KeyReused, match="another payload or other choices"):
            await session.pause_for_input("pay 4000?", choices=("yes", "no"), key="consent")


async def test_an_answer_is_used_again_until_a_session_that_used_it_is_left_normally(world: World) -> None:
    """A program that dies behind the question does not ask it again."""
    assert await answer_then_fail(world) == "yes"
    assert await talk(world) == "yes"
    with pytest.raises(holdfast.Suspended):
        await talk(world)


async def answer_then_fail(world: World) -> str:
    with pytest.raises(holdfast.Suspended) as raised:
        await talk(world)
    await world.store.answer(raised.value.requests[0].id, "yes")
    said: list[str] = []
    with pytest.raises(ConnectionError):
        await talk_and_fail(world, said)
    return said[0]


async def talk_and_fail(world: World, said: list[str]) -> None:
    async with orchestrator(world).session("t") as session:
        said.append(str((await session.pause_for_input("go on?", choices=("yes", "no"))).choice))
        raise ConnectionError


async def test_a_session_that_was_left_before_its_question_came_uses_up_nothing(world: World) -> None:
    with pytest.raises(holdfast.Suspended) as raised:
        await talk(world)
    await world.store.answer(raised.value.requests[0].id, "yes")
    async with orchestrator(world).session("t"):
        pass
    assert await talk(world) == "yes"


def test_a_store_opens_sessions_by_itself() -> None:
    with sync.MemoryStore() as store, store.session("t", budget_tokens=100, role="writer") as session:
        assert (session.role, session.phase) == ("writer", "chat")
        session.run_turn(lambda: "ok", usage=sync.UsageSnapshot(output_tokens=100))
        with pytest.raises(sync.BudgetExceeded):
            session.run_turn(lambda: "ok")


async def _awaited() -> int:
    async with holdfast.MemoryStore() as store, store.session("t", max_turns=1) as session:
        await session.run_turn(lambda: "ok")
        with pytest.raises(holdfast.TurnLimitExceeded):
            await session.run_turn(lambda: "ok")
        return len(session.turns)


def test_so_does_an_awaitable_one() -> None:
    assert asyncio.run(_awaited()) == 1


async def test_a_finished_thread_gives_its_answers_again_and_again(world: World) -> None:
    async def talk_and_complete() -> str:
        async with orchestrator(world).session("t") as session:
            answer = await session.pause_for_input("go on?", choices=("yes", "no"))
            await world.api.current().complete("done")
            return str(answer.choice)

    with pytest.raises(holdfast.Suspended) as raised:
        await talk_and_complete()
    await world.store.answer(raised.value.requests[0].id, "yes")
    assert [await talk_and_complete() for _ in range(3)] == ["yes"] * 3


async def test_a_fork_uses_the_answer_of_the_session_it_was_forked_from_and_none_before_it(world: World) -> None:
    for choice in ("yes", "no"):
        await answer_of(world, choice)
    with pytest.raises(holdfast.Suspended) as raised:
        await talk_and_turn(world, "t")
    await world.store.answer(raised.value.requests[0].id, "no")
    assert await talk_and_turn(world, "t") == "no"
    page = await world.store.history("t", limit=1)
    fork = await world.store.fork(page.items[0].id)
    assert await talk_and_turn(world, fork) == "no"
    with pytest.raises(holdfast.Suspended):
        await talk_and_turn(world, fork)


async def talk_and_turn(world: World, thread_id: str) -> str:
    async with orchestrator(world).session(thread_id) as session:
        answer = await session.pause_for_input("go on?", choices=("yes", "no"))
        await session.run_turn(lambda: "ok")
        return str(answer.choice)


async def test_a_thread_whose_notes_are_not_those_of_a_session_is_not_held_by_one(world: World) -> None:
    store: Any = world.store
    inner = store._inner._store if world.name == "blocking" else store
    claimed = claim(inner, "t", Terms())
    run = await claimed.enter()
    await Driver(run).write(note("turn", [1, 2], 1))
    await claimed.leave(None)
    with pytest.raises(holdfast.Corrupt, match="a note of kind 'turn' cannot be read"):
        async with orchestrator(world).session("t"):
            pass
    async with world.store.run("t", wait=0):
        pass
