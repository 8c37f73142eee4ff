"""A run that is interrupted while it begins, waits or ends leaves nothing behind: no lease, no frame, no lock."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, current_thread
from time import sleep
from typing import Any, ClassVar

import pytest

import holdfast
from holdfast import sync
from holdfast.ports import Ticket
from holdfast.ports.awaitable import AsyncPorts
from holdfast.records.errors import OutcomeUnknown
from holdfast.records.rows import Swap
from holdfast.runs.store import Store
from holdfast.stores import committer
from holdfast.stores.claim import Claim, Pending
from holdfast.stores.memory import MemoryBackend
from patience import GIVE_UP_SECONDS
from runs.worlds import World


class GatedBackend(MemoryBackend):
    """A swap on any other thread than the test's says that it is here, and waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived, self.may_go_on = Event(), Event()
        self._test = current_thread()

    def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
        if current_thread() is not self._test:
            self.arrived.set()
            self.may_go_on.wait()
        return super().swap(swaps, wait=wait)


async def hold(store: holdfast.Store) -> None:
    async with store.run("t"):
        raise AssertionError("it was cancelled before")


def test_a_claim_that_comes_after_its_run_was_cancelled_is_given_back() -> None:
    async def scenario() -> None:
        backend = GatedBackend()
        store = Store(backend, ports=AsyncPorts())
        task = asyncio.create_task(hold(store))
        await asyncio.to_thread(backend.arrived.wait)
        task.cancel()
        await asyncio.sleep(0)
        backend.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with store.run("t", wait=10) as run:
            assert run._ledger.claim.found.owner == ""
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("status", ["idle", "failed"])
def test_a_run_that_is_cancelled_while_it_is_announced_holds_nothing_and_changes_nothing(status: str) -> None:
    async def scenario() -> None:
        store, announced = holdfast.MemoryStore(), asyncio.Event()

        async def listen(_event: holdfast.StoreEvent) -> None:
            announced.set()
            await asyncio.sleep(60)

        await store.save("t", {"a": 1}, status=status)
        unsubscribe = store.on_event(listen)
        task = asyncio.create_task(hold(store))
        await announced.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        unsubscribe()
        info = await store.thread("t")
        assert (info.owner, info.status) == (None, status)
        await store.close()

    asyncio.run(scenario())


async def test_the_end_of_a_program_is_not_replaced_by_a_suspension(world: World) -> None:
    with pytest.raises(KeyboardInterrupt):
        async with world.store.run("t") as run:
            try:
                await run.ask("sure?")
            except BaseException:  # noqa: BLE001  as a user may
                raise KeyboardInterrupt from None
    assert (await world.store.thread("t")).status == "input_required"


def test_blocks_that_overlap_leave_no_run_behind() -> None:
    called = list[str]()

    @sync.step
    def work() -> None:
        called.append("outside" if _is_outside() else sync.current().thread_id)

    with sync.MemoryStore() as store:
        first, second = store.run("first"), store.run("second")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        work()
        second.__exit__(None, None, None)
        work()
    assert called == ["second", "outside"]


def _is_outside() -> bool:
    try:
        sync.current()
    except holdfast.ConfigurationError:
        return True
    return False


