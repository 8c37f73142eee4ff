"""A loop as typical programs have it, blocking: typed strictly, and run."""

from typing import Any

import holdfast.sync as holdfast
from holdfast.sync import Loop, LoopState, SnapshotStore


def send_mail(to: str, idempotency_key: str) -> str:
    return f"sent to {to}"


def plan(_loop: Loop) -> list[str]:
    return ["read", "write"]


def execute(loop: Loop, step: str) -> str:
    if step == "write":
        loop.call("send_mail", "ana")
    return step.upper()


def main() -> None:
    with holdfast.open("loops.db", durability="process") as store:
        tools = [holdfast.tool(send_mail, defer=True)]
        loop = Loop("kelp", plan=plan, execute=execute, store=store, thread_id="t", tools=tools, every=2)
        while loop.state not in {LoopState.COMPLETE, LoopState.FAILED}:
            loop.step_once()
            loop.checkpoint()
        results: list[Any] = loop.results
        assert results == ["READ", "WRITE"]
        found = Loop.resume(store, "t", plan=plan, execute=execute, tools=tools, drive=False)
        assert found is not None
        assert found.state is LoopState.COMPLETE
        snapshots = SnapshotStore(store, "kept")
        snapshots.save_atomic(found.snapshot())
        kept: dict[str, Any] | None = snapshots.load()
        assert kept is not None
        assert Loop.from_dict(kept).results == results


main()
