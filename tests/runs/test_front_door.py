"""Runs through the names that users import: stores of every kind, the default one, listeners, the terminal."""

import asyncio
import io
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.runs import api
from holdfast.sync import functions
from holdfast.testing.faults import Fault
from runs.worlds import SWAPS, World


@pytest.fixture
def default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where stores are that nobody names."""
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "agents.db"))
    return tmp_path / "agents.db"


def test_a_function_that_names_no_store_uses_the_default_one(default_place: Path) -> None:
    @holdfast.durable
    async def awaitable(number: int) -> int:
        return number + 1

    @sync.durable
    def blocking(number: int) -> int:
        return number + 2

    async def whole() -> None:
        assert await awaitable.run("a", 1) == 2
        await api.default_store().close()

    asyncio.run(whole())
    assert blocking.run("b", 1) == 3
    assert sorted(info.thread_id for info in functions.default_store().threads()) == ["a", "b"]
    functions.default_store().close()
    assert default_place.exists()


@sync.durable
def counted(number: int) -> int:
    return number


@sync.agent
def follower(task: str) -> str:
    return task


writer = sync.Orchestrator("writer", "draft")


def use_default_stores(name: str) -> set[str]:
    """Use each thing that has a default store, on a thread of its own; then list that store as `open` finds it."""
    counted.run(f"{name}-durable", 1)
    follower.run("all", thread_id=f"{name}-agent")
    with writer.session(f"{name}-session") as session:
        session.run_turn(lambda: 1)
    with sync.open() as store:
        return {info.thread_id for info in store.threads()}


def test_every_default_store_follows_the_environment_and_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert use_default_stores(name) == {f"{name}-durable", f"{name}-agent", f"{name}-session"}
        assert (tmp_path / name / "holdfast.db").exists()
    for name in ("three.db", "file:four"):
        monkeypatch.setenv("HOLDFAST_STORE", name)
        assert use_default_stores(name) == {f"{name}-durable", f"{name}-agent", f"{name}-session"}


def test_an_awaitable_default_store_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @holdfast.agent
    async def follow(task: str) -> str:
        return task

    @holdfast.durable
    async def count(number: int) -> int:
        return number

    talker = holdfast.Orchestrator("writer", "draft")

    async def whole() -> None:
        for name in ("one.db", "two.db"):
            monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / name))
            await follow.run("all", thread_id="agent")
            await count.run("durable", 1)
            async with talker.session("session") as session:
                await session.run_turn(lambda: 1)
            async with holdfast.open() as store:
                assert {info.thread_id for info in await store.threads()} == {"agent", "durable", "session"}
            await api.default_store().close()

    asyncio.run(whole())


def test_every_kind_of_store_can_be_run(tmp_path: Path) -> None:
    async def whole(store: holdfast.Store) -> Any:
        async with store, store.run("t") as run:
            return await run.step("work", lambda: 1)

    for store in (
        holdfast.MemoryStore(),
        holdfast.SQLiteStore(tmp_path / "a.db"),
        holdfast.FileStore(tmp_path / "a"),
        holdfast.open(f"file:{tmp_path / 'b'}", retention=holdfast.Retention(keep_last=1), sweep=60),
    ):
        assert asyncio.run(whole(store)) == 1
    for blocking in (sync.MemoryStore(), sync.SQLiteStore(tmp_path / "c.db"), sync.FileStore(tmp_path / "c")):
        with blocking, blocking.run("t") as run:
            assert run.step("work", lambda: 1) == 1


def test_a_store_that_makes_no_sense_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    with pytest.raises(holdfast.ConfigurationError):
        holdfast.open(tmp_path / "a.db", keys=b"too short")


async def test_listeners_hear_what_a_run_does(world: World) -> None:
    heard: list[str] = []
    world.store.on_event(lambda event: heard.append(event.kind))
    async with world.store.run("t") as run:
        await run.step("work", list, effect=True)
        await run.record(holdfast.Step(action="looked"))
        await run.append("list", 1)
        with pytest.raises(holdfast.StepFailed):
            await run.step("fail", _fail, retries=1, backoff=0)
    async with world.store.run("t") as run:
        await run.step("work", list)
        await run.complete()
    assert [kind for kind in heard if kind.startswith("step")] == [
        "step_started",
        "step_done",
        "step_started",
        "step_retried",
        "step_started",
        "step_failed",
        "step_replayed",
    ]
    assert heard.count("saved") == 2
    assert [kind for kind in heard if not kind.startswith(("step", "saved"))] == [
        "claimed",
        "released",
        "resumed",
        "completed",
        "released",
    ]


def _fail() -> None:
    raise ValueError("no")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_on_a_terminal_a_resumed_run_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    for _ in range(2):
        async with world.store.run("ticket-8812") as run:
            await run.step("work", lambda: world.clock.advance(41))
    assert terminal.getvalue() == "resumed ticket-8812: 1 steps from checkpoint, 41.0 s saved\n"


async def test_a_run_whose_labels_cannot_be_written_does_not_begin(world: World) -> None:
    store = world.open()
    world.faults[-1].plan = Fault(2, "unavailable", SWAPS)
    with pytest.raises(holdfast.StoreUnavailable):
        async with store.run("t", labels={"app": "a"}):
            raise AssertionError("entered")
    async with world.open().run("t", wait=0) as run:
        assert not run.resumed


async def test_a_claimed_thread_without_rows_is_nobodys_to_recover(world: World) -> None:
    async with world.doomed("t"):
        pass
    report = await world.store.recover()
    assert (report.skipped, report.resumed) == (("t",), ())


async def test_an_annotation_that_cannot_be_read_is_no_hindrance(world: World) -> None:
    @world.step()
    async def look() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return "found"

    async with world.store.run("t"):
        assert await look() == "found"
