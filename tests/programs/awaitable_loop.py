"""A loop as typical programs have it, awaitable: typed strictly, and run."""

import asyncio
from datetime import timedelta
from typing import Any

import holdfast
from holdfast import Deferred, Loop, LoopState, Retention, Secret, Snapshot, SnapshotStore


@holdfast.tool(effect=True, retries=2)
async def pay(amount: int, idempotency_key: str) -> str:
    return f"paid {amount} with {len(idempotency_key)} characters"


def send_mail(to: str, idempotency_key: str) -> str:
    return f"sent to {to}"


async def plan(loop: Loop) -> list[Any]:
    return ["search", ["maps", "news"], "pay"] if not loop.results else []


async def execute(loop: Loop, step: str) -> str:
    if step == "pay":
        deferred: Deferred = await loop.call("send_mail", "ana")
        assert deferred.tool == "send_mail"
        return str(await loop.call(pay, 40))
    return step.upper()


async def reflect(loop: Loop) -> LoopState | None:
    loop.context["cursor"] = loop.cursor
    return None


def upgrade(old: dict[str, Any]) -> dict[str, Any]:
    return old | {"context": {**old["context"], "upgraded": True}}


async def main() -> None:
    async with holdfast.open("loops.db", durability="process") as store:
        tools = [pay, holdfast.tool(send_mail, defer=True)]
        loop = Loop(
            "kelp",
            plan=plan,
            execute=execute,
            observe=lambda _loop, _step, result: result,
            reflect=reflect,
            store=store,
            thread_id="t",
            context={"token": Secret("x")},
            every=timedelta(seconds=0),
            tools=tools,
            never_store={"api_key"},
            on_secret="redact",
            retention=Retention(ttl=timedelta(hours=24)),
            lease=30,
        )
        results: list[Any] = await loop.drive()
        state: LoopState = loop.state
        assert (len(results), state, loop.context["cursor"]) == (3, LoopState.COMPLETE, 3)
        again = await Loop.resume(store, "t", plan=plan, execute=execute, version=2, migrations={1: upgrade})
        assert again is not None
        snapshot: Snapshot = again.snapshot()
        assert (snapshot.version, snapshot.context["upgraded"], snapshot.plan[0]) == (2, True, "search")
        snapshots = SnapshotStore(store, "kept")
        await snapshots.save(snapshot)
        kept: dict[str, Any] | None = await snapshots.load()
        assert kept is not None
        copy = Loop.from_dict(kept, version=2)
        assert copy.cursor == 3


asyncio.run(main())
