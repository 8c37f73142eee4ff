"""The document's storage backends: its samples, over ours."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import FailurePolicy, MemoryStore, RecoveryAction, SQLiteStore, Step
from holdfast.runs.store import Store
from holdfast.stores import ObjectBackend
from object_map import ObjectMap

policy = FailurePolicy(default=RecoveryAction.ROLLBACK)


async def my_agent(task: str, *, record_step: Any, update_state: Any, **kwargs: Any) -> str:
    state = kwargs.get("restored_state", {})
    if state:
        return str(state["data"])
    record_step(Step(index=0, action="fetch", tool_output=task))
    update_state({"data": task, "step": 0})
    raise ConnectionError("down")


async def rolls_back(store: holdfast.Store) -> None:
    """The sample, over whatever store it is given."""
    agent = holdfast.Agent(
        my_agent,
        policy=policy,
        store=store,
        auto_checkpoint=True,  # saves a checkpoint after every record_step() call
    )
    assert await agent.run("kelp", thread_id="t") == "kelp"
    latest = await store.latest("t")
    assert latest is not None
    assert (latest.state, [step.action for step in latest.steps]) == ({"data": "kelp", "step": 0}, ["fetch"])
    assert (await store.load(latest.id)).state == latest.state
    await store.close()


def test_checkpoints_in_memory_need_nothing() -> None:
    store = MemoryStore()
    asyncio.run(rolls_back(store))


def test_checkpoints_in_memory_are_lost_with_their_store() -> None:
    async def scene() -> None:
        await rolls_back(MemoryStore())
        async with MemoryStore() as another:
            assert await another.latest("t") is None

    asyncio.run(scene())


def test_checkpoints_in_a_sqlite_file_survive_the_process(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from agent.test_document_stores import rolls_back
from holdfast import SQLiteStore
asyncio.run(rolls_back(SQLiteStore("checkpoints.db")))
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)

    async def scene() -> None:
        async with SQLiteStore(tmp_path / "checkpoints.db") as store:
            latest = await store.latest("t")
            assert latest is not None
            assert latest.state == {"data": "kelp", "step": 0}

    asyncio.run(scene())


def test_a_sqlite_store_in_memory_is_one_database_and_not_one_per_operation() -> None:
    asyncio.run(rolls_back(SQLiteStore(":memory:")))


def test_checkpoints_in_a_custom_store() -> None:
    asyncio.run(rolls_back(Store(ObjectBackend(ObjectMap()))))


def test_checkpoints_expire_after_their_time() -> None:
    async def scene() -> None:
        async with MemoryStore(retention=holdfast.Retention(ttl=0)) as store:
            await holdfast.Agent(my_agent, policy=policy, store=store).run("kelp", thread_id="t")
            await store.prune()
            assert await store.latest("t") is None

    asyncio.run(scene())


def test_a_store_that_fails_is_never_swallowed() -> None:
    async def scene() -> None:
        store = MemoryStore()

        async def worker(_task: str, *, record_step: Any) -> str:
            await store.close()
            record_step(Step(action="lost"))
            return "done"

        with pytest.raises(holdfast.StoreError):
            await holdfast.Agent(worker, policy=RecoveryAction.RETRY, store=store).run("t", thread_id="t")

    asyncio.run(scene())