def test_a_full_queue_and_its_writer_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer thread ends a commit, for which it needs the claim, while a record waits for room in the queue."""
    backend = GatedBackend()

    class Committer(committer.Committer):
        def commit_batch(self, ticket: Ticket | None = None) -> None:
            if not current_thread().name.startswith("holdfast-writer"):
                backend.may_go_on.set()
            super().commit_batch(ticket)

    async def scenario() -> list[Any]:
        store = Store(backend, ports=AsyncPorts(), committer=Committer(backend, inline=False))
        backend.may_go_on.set()
        async with store.run("t") as run:
            backend.may_go_on.clear()
            backend.arrived.clear()
            run.record(holdfast.Step(action="first"))
            await asyncio.to_thread(backend.arrived.wait)
            monkeypatch.setattr(committer, "BACKLOG_BYTES", 0)
            run.record(holdfast.Step(action="second"))
            run.record(holdfast.Step(action="third"))
            return [step.action for step in run.steps]

    assert asyncio.run(scenario()) == ["first", "second", "third"]


def test_a_plain_step_that_runs_out_of_items_fails() -> None:
    items: Iterator[int] = iter(())

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store, store.run("t") as run:
            with pytest.raises(holdfast.StepFailed, match="StopIteration"):
                await run.step("next", lambda: next(items))

    asyncio.run(scenario())


def test_a_short_lease_is_kept_beside_a_long_one() -> None:
    """The heartbeat, which sleeps for as long as the long lease lets it, hears of the short one at once."""
    from holdfast.ports import BlockingPorts, Signal
    from holdfast.stores.heartbeat import Heartbeat

    woken = list[Signal]()

    class Ports(BlockingPorts):
        @staticmethod
        def beat(tick: Any, signal: Signal) -> None:
            woken.append(signal)

    heartbeat = Heartbeat(Ports())
    with sync.MemoryStore() as store:
        for lease, is_woken in ((30, False), (60, False), (0.5, True), (0.5, False), (30, False)):
            with store.run(f"t{lease}", lease=lease) as run:
                heartbeat.add(run._run._ledger.claim)
                assert woken[0].wait(0) is is_woken
                woken[0].clear()
    assert len(woken) == 1


def test_an_interrupt_in_the_middle_of_a_write_leaves_no_lease() -> None:
    class Backend(MemoryBackend):
        strikes = False

        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            if self.strikes:
                self.strikes = False
                raise KeyboardInterrupt
            return super().swap(swaps, wait=wait)

    backend = Backend()
    with sync.Store(backend) as store:
        with pytest.raises(KeyboardInterrupt), store.run("t") as run:
            run.step("first", lambda: 1)
            backend.strikes = True
            run.step("second", lambda: 2)
        with store.run("t", wait=0) as run:
            assert [step.action for step in run.steps] == ["first"]


def test_threads_of_one_run_share_their_commits() -> None:
    """The first commits at once; what the others write meanwhile waits, and goes as one."""

    class Backend(MemoryBackend):
        row_counts: ClassVar[list[int]] = []

        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            sleep(0.02)
            self.row_counts.append(sum(len(swap.rows) for swap in swaps))
            return super().swap(swaps, wait=wait)

    with sync.Store(Backend()) as store, store.run("t") as run, ThreadPoolExecutor(8) as pool:
        run.step("before", lambda: 0)
        Backend.row_counts.clear()
        list(pool.map(lambda number: run.step(f"step {number}", lambda: number), range(8)))
        assert sum(Backend.row_counts) == 8
        assert len(Backend.row_counts) <= 4
        assert len(run.steps) == 9


def test_an_interrupt_right_after_a_write_has_landed_does_not_write_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the program goes on, and the next write is refused at first: somebody pinned a checkpoint."""
    store = sync.MemoryStore()
    first = store.save("t", {"letters": ["a"]})
    finish = Claim._finish

    def strike(self: Claim, pending: Pending, outcome: bool | BaseException) -> None:
        monkeypatch.setattr(Claim, "_finish", finish)
        raise KeyboardInterrupt

    with pytest.raises(OutcomeUnknown, match="open the thread again"), store.run("t") as run:
        monkeypatch.setattr(Claim, "_finish", strike)
        with pytest.raises(KeyboardInterrupt):
            run.append("letters", "b")
        store.pin(first.id)
        run.append("letters", "c")
    with store.run("t", wait=0) as run:
        run.append("letters", "d")
    assert store.get("t", store.thread("t").seq).state == {"letters": ["a", "b", "d"]}
    store.close()


def test_a_lost_reply_does_not_end_a_run_whose_next_write_waits() -> None:
    """That was made for the head as it is now: it must not land behind the run's back while it is made anew."""
    inside, is_queued = Event(), Event()

    class Backend(MemoryBackend):
        loses = False

        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            outcomes = super().swap(swaps, wait=wait)
            if self.loses:
                self.loses = False
                inside.set()
                is_queued.wait(GIVE_UP_SECONDS)
                raise OutcomeUnknown("the reply is lost")
            return outcomes

    backend = Backend()
    with sync.Store(backend) as store, ThreadPoolExecutor(2) as pool:
        with store.run("t") as run:
            run.checkpoint({"letters": []})
            backend.loses = True
            first = pool.submit(run.append, "letters", "a")
            assert inside.wait(GIVE_UP_SECONDS)
            second = pool.submit(run.append, "letters", "b")
            while not run._run._ledger.claim.committer._queue:
                sleep(0.001)
            is_queued.set()
            first.result(30)
            second.result(30)
            run.append("letters", "c")
        assert store.get("t", store.thread("t").seq).state == {"letters": ["a", "b", "c"]}


def test_a_closed_store_has_no_file_open(tmp_path: Path) -> None:
    """Also if its heartbeat was about to look after a lease."""
    for number in range(40):
        with sync.FileStore(tmp_path) as store, store.run(str(number)) as run:
            run.step("work", list)
    assert [each for each in Path("/proc/self/fd").iterdir() if str(tmp_path) in _target(each)] == []


def _target(link: Path) -> str:
    return str(link.readlink()) if link.is_symlink() else ""
