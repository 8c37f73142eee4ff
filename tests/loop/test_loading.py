"""Loops that cannot be resumed as they are: a clear error each, and nothing is lost."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Corrupt, IncompatibleCheckpoint, KeyReused, LeaseHeld, LoopState, sync
from loop.loops import failing, loop_from, new_loop, newest, resumed
from runs.worlds import World

STOPPED = {
    "version": 1,
    "request": "essay",
    "state": "EXECUTING",
    "plan": ["a", "b", "c"],
    "cursor": 1,
    "results": ["a"],
}


async def stopped(world: World, **changes: Any) -> dict[str, Any]:
    """Leave a thread that stopped before its second step, with these fields changed."""
    fields = {**STOPPED, **changes}
    await world.store.save("t", fields)
    return fields


async def nothing_is_lost(world: World, fields: Any) -> None:
    latest = await newest(world)
    assert (latest.state, latest.status) == (fields, "idle")


async def test_another_version_is_refused_naming_both(world: World) -> None:
    fields = await stopped(world)
    for attempt in (resumed(world, version=3), new_loop(world, version=3).drive()):
        with pytest.raises(IncompatibleCheckpoint, match=r"'t' holds a checkpoint of version 1, .* reads version 3"):
            await attempt
        await nothing_is_lost(world, fields)


@pytest.mark.parametrize("migrations", [{}, {2: dict}], ids=["no migration", "a migration"])
async def test_an_older_program_refuses_the_checkpoint_of_a_newer_one(world: World, migrations: Any) -> None:
    fields = await stopped(world, version=2)
    advice = "of version 2, but this program reads version 1; resume it with the program that wrote it"
    with pytest.raises(IncompatibleCheckpoint, match=advice):
        await resumed(world, migrations=migrations)
    await nothing_is_lost(world, fields)


async def test_migrations_upgrade_a_checkpoint_version_by_version(world: World) -> None:
    await stopped(world)
    migrations = {
        1: lambda old: old | {"plan": [{"name": step} for step in old["plan"]]},
        2: lambda old: old | {"context": {"migrated": True}},
    }
    loop = await resumed(world, version=3, migrations=migrations, execute=lambda _, step: step["name"].upper())
    assert (loop.results, loop.context) == (["a", "B", "C"], {"migrated": True})
    assert (await newest(world)).state["version"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "DANCING"}, "state 'DANCING' is unknown; states are PLANNING"),
        ({"cursor": 3}, "cursor 3 is beyond the plan of 3 steps in state EXECUTING"),
        ({"cursor": 4, "state": "REFLECTING"}, "cursor 4 is beyond the plan of 3 steps"),
        ({"cursor": -1}, "cursor -1 is beyond"),
        ({"cursor": "1"}, "Expected `int`"),
        ({"version": "1"}, "`version` must be an int, got '1'"),
        ({"plan": None}, "Expected `array`"),
        ({"results": {}}, "Expected `array`"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"decision": "MAYBE"}, "decision 'MAYBE' is unknown"),
        ({"outbox": [{"id": 1}]}, "Expected `str`"),
    ],
)
async def test_a_snapshot_that_was_tampered_with_is_refused(world: World, changes: Any, message: str) -> None:
    fields = await stopped(world, **changes)
    for attempt in (resumed(world), new_loop(world).drive()):
        with pytest.raises(Corrupt, match=message) as refused:
            await attempt
        assert "thread 't'" in str(refused.value)
        await nothing_is_lost(world, fields)
    with pytest.raises(Corrupt, match=message):
        loop_from(world, fields)


async def test_a_thread_that_is_no_loop_is_refused(world: World) -> None:
    await world.store.save("t", ["not", "a", "loop"])
    with pytest.raises(Corrupt, match="holds a list, not the snapshot of a loop"):
        await resumed(world)


async def test_the_thread_of_an_agent_is_not_taken_for_a_loop(world: World) -> None:
    async def agent(task: str) -> str:
        return task

    async with world.store.run("t") as run:
        await run.checkpoint({"some": "state"})
    with pytest.raises(Corrupt, match="`version` must be an int, got None"):
        await resumed(world)
    function = world.durable()(agent)
    await function.run("other", "task")
    with pytest.raises(KeyReused, match="'other' is not the thread of a loop"):
        await resumed(world, thread_id="other")
    with pytest.raises(KeyReused, match="not loop; give another thread id"):
        await new_loop(world, thread_id="other").drive()


async def test_another_request_for_the_thread_of_a_loop_is_refused(world: World) -> None:
    await new_loop(world).drive()
    refused = new_loop(world, "another essay")
    with pytest.raises(KeyReused, match="its request differed"):
        await refused.drive()
    assert (refused.request, refused.state, refused.results) == ("another essay", LoopState.PLANNING, [])


async def test_a_finished_loop_returns_its_results_and_executes_nothing(world: World) -> None:
    await new_loop(world).drive()
    calls: list[str] = []
    again = new_loop(world, execute=lambda _, step: calls.append(step))
    assert (await again.drive(), again.state, calls) == (["a", "b", "c"], LoopState.COMPLETE, [])
    assert (await world.store.thread("t")).status == "complete"


async def test_a_loop_that_another_process_drove_on_is_a_conflict(world: World) -> None:
    mine, other = new_loop(world), new_loop(world, store=world.open())
    await mine.step_once()
    await mine.checkpoint()
    await mine.step_once()
    await other.drive()
    with pytest.raises(Conflict, match=r"another process drove it; use Loop\.resume"):
        await mine.step_once()
    assert (await world.store.thread("t")).status == "complete"


async def test_a_loop_that_waited_for_another_process_takes_over_what_that_one_did(world: World) -> None:
    calls: list[str] = []

    async def execute(_: Any, step: str) -> str:
        calls.append(step)
        return step

    with pytest.raises(ConnectionError):
        await new_loop(world, execute=failing(1, execute)).drive()
    waiting = await resumed(world, execute=execute, drive=False)
    await resumed(world, store=world.open(), execute=execute)
    assert await waiting.drive() == ["a", "b", "c"]
    assert calls == ["a", "a", "b", "c"]


async def test_a_loop_that_another_process_drives_is_left_to_it(world: World) -> None:
    refused: list[str] = []

    async def execute(_: Any, step: str) -> str:
        with pytest.raises(LeaseHeld):
            await resumed(world, store=other, wait=0)
        refused.append(step)
        return step

    other = world.open()
    assert await new_loop(world, execute=execute).drive() == refused == ["a", "b", "c"]


async def test_a_cancelled_loop_is_not_driven(world: World) -> None:
    with pytest.raises(ConnectionError):
        await new_loop(world, execute=failing(1, lambda _, step: step)).drive()
    await world.store.cancel("t")
    with pytest.raises(holdfast.RunCancelled):
        await resumed(world)


def test_a_flipped_bit_in_the_stored_snapshot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "loops.db"
    with sync.open(path, durability="process") as store:
        sync.Loop("essay", plan=lambda _: ["a"], execute=lambda _, step: step, store=store, thread_id="t").drive()
    with closing(sqlite3.connect(path)) as database, database:
        at, body = database.execute("SELECT rowid, body FROM rows WHERE digest <> x'' ORDER BY id DESC").fetchone()
        database.execute("UPDATE rows SET body = ? WHERE rowid = ?", (bytes((*body[:-1], body[-1] ^ 1)), at))
    with sync.open(path, durability="process") as store, pytest.raises(Corrupt):
        sync.Loop.resume(store, "t", drive=False)


async def test_a_context_may_have_any_keys_and_can_be_resumed(world: World) -> None:
    def execute(loop: Any, step: str) -> str:
        loop.context[(step, 1)] = {2: step}
        return step

    with pytest.raises(ConnectionError):
        await new_loop(world, context={1: "one"}, execute=failing(1, execute)).drive()
    loop = await resumed(world, execute=execute)
    assert loop.results == ["a", "b", "c"]
    assert loop.context == {1: "one", ("a", 1): {2: "a"}, ("b", 1): {2: "b"}, ("c", 1): {2: "c"}}


async def test_as_many_transitions_of_another_process_are_a_conflict_too(world: World) -> None:
    def execute(who: str) -> Any:
        def worker(_: Any, step: str) -> str:
            if step == "b":
                raise ConnectionError("the network is down")
            return who

        return worker

    mine, other = new_loop(world, execute=execute("mine"), every=100), new_loop(world, execute=execute("other"))
    for loop in (mine, other):
        with pytest.raises(ConnectionError):
            await loop.drive()
    for write in (mine.drive, mine.step_once, mine.checkpoint):
        with pytest.raises(Conflict, match="another process drove it"):
            await write()
    latest = await newest(world)
    assert (latest.state["results"], latest.state["transitions"]) == (["other"], mine.snapshot().transitions)
