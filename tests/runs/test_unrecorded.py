"""Steps that would silently record nothing warn; and a pool whose threads know the run."""

import asyncio
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

import holdfast
from holdfast import sync
from patience import GIVE_UP_SECONDS


def new_step(calls: list[int]) -> Callable[[int], int]:
    @sync.step
    def fetch(page: int) -> int:
        calls.append(page)
        return page * 10

    return fetch


def test_a_step_on_a_thread_that_does_not_know_the_run_warns_once() -> None:
    fetch = new_step([])
    with sync.MemoryStore() as store, store.run("book") as run, ThreadPoolExecutor(1) as pool:
        with pytest.warns(holdfast.HoldfastWarning, match=r"step 'fetch' .* 'book' is running.*sync\.pool") as caught:
            assert list(pool.map(fetch, [1, 2])) == [10, 20]
        assert len(caught) == 1
        assert run.steps == []


def test_a_step_outside_of_any_run_does_not_warn() -> None:
    fetch = new_step([])
    with sync.MemoryStore() as store, store.run("book"):
        pass
    assert fetch(1) == 10


def test_an_awaitable_step_in_a_task_that_does_not_know_the_run_warns() -> None:
    @holdfast.step
    async def fetch(page: int) -> int:
        return page * 10

    async def main() -> None:
        begun = asyncio.Event()

        async def other() -> int:
            await begun.wait()
            return await fetch(1)

        task = asyncio.create_task(other())
        async with holdfast.MemoryStore() as store, store.run("book"):
            begun.set()
            with pytest.warns(holdfast.HoldfastWarning, match="nothing is recorded"):
                assert await task == 10

    asyncio.run(main())


def test_a_durable_function_that_is_called_itself_warns_once_and_names_the_fix() -> None:
    @sync.durable(store=sync.MemoryStore())
    def read(book: str) -> str:
        return book

    with pytest.warns(
        holdfast.HoldfastWarning, match=r"nothing is recorded: use read\.run\(thread_id, \.\.\.\)"
    ) as caught:
        assert (read("kelp"), read("kelp")) == ("kelp", "kelp")
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_an_awaitable_durable_function_that_is_called_itself_warns_too() -> None:
    @holdfast.durable(store=holdfast.MemoryStore())
    async def read(book: str) -> str:
        return book

    async def main() -> str:
        return await read("kelp")

    with pytest.warns(holdfast.HoldfastWarning, match=r"read\.run"):
        assert asyncio.run(main()) == "kelp"


def test_a_durable_function_within_a_run_and_its_wrapped_function_do_not_warn() -> None:
    @sync.durable(store=sync.MemoryStore())
    def inner() -> int:
        return 1

    @sync.durable(store=sync.MemoryStore())
    def outer() -> int:
        return inner()

    function: Any = inner
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outer.run("t") == 1
        assert function.__wrapped__() == 1


# The pool


def test_steps_in_the_threads_of_a_pool_are_recorded_and_replayed() -> None:
    calls: list[int] = []
    fetch, meet = new_step(calls), Barrier(4)

    @sync.step
    def together(page: int) -> int:
        meet.wait(GIVE_UP_SECONDS)  # all four are under way at the same time
        return page

    @sync.durable(store=sync.MemoryStore())
    def read(last: int) -> list[int]:
        with sync.pool(4) as pool:
            pages = list(pool.map(fetch, range(last)))
            same = [pool.submit(together, page) for page in range(4)]
            notes = [pool.submit(sync.record, sync.Step(action=f"note {page}")) for page in range(last)]
            for each in notes:
                each.result()
        if failing:
            failing.pop()
            raise ConnectionError
        return pages + [each.result() for each in same]

    failing = [True]
    with pytest.raises(ConnectionError):
        read.run("book", 8)
    assert read.run("book", 8) == [0, 10, 20, 30, 40, 50, 60, 70, 0, 1, 2, 3]
    assert sorted(calls) == list(range(8))


def test_a_replay_in_another_order_finds_the_same_keys() -> None:
    calls: list[int] = []
    fetch = new_step(calls)
    with sync.MemoryStore() as store:
        for pages in ([1, 2, 3, 4], [4, 3, 2, 1]):
            with store.run("t") as run, sync.pool(2) as pool:
                assert sorted(pool.map(fetch, pages)) == [10, 20, 30, 40]
                assert len(run.steps) == 4
    assert sorted(calls) == [1, 2, 3, 4]


def test_the_pool_of_an_event_loop_carries_the_run_too() -> None:
    fetch = new_step([])

    async def main() -> int:
        async with holdfast.MemoryStore() as store, store.run("t") as run:
            with holdfast.pool(1) as pool:
                await asyncio.get_running_loop().run_in_executor(pool, fetch, 1)
            return len(run.steps)

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize("workers", [0, -1, "4", True])
def test_a_pool_takes_a_number_of_threads(workers: Any) -> None:
    with pytest.raises(holdfast.ConfigurationError, match="`workers` must be"):
        sync.pool(workers)
