"""Threads that a worker cannot run, or whose code misbehaves, neither stop it nor keep it busy, nor hold a place."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.records.identity import namespace_prefix
from holdfast.runs.durable import registry
from holdfast.stores.agenda import Depth
from holdfast.stores.listed_agenda import agenda_of
from patience import GIVE_UP_SECONDS
from runs.test_worker import Place, in_loop, until

QUEUE = holdfast.Queue("narrow", concurrency=1)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture(autouse=True)
def _own_names() -> Iterator[None]:
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)


async def work() -> str:
    return "done"


@in_loop
async def test_a_look_that_finds_only_live_leases_looks_on(place: Place) -> None:
    function = place.durable(work, name="work")
    await function.submit("live")
    async with place.another().run("live", lease=30) as run:
        place.clock.advance(25)
        await run.checkpoint({})
        place.clock.advance(10)
        await function.submit("next")
        await place.run_once(functions=[function], concurrency=1)
        assert (await place.store.thread("next")).status == "complete"


@in_loop
async def test_a_cancellation_that_nobody_asked_for_fails_the_thread(place: Place) -> None:
    runs = []

    async def confused() -> None:
        runs.append(1)
        raise asyncio.CancelledError

    await place.durable(confused, name="confused").submit("t")
    await place.run_once(functions=[registry["confused"]])
    info = await place.store.thread("t")
    assert (info.status, len(runs)) == ("failed", 1)
    assert "was not cancelled" in str(info.error)


@pytest.mark.parametrize("is_plain", [False, True])
def test_code_that_exits_the_program_ends_three_workers_and_then_fails(tmp_path: Path, is_plain: bool) -> None:
    runs = []

    async def leave() -> None:
        runs.append(1)
        raise SystemExit(3)

    def leave_plainly() -> None:
        runs.append(1)
        raise SystemExit(3)

    registry.pop("leave", None)
    function: Any = sync.durable(name="leave")(leave_plainly) if is_plain else holdfast.durable(name="leave")(leave)

    async def once() -> None:
        async with holdfast.open(tmp_path / "holdfast.db") as store:
            await holdfast.Worker(store, functions=[function]).run(once=True)

    exits, give_up_at = 0, monotonic() + GIVE_UP_SECONDS
    with sync.open(tmp_path / "holdfast.db") as store:
        store.submit("leave", "t", ())
        while store.thread("t").status != "failed":  # a worker that ends may have taken it, and not claimed it
            assert monotonic() < give_up_at
            try:
                asyncio.run(once())
            except SystemExit:
                exits += 1
    assert (exits, len(runs)) == (3, 3)


@in_loop
async def test_a_run_that_waits_for_itself_fails(place: Place) -> None:
    async def selfish() -> Any:
        return await place.store.handle("t").result()

    await place.durable(selfish, name="selfish").submit("t")
    await place.run_once(functions=[registry["selfish"]])
    assert "cannot wait for its own end" in str((await place.store.thread("t")).error)


@in_loop
async def test_a_function_that_is_gone_is_not_looked_for(place: Place) -> None:
    place.durable(work, name="gone")
    calls = place.backend.calls
    async with holdfast.Worker(place.store):
        await until(lambda: calls["take"] >= 2)
        registry.pop("gone")
        await place.store.submit("gone", "t", ())
        swaps, takes = calls["swap"], calls["take"]
        await until(lambda: calls["take"] >= takes + 4)
        assert calls["swap"] == swaps, "it was not claimed, and released, again and again"


class Damaged:
    """A SQLite store with a queued thread `bad` before a good one, on a queue with one place."""

    def __init__(self, path: Path, damage: str) -> None:
        self.path = path / "holdfast.db"
        registry.pop("work", None)
        self.function: Any = holdfast.durable(name="work", queue=QUEUE)(work)
        with sync.open(self.path) as store:
            store.submit("work", "bad", (), queue=QUEUE)
            with closing(sqlite3.connect(self.path)) as raw, raw:
                raw.execute(damage)
            store.submit("work", "good", (), queue=QUEUE)

    async def serve(self) -> tuple[int, Depth]:
        """Run a worker until it has done the good thread; return how many swaps it made, and the depth of the queue."""
        swaps = 0
        async with holdfast.open(self.path) as store:
            inner = store._backend.swap

            def swap(*arguments: Any, **options: Any) -> Any:
                nonlocal swaps
                swaps += 1
                return inner(*arguments, **options)

            store._backend.swap = swap  # type: ignore[method-assign]
            async with holdfast.Worker(store, functions=[self.function], concurrency=1):
                assert await store.handle("good").result(timeout=GIVE_UP_SECONDS) == "done"
            return swaps, agenda_of(store._backend).depth(namespace_prefix(""), QUEUE.name)


ROWS = "UPDATE rows SET body = x'00ff' WHERE id = (SELECT min(id) FROM rows)"
HEAD = "UPDATE rows SET header = x'00ff' WHERE id = (SELECT max(id) FROM rows)"


def test_a_thread_whose_rows_are_damaged_is_tried_once_a_minute(tmp_path: Path) -> None:
    scene = Damaged(tmp_path, ROWS)
    swaps, depth = asyncio.run(scene.serve())
    assert swaps <= 2 + 4, "a claim and its release, and what the good one needs"
    assert (depth.running, depth.ready, depth.delayed) == (0, 0, 1)
    with sync.open(scene.path) as store:
        assert store.thread("bad").status == "queued"


def test_a_thread_whose_head_is_damaged_holds_no_place(tmp_path: Path) -> None:
    scene = Damaged(tmp_path, HEAD)
    _, depth = asyncio.run(scene.serve())
    assert (depth.running, depth.ready, depth.delayed) == (0, 0, 1)
