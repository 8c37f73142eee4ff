"""Within and between turns: steps, parallel tools, questions to people, hand-overs."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast import ConfigurationError, StepFailed, Suspended, sync
from holdfast.history.entries import Traced
from holdfast.history.journal import Journal
from runs.worlds import World
from session.talks import Model, orchestrator


async def test_the_steps_of_two_turns_are_their_own(world: World) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:
        for key in ("1", "2", None, None):

            async def turn() -> Any:
                first = await session.step("search", model, "same")
                assert await session.step("search", model, "same") == first
                return first

            await session.run_turn(turn, idempotency_key=key)
        assert len(model.prompts) == 4
        assert await session.step("search", model, "same") == await session.step("search", model, "same")
    assert len(model.prompts) == 5


async def test_a_turn_without_a_key_never_finds_the_steps_of_one_before_it(world: World) -> None:
    model = Model()

    async def talk(ends: Callable[[], Any]) -> None:
        async with orchestrator(world).session("t") as session:

            async def turn() -> None:
                await session.step("search", model, "same")
                ends()

            await session.run_turn(turn)

    with pytest.raises(ZeroDivisionError):
        await talk(lambda: 1 / 0)
    await talk(lambda: None)
    assert len(model.prompts) == 2


async def test_parallel_tools_are_steps_and_finished_ones_are_not_called_again(world: World) -> None:
    calls: list[str] = []
    broken = ["weather"]

    def tool(name: str) -> str:
        calls.append(name)
        if name in broken:
            raise ConnectionError(name)
        return name.upper()

    for expected in (None, ["MAPS", "WEATHER", "NEWS"]):
        async with orchestrator(world).session("t") as session:

            async def turn() -> list[str]:
                names = ("maps", "weather", "news")
                branches = [session.step(name, tool, name) for name in names]
                return await world.gather(*branches)

            if expected is None:
                with pytest.raises(StepFailed):
                    await session.run_turn(turn, idempotency_key="k")
                broken.clear()
            else:
                assert (await session.run_turn(turn, idempotency_key="k")).value == expected
    assert sorted(calls) == ["maps", "news", "weather", "weather"]


def test_a_step_on_a_thread_that_does_not_know_its_turn_is_refused() -> None:
    """It would find the results of another turn's step."""
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    with (
        ThreadPoolExecutor(1) as pool,
        sync.Orchestrator("a", "b", sync.MemoryStore()).session("t") as session,
    ):
        with pytest.raises(ConfigurationError, match="copy_context"):
            session.run_turn(lambda: pool.submit(session.step, "search", str.upper, "x").result(), idempotency_key="k")
        found = session.run_turn(
            lambda: pool.submit(copy_context().run, session.step, "search", str.upper, "x").result(),
            idempotency_key="k",
        )
        assert found.value == "X"
        assert pool.submit(session.step, "search", str.upper, "y").result() == "Y"  # between turns there is no doubt


async def test_an_effect_within_a_turn_has_its_policy(world: World) -> None:
    paid: list[str] = []

    def pay(amount: int, idempotency_key: str) -> int:
        paid.append(idempotency_key)
        return amount

    async with orchestrator(world).session("t") as session:

        async def turn() -> Any:
            return await session.step("pay", pay, 40, effect=True, retries=1, timeout=30)

        assert (await session.run_turn(turn, idempotency_key="k")).value == 40
    assert len(paid[0]) == 32


def test_plain_code_of_an_awaitable_session_has_blocking_steps() -> None:
    import asyncio

    import holdfast

    model = Model()

    def turn() -> str:
        return sync.current().step("one", model, "x")

    async def talk() -> str:
        async with holdfast.Orchestrator("a", "b", holdfast.MemoryStore()).session("t") as session:
            return (await session.run_turn(turn)).value

    assert asyncio.run(talk()) == "answer 1 to x"


# Questions


async def test_a_question_within_a_turn_suspends_it_and_it_goes_on_behind_its_steps(world: World) -> None:
    model = Model()

    async def talk() -> str:
        async with orchestrator(world).session("t") as session:

            async def turn() -> str:
                found = await session.step("search", model, "kelp")
                answer = await session.pause_for_input("May I?", name="permission", deadline=3600, default="no")
                return f"{found}, {answer.value}"

            return (await session.run_turn(turn, idempotency_key="k")).value  # type: ignore[no-any-return]

    with pytest.raises(Suspended) as paused:
        await talk()
    assert (await world.store.thread("t")).status == "input_required"
    request = paused.value.requests[0]
    assert (request.name, request.payload) == ("permission", "May I?")
    await world.store.answer(request.id, value="yes", by="ana")
    assert await talk() == "answer 1 to kelp, yes"
    assert await talk() == "answer 1 to kelp, yes"
    assert model.prompts == ["kelp"]


