"""Many writers in one process: threads of a blocking store, tasks of an awaitable one, and cancelled tasks."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import sync
from holdfast.testing.conformance.races import race
from kinds import url_of

WRITERS = 4
TURNS = 25
TASKS = 32


def place(kind: str, directory: Path) -> str:
    return "memory:" if kind == "memory" else url_of(kind, directory)


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[sync.Store]:
    with sync.open(place(kind, tmp_path), durability=None if kind == "memory" else "process") as store:
        yield store


def test_threads_that_save_to_one_thread_take_turns(store: sync.Store) -> None:
    def save(who: int) -> list[int]:
        return [store.save("t", {"who": who, "turn": turn}).seq for turn in range(TURNS)]

    acknowledged = race([partial(save, who) for who in range(WRITERS)])
    assert sorted(seq for seqs in acknowledged for seq in seqs) == list(range(1, WRITERS * TURNS + 1))
    for who, seqs in enumerate(acknowledged):
        for turn, seq in enumerate(seqs):
            assert store.get("t", seq).state == {"who": who, "turn": turn}
    assert store.verify().ok


def test_threads_that_save_to_many_threads_do_not_hinder_each_other(store: sync.Store) -> None:
    def save(who: int) -> list[int]:
        return [store.save(f"t{who}", {"turn": turn, "list": [turn] * turn}).seq for turn in range(TURNS)]

    assert race([partial(save, who) for who in range(WRITERS)]) == [list(range(1, TURNS + 1))] * WRITERS
    for who in range(WRITERS):
        assert store.get(f"t{who}", TURNS).state == {"turn": TURNS - 1, "list": [TURNS - 1] * (TURNS - 1)}


def test_readers_and_writers_share_a_store(store: sync.Store) -> None:
    store.save("t", {"n": 0})

    def write() -> int:
        return [store.save("t", {"n": number}).seq for number in range(1, 60)][-1]

    def read() -> int:
        seen = 0
        while seen < 60:
            latest = store.latest("t")
            assert latest is not None
            assert latest.state == {"n": latest.seq - 1}
            assert latest.seq >= seen
            seen = latest.seq
        return seen

    assert race([write, read, read]) == [60, 60, 60]


@asynccontextmanager
async def awaitable(kind: str, directory: Path, *, inline: bool = True) -> AsyncIterator[holdfast.Store]:
    url = place(kind, directory)
    async with holdfast.open(url, durability=None if kind == "memory" else "process", inline=inline) as store:
        yield store


@pytest.mark.parametrize("inline", [True, False])
def test_tasks_that_save_to_one_thread_take_turns(kind: str, inline: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with awaitable(kind, tmp_path, inline=inline) as store:
            saved = await asyncio.gather(*(store.save("t", {"task": number}) for number in range(TASKS)))
            assert sorted(checkpoint.seq for checkpoint in saved) == list(range(1, TASKS + 1))
            for number, checkpoint in enumerate(saved):
                assert (await store.load(checkpoint.id)).state == {"task": number}
            assert (await store.verify()).ok

    asyncio.run(main())


@pytest.mark.parametrize("inline", [True, False])
def test_tasks_that_save_to_many_threads_share_commits(kind: str, inline: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with awaitable(kind, tmp_path, inline=inline) as store:
            for turn in range(1, 4):
                saved = await asyncio.gather(*(store.save(f"t{n}", {"n": n, "turn": turn}) for n in range(TASKS)))
                assert {checkpoint.seq for checkpoint in saved} == {turn}
            for number in range(TASKS):
                latest = await store.latest(f"t{number}")
                assert latest is not None
                assert latest.state == {"n": number, "turn": 3}

    asyncio.run(main())


def test_tasks_that_append_to_one_list_lose_nothing(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with awaitable(kind, tmp_path) as store:
            await asyncio.gather(*(store.append("t", "list", number) for number in range(TASKS)))
            latest = await store.latest("t")
            assert latest is not None
            assert sorted(latest.state["list"]) == list(range(TASKS))

    asyncio.run(main())


@pytest.mark.parametrize("inline", [True, False])
def test_a_cancelled_save_is_all_or_nothing(kind: str, inline: bool, tmp_path: Path) -> None:
    """Cancelled after any number of turns of the loop; the handle is as good as before."""

    async def main() -> None:
        async with awaitable(kind, tmp_path, inline=inline) as store:
            await store.save("t", {"n": 0, "large": "x" * 100_000})
            present = {"n": 0, "large": "x" * 100_000}
            for turns in range(14):
                wanted = {"n": turns + 1, "large": f"{turns}" * 100_000}
                task = asyncio.create_task(store.save("t", wanted))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                latest = await store.latest("t")
                assert latest is not None
                assert latest.state in (present, wanted)
                saved = await store.save("t", {"n": -turns, "large": "y" * turns})
                present = {"n": -turns, "large": "y" * turns}
                assert saved.seq in {latest.seq + 1, latest.seq + 2}, "a cancelled write may still be on its way"
                assert (await store.load(saved.id)).state == present
            assert (await store.verify()).ok

    asyncio.run(main())


def test_a_cancelled_save_does_not_take_others_with_it(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with awaitable(kind, tmp_path) as store:
            tasks = [asyncio.create_task(store.save("t", {"task": number})) for number in range(TASKS)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for number, outcome in enumerate(outcomes):
                if isinstance(outcome, holdfast.Checkpoint):
                    assert (await store.load(outcome.id)).state == {"task": number}
                else:
                    assert number % 3 == 0
                    assert isinstance(outcome, asyncio.CancelledError)
            seqs = [info.seq for info in await store.history("t", limit=100)]
            assert seqs == list(range(len(seqs), 0, -1))
            assert len(seqs) >= TASKS - len(tasks[::3])

    asyncio.run(main())


def test_a_store_can_be_used_from_one_event_loop_after_another(kind: str, tmp_path: Path) -> None:
    store = holdfast.open(place(kind, tmp_path), durability=None if kind == "memory" else "process", inline=False)
    for number in range(1, 4):
        assert asyncio.run(store.save("t", number)).seq == number

    async def close() -> None:
        latest = await store.latest("t")
        assert latest is not None
        assert latest.state == 3
        await store.close()

    asyncio.run(close())


def test_a_blocking_store_works_within_a_running_loop(kind: str, tmp_path: Path) -> None:
    """It needs no loop, and so cannot collide with one."""

    async def main() -> int:
        with sync.open(place(kind, tmp_path), durability=None if kind == "memory" else "process") as store:
            return store.save("t", 1).seq

    assert asyncio.run(main()) == 1


def test_a_task_made_by_a_blocking_step_waits_for_its_listeners() -> None:
    """What is true of the step, that nobody there can await, is not true of the task."""

    async def scenario() -> list[str]:
        told, tasks = list[str](), list["asyncio.Task[None]"]()

        async def listen(event: holdfast.StoreEvent) -> None:
            await asyncio.sleep(0)
            told.append(event.kind)

        async with holdfast.MemoryStore() as store:
            store.on_event(listen)

            async def save() -> None:
                await store.save("t", {"a": 1})
                assert told == ["saved"]

            with sync.MemoryStore() as plain, plain.run("t") as run:
                run.step("start", lambda: tasks.append(asyncio.get_running_loop().create_task(save())))
            await tasks[0]
        return told

    assert asyncio.run(scenario()) == ["saved"]
