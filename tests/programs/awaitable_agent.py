"""An agent as typical programs have it, awaitable: typed strictly, and run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import holdfast
from holdfast import Agent, FailurePolicy, FailureType, RecoveryAction, RulesClassifier, SQLiteStore, Step

policy = FailurePolicy(
    external_fault=FailurePolicy.sequence(RecoveryAction.RETRY(hint="once more"), RecoveryAction.ROLLBACK),
    timeout=holdfast.backoff_and_retry(base=0.1),
    default=holdfast.circuit_breaker(RecoveryAction.REPLAN, threshold=2),
)


async def writer(
    task: str,
    *,
    record_step: Callable[[Step], holdfast.Receipt],
    update_state: Callable[[dict[str, Any]], None],
    recovery: holdfast.RecoveryContext | None = None,
) -> str:
    update_state({"task": task})
    await record_step(Step(action="draft", tool_output=task))
    if recovery is None:
        raise ConnectionError("the service is down")
    assert recovery.failure is FailureType.EXTERNAL_FAULT
    return f"{task}: {recovery.hint}"


async def words(task: str) -> AsyncIterator[str]:
    for word in task.split():
        holdfast.record_usage(output_tokens=1)
        yield word


async def decide(context: holdfast.FailureContext) -> RecoveryAction:
    return RecoveryAction.ABORT(reason=context.message)


async def failing(_task: str) -> None:
    raise ValueError("no")


async def main() -> None:
    async with SQLiteStore("agents.db") as store:
        agent = Agent(writer, policy=policy, store=store, classifier=RulesClassifier(loop_window=4), max_tokens=1000)
        assert await agent.run("kelp", thread_id="t-1") == "kelp: once more"
        outcome = await agent.start("kelp", thread_id="t-1")
        assert outcome.status is holdfast.Status.COMPLETE
        stream = Agent(words, store=store)
        assert [word async for word in stream.stream("what holds kelp", thread_id="t-2")] == ["what", "holds", "kelp"]
        assert (await stream.summary("t-2")).usage.tokens == 3
        context: holdfast.FailureContext | None = None
        try:
            await Agent(failing, policy=decide, store=store).run("t")
        except holdfast.Aborted as aborted:
            context = aborted.context
        assert context is not None
        assert context.type is FailureType.UNKNOWN


asyncio.run(main())
