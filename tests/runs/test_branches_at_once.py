"""Branches of one run that write the same thing at the same moment: nothing is lost, nothing is written twice."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from threading import Thread

import pytest

import holdfast
from holdfast import sync
from holdfast.records.rows import Swap
from holdfast.runs import run as module
from holdfast.runs.ledger import Ledger
from holdfast.stores.memory import MemoryBackend
from patience import GIVE_UP_SECONDS

DEEP = ["page", "a", "b", "c", "events"]
BLOCKED_SECONDS = 0.2
"""How long a thread gets that is expected to wait: a slower machine can only make the test pass."""


@pytest.fixture
def run() -> Iterator[sync.Run]:
    with sync.MemoryStore() as store, store.run("t") as run:
        yield run


def strike(monkeypatch: pytest.MonkeyPatch, target: object, name: str, work: Callable[[], object]) -> list[Thread]:
    """At the next call of this function, let another thread do this work first, as far as it is not kept waiting."""
    called, threads = getattr(target, name), list[Thread]()

    def hook(*args: object) -> object:
        if not threads:
            threads.append(Thread(target=work))
            threads[0].start()
            threads[0].join(BLOCKED_SECONDS)
        return called(*args)

    monkeypatch.setattr(target, name, hook)
    return threads


def test_items_that_two_threads_append_inside_a_cell_are_both_kept(
    run: sync.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.checkpoint({"page": {"a": {"b": {"c": {"events": []}}}}})
    threads = strike(monkeypatch, module, "with_appended", lambda: run.append(DEEP, "b"))
    run.append(DEEP, "a")
    threads[0].join(GIVE_UP_SECONDS)
    assert sorted(run.state["page"]["a"]["b"]["c"]["events"]) == ["a", "b"]


def test_an_item_that_two_threads_append_under_one_key_is_appended_once(
    run: sync.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = strike(monkeypatch, Ledger, "check_new", lambda: run.append("events", 1, key="k"))
    run.append("events", 1, key="k")
    threads[0].join(GIVE_UP_SECONDS)
    assert run.state == {"events": [1]}


def test_a_step_that_two_threads_record_under_one_key_is_recorded_once(
    run: sync.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = sync.Step(action="looked")
    threads = strike(monkeypatch, Ledger, "check_new", lambda: run.record(step, key="k"))
    run.record(step, key="k")
    threads[0].join(GIVE_UP_SECONDS)
    assert [each.action for each in run.steps] == ["looked"]


def test_what_another_branch_writes_under_the_key_is_stored_when_a_call_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened, swap = list[str](), MemoryBackend.swap

    def noted(backend: MemoryBackend, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        happened.append("stored")
        return swap(backend, swaps, wait=wait)

    async def scene() -> None:
        async with holdfast.MemoryStore() as store, store.run("t") as run:

            async def append() -> None:
                await run.append("events", 1, key="k")
                happened.append("returned")

            async def record() -> None:
                await run.record(holdfast.Step(action="looked"), key="k")
                happened.append("returned")

            for write in (append, record):
                happened.clear()
                with monkeypatch.context() as patch:
                    patch.setattr(MemoryBackend, "swap", noted)
                    await asyncio.gather(write(), write())
                assert happened == ["stored", "returned", "returned"]

    asyncio.run(scene())


def test_the_first_result_of_a_step_stays(run: sync.Run) -> None:
    handle = run.begin_step("pay", 40)
    run.complete_step(handle, "first")
    run.complete_step(handle, "second")
    assert run.begin_step("pay", 40).value == "first"
