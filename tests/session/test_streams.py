"""Streams: chunks as they come, recorded when they end, and the same chunks again."""

from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import holdfast
from holdfast import ConfigurationError, KeyReused, StepTimeout, UnstorableValue, UsageSnapshot, sync
from runs.worlds import AwaitableWorld, World
from session.talks import Model, collected, orchestrator


class Words:
    """A stream that is paid for: counts how often it was begun, and what of it was read."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.begun = 0
        self.given: list[str] = []
        self.closed = 0

    def plain(self) -> Iterator[str]:
        self.begun += 1
        try:
            for word in self.words:
                self.given.append(word)
                yield word
        finally:
            self.closed += 1

    async def awaited(self) -> AsyncIterator[str]:
        self.begun += 1
        try:
            for word in self.words:
                self.given.append(word)
                yield word
        finally:
            self.closed += 1

    def source(self, world: World) -> Any:
        return self.awaited if isinstance(world, AwaitableWorld) else self.plain


async def test_a_stream_is_recorded_when_it_ends_and_replays_the_same_chunks(world: World) -> None:
    words = Words("a", "b", "c")
    for _ in range(2):
        async with orchestrator(world).session("t") as session:
            stream = session.run_turn_stream(words.source(world), idempotency_key="k")
            assert await collected(stream) == ["a", "b", "c"]
            assert session.turns[0].value == ["a", "b", "c"]
    assert words.begun == 1


async def test_a_plain_iterator_streams_in_both_worlds(world: World) -> None:
    words = Words("a", "b")
    async with orchestrator(world).session("t") as session:
        assert await collected(session.run_turn_stream(words.plain)) == ["a", "b"]
        assert await collected(session.run_turn_stream(lambda: ["x"])) == ["x"]
        assert await collected(session.run_turn_stream(lambda: iter(()), idempotency_key="k")) == []
        assert await collected(session.run_turn_stream(lambda: ["not", "empty"], idempotency_key="k")) == []


async def test_chunks_are_handed_on_as_they_come(world: World) -> None:
    words = Words("a", "b", "c")
    async with orchestrator(world).session("t") as session:
        async for chunk in session.run_turn_stream(words.source(world)):
            assert words.given[-1] == chunk
            assert not session.turns


async def test_a_stream_that_is_left_is_closed_and_not_recorded(world: World) -> None:
    words = Words("a", "b", "c")
    async with orchestrator(world).session("t") as session:
        stream = session.run_turn_stream(words.source(world), idempotency_key="k")
        assert await anext(stream) == "a"
        await stream.aclose()
        assert (words.closed, session.turns) == (1, [])
        assert await collected(session.run_turn_stream(words.source(world), idempotency_key="k")) == ["a", "b", "c"]


async def test_a_stream_that_breaks_is_a_failed_turn(world: World) -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise ValueError("cut off")

    words = Words("a", "b")
    async with orchestrator(world).session("t") as session:
        with pytest.raises(ValueError, match="cut off"):
            await collected(session.run_turn_stream(broken, idempotency_key="k"))
        assert session.turns[0].error == "ValueError: cut off"
        assert await collected(session.run_turn_stream(words.source(world), idempotency_key="k")) == ["a", "b"]


async def test_the_usage_of_a_stream_is_a_function_of_its_chunks(world: World) -> None:
    def used(chunks: list[str]) -> UsageSnapshot:
        return UsageSnapshot(output_tokens=len(chunks))

    async with orchestrator(world).session("t") as session:
        await collected(session.run_turn_stream(Words("a", "b").source(world), usage=used))
        assert session.usage == UsageSnapshot(output_tokens=2)


async def test_a_key_is_for_a_turn_or_a_stream(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        await session.run_turn(lambda: "text", idempotency_key="turn")
        await collected(session.run_turn_stream(lambda: ["chunk"], idempotency_key="stream"))
        with pytest.raises(KeyReused, match="run_turn;"):
            await collected(session.run_turn_stream(lambda: ["chunk"], idempotency_key="turn"))
        with pytest.raises(KeyReused, match="run_turn_stream"):
            await session.run_turn(lambda: "text", idempotency_key="stream")


async def test_the_code_of_a_stream_belongs_to_its_turn_and_what_is_between_does_not(world: World) -> None:
    keys: list[str] = []

    def stream() -> Iterator[int]:
        for number in range(2):
            keys.append(world.api.idempotency_key())
            yield number

    async with orchestrator(world).session("t") as session:
        async for _ in session.run_turn_stream(stream, idempotency_key="k"):
            with pytest.raises(ConfigurationError):
                world.api.idempotency_key()
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_step_within_a_stream_is_executed_once(world: World) -> None:
    model = Model()
    async with orchestrator(world).session("t") as session:
        for ends in (False, True):

            def stream() -> Iterator[str]:
                yield sync.current().step("search", model, "kelp")
                if not ends:  # noqa: B023  called at once
                    raise ZeroDivisionError

            with nullcontext() if ends else pytest.raises(ZeroDivisionError):
                assert await collected(session.run_turn_stream(stream, idempotency_key="k")) == ["answer 1 to kelp"]
    assert model.prompts == ["kelp"]


async def test_what_is_no_stream_is_refused(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        for value in (5, "text", None):
            with pytest.raises(ConfigurationError, match="an iterator of chunks"):
                await collected(session.run_turn_stream(lambda: value))  # noqa: B023  called at once


def test_the_blocking_session_refuses_an_async_stream() -> None:
    session = sync.Orchestrator("a", "b", sync.MemoryStore()).session("t")
    with session as opened, pytest.raises(ConfigurationError, match="async_generator"):
        list(opened.run_turn_stream(Words("a").awaited))  # type: ignore[arg-type]


async def test_chunks_that_cannot_be_stored_were_delivered_and_are_in_the_error(world: World) -> None:
    chunk, got = object(), list[object]()
    async with orchestrator(world).session("t") as session:
        with pytest.raises(UnstorableValue) as caught:
            await collected(session.run_turn_stream(lambda: [chunk]), got)
    assert got == caught.value.value == [chunk]


def test_a_stream_has_one_time_limit_for_all_its_chunks() -> None:
    from threading import Event

    never = Event()

    def slow() -> Iterator[int]:
        yield 1
        never.wait()
        yield 2

    with sync.Orchestrator("a", "b", sync.MemoryStore()).session("t") as session:
        stream = session.run_turn_stream(slow, timeout=1)
        assert next(stream) == 1
        with pytest.raises(StepTimeout):
            next(stream)
        never.set()
        assert [str(turn.error).partition(":")[0] for turn in session.turns] == ["StepTimeout"]


def test_an_async_stream_has_one_too() -> None:
    import asyncio

    async def slow() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async def talk() -> list[int]:
        got: list[int] = []
        async with holdfast.Orchestrator("a", "b", holdfast.MemoryStore()).session("t") as session:
            with pytest.raises(StepTimeout):
                await collected(session.run_turn_stream(slow, timeout=1), got)
        return got

    assert asyncio.run(talk()) == [1]


async def test_a_turn_that_is_being_streamed_is_refused_and_does_not_wait_for_ever(world: World) -> None:
    words = Words("a", "b")
    async with orchestrator(world).session("t") as session:
        stream = session.run_turn_stream(words.source(world), idempotency_key="k")
        await anext(stream)
        with pytest.raises(ConfigurationError, match="is being streamed"):
            await collected(session.run_turn_stream(words.source(world), idempotency_key="k"))
        with pytest.raises(ConfigurationError, match="is being streamed"):
            await session.run_turn(lambda: 1, idempotency_key="k")
        assert await collected(stream) == ["b"]
        assert await collected(session.run_turn_stream(words.source(world), idempotency_key="k")) == ["a", "b"]


async def test_a_session_can_be_suspended_while_a_stream_is_half_read(world: World) -> None:
    words = Words("a", "b")
    streams: list[Any] = []

    async def talk() -> None:
        async with orchestrator(world).session("t") as session:
            streams.append(session.run_turn_stream(words.source(world), idempotency_key="k"))
            await anext(streams[-1])
            await session.pause_for_input("go on?")

    with pytest.raises(world.api.Suspended):
        await talk()
    assert words.closed == 1


async def test_an_error_in_the_midst_of_a_stream_closes_it(world: World) -> None:
    words = Words("a", "b")
    with pytest.raises(ZeroDivisionError):
        await half_read(world, words)
    assert words.closed == 1
    async with orchestrator(world).session("t") as session:
        assert await collected(session.run_turn_stream(words.source(world), idempotency_key="k")) == ["a", "b"]


async def half_read(world: World, words: Words) -> None:
    async with orchestrator(world).session("t") as session:
        async for _ in session.run_turn_stream(words.source(world), idempotency_key="k"):
            raise ZeroDivisionError


async def test_of_two_branches_that_stream_one_key_one_is_refused(world: World) -> None:
    words = Words("a", "b", "c")
    async with orchestrator(world).session("t") as session:

        async def branch() -> Any:
            try:
                return await collected(session.run_turn_stream(words.source(world), idempotency_key="k"))
            except ConfigurationError:
                return "refused"

        results = await world.gather(branch(), branch())
    assert ["a", "b", "c"] in results
    assert words.begun == 1


async def test_a_stream_that_swallows_its_own_question_is_not_recorded(world: World) -> None:
    def stream() -> Iterator[Any]:
        yield "May I?"
        try:
            yield sync.current().ask("may I").value
        except BaseException:  # noqa: BLE001  what careless code does
            yield "nobody was asked"

    async def talk() -> list[Any]:
        async with orchestrator(world).session("t") as session:
            return await collected(session.run_turn_stream(stream, idempotency_key="k"))

    with pytest.raises(holdfast.Suspended) as paused:
        await talk()
    await world.store.answer(paused.value.requests[0].id, value="yes")
    assert await talk() == ["May I?", "yes"]