async def test_a_turn_that_swallows_its_own_question_is_not_recorded(world: World) -> None:
    async def talk() -> Any:
        async with orchestrator(world).session("t") as session:

            async def turn() -> Any:
                try:
                    return (await session.pause_for_input("May I?")).value
                except BaseException:  # noqa: BLE001  what a gather with return_exceptions=True does
                    return "nobody was asked"

            return (await session.run_turn(turn, idempotency_key="k")).value

    with pytest.raises(Suspended) as paused:
        await talk()
    await world.store.answer(paused.value.requests[0].id, value="yes")
    assert await talk() == "yes"


async def test_at_the_deadline_the_default_is_taken(world: World) -> None:
    async def talk() -> Any:
        async with orchestrator(world).session("t") as session:
            return await session.pause_for_input("Go on?", choices=("yes", "no"), deadline=60, default="no")

    with pytest.raises(Suspended):
        await talk()
    world.clock.advance(61)
    answer = await talk()
    assert (answer.choice, answer.by) == ("no", "deadline")


# Hand-overs


async def test_a_hand_over_is_recorded_once_and_turns_know_their_hands(world: World) -> None:
    for _ in range(3):
        async with orchestrator(world).session("t") as session:
            await session.run_turn(lambda: 1, idempotency_key="1")
            await session.hand_over("editor", "review")
            await session.run_turn(lambda: 2, idempotency_key="2")
            await session.hand_over("writer")
            await session.run_turn(lambda: 3, idempotency_key="3")
            await session.hand_over("editor", "review")
            assert (session.role, session.phase) == ("editor", "review")
            summary = session.summary()
    assert [(turn.role, turn.phase) for turn in session.turns] == [
        ("writer", "draft"),
        ("editor", "review"),
        ("writer", "review"),
    ]
    assert (summary.role, summary.phase) == ("editor", "review")
    assert await orchestrator(world).summary("t") == summary
    latest = await world.store.latest("t")
    assert latest is not None
    events = [step.metadata for step in latest.steps if step.action == "hand_over"]
    assert [(event["role"], event["phase"]) for event in events] == [
        ("editor", "review"),
        ("writer", "review"),
        ("editor", "review"),
    ]
    assert [info.metadata for info in await world.store.history("t", where={"to": "writer/review"})] == [
        {"from": "editor/review", "to": "writer/review"}
    ]


async def test_a_hand_over_with_a_key_is_told_apart_by_it(world: World) -> None:
    for key in ("a", "b", "a"):
        async with orchestrator(world).session("t") as session:
            await session.hand_over("editor", idempotency_key=key)
    assert len(await world.store.history("t")) == 2


@pytest.mark.parametrize("wrong", ["", None, 5])
async def test_a_hand_over_to_nobody_is_refused(world: World, wrong: Any) -> None:
    async with orchestrator(world).session("t") as session:
        with pytest.raises(ConfigurationError, match="role"):
            await session.hand_over(wrong)
        assert session.role == "writer"


def test_what_is_carried_is_written_with_the_next_turn() -> None:
    with sync.MemoryStore() as store, sync.Orchestrator("writer", "draft", store).session("t") as session:
        session.run_turn(lambda: 1)
        session._session._run._ledger.carry(Traced("a trace"))
        session.run_turn(lambda: 2)
        reader = store._store._reader
        assert Journal.of(reader.load_head(reader.sealing.key("t")).log.document).trace == "a trace"


def test_a_turn_that_was_interrupted_while_it_was_recorded_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    add, called = Journal.add, list[int]()

    def strike(self: Journal, entry: Any) -> None:
        monkeypatch.setattr(Journal, "add", add)
        raise KeyboardInterrupt

    with sync.MemoryStore() as store:
        orchestrator = sync.Orchestrator("writer", "draft", store)
        with suppress(sync.OutcomeUnknown), orchestrator.session("t") as session:
            session.run_turn(lambda: called.append(1), idempotency_key="first")
            monkeypatch.setattr(Journal, "add", strike)
            with pytest.raises(KeyboardInterrupt):
                session.run_turn(lambda: called.append(2), idempotency_key="second")
            with pytest.raises(sync.OutcomeUnknown):
                session.run_turn(lambda: called.append(3), idempotency_key="second")
        with orchestrator.session("t") as session:
            session.run_turn(lambda: called.append(4), idempotency_key="second")
            assert [turn.idempotency_key for turn in session.turns] == ["first", "second"]
    assert called == [1, 2, 4]
