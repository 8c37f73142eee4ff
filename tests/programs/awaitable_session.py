"""A session as typical programs have it, awaitable: typed strictly, and run."""

import asyncio
from collections.abc import AsyncIterator

import holdfast
from holdfast import Orchestrator, SQLiteStore, UsageSnapshot


async def call_model(prompt: str) -> str:
    await asyncio.sleep(0)
    return f"a text about {prompt}"


async def stream_model(prompt: str) -> AsyncIterator[str]:
    for word in (await call_model(prompt)).split():
        yield word


async def look_up(name: str) -> str:
    return name.upper()


async def talk(session: holdfast.Session) -> str:
    async def turn() -> list[str]:
        return [*await asyncio.gather(session.step("maps", look_up, "maps"), session.step("news", look_up, "news"))]

    draft, usage = await session.run_turn(
        lambda: call_model("kelp"), usage=lambda text: UsageSnapshot(output_tokens=len(text)), idempotency_key="draft"
    )
    found = await session.run_turn(turn, idempotency_key="tools")
    names: list[str] = found.value
    words = [word async for word in session.run_turn_stream(lambda: stream_model("rock"), idempotency_key="stream")]
    answer = await session.pause_for_input({"draft": draft}, choices=("good", "bad"))
    plain = await session.run_turn(lambda: len(words), idempotency_key="plain")
    count: int = plain.value
    return f"{' '.join(names)} {usage.output_tokens} {count} {answer.choice}"


async def main() -> None:
    async with SQLiteStore("talks.db") as store:
        orchestrator = Orchestrator(role="writer", phase="draft", store=store, budget_tokens=1000)
        try:
            async with orchestrator.session("essay") as session:
                await talk(session)
        except holdfast.Suspended as suspended:
            await store.answer(suspended.requests[0].id, "good", by="ana")
        async with orchestrator.session("essay") as session:
            assert await talk(session) == "MAPS NEWS 17 4 good"
            assert session.usage.tokens == 17


asyncio.run(main())
