"""A cancellation may strike at any await of a run: the lease is released before it is raised, and nothing is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

import holdfast
from kinds import EVERY_KIND, ON_DISK, new_place
from runs.worlds import AwaitableWorld


class StrikingLoop(asyncio.SelectorEventLoop):
    """An event loop that cancels one task as the `at`-th callback since that task began is scheduled.

    Whatever wakes a task is such a callback, so that the cancellation strikes between any two resumptions of any task.
    """

    def __init__(self, at: int, times: int) -> None:
        super().__init__()
        self._strike_at = range(at, at + times)
        self._callback_count = 0
        self.target: asyncio.Task[Any] | None = None
        self.struck = False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        self._strike()
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._strike()
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _strike(self) -> None:
        if self.target is None or self.target.done():
            return
        self._callback_count += 1
        if self._callback_count in self._strike_at:
            super().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.target is not None:
            self.struck |= self.target.cancel()


class Scene:
    """One life of a thread `t`, on a new store: with what is needed to see how far it got."""

    def __init__(self, world: AwaitableWorld) -> None:
        self.store = world.store
        self.body_ended = False
        self.events: list[str] = []
        self.store.on_event(lambda event: self.events.append(event.kind))

    async def ends(self) -> None:
        async with self.store.run("t") as run:
            await run.step("work", list)
            self.body_ended = True

    async def completes(self) -> None:
        async with self.store.run("t") as run:
            await run.complete(await run.step("work", list))
            self.body_ended = True

    async def fails(self) -> None:
        async with self.store.run("t") as run:
            await run.step("work", list)
            self.body_ended = True
            raise ValueError("no")

    async def asks(self) -> None:
        async with self.store.run("t") as run:
            try:
                await run.ask("sure?")
            finally:
                self.body_ended = run._ledger.suspension is not None

    async def sleeps(self) -> None:
        async with self.store.run("t") as run:
            try:
                await run.sleep(3600)
            finally:
                self.body_ended = run._ledger.suspension is not None

    async def is_cancelled_from_outside(self) -> None:
        async with self.store.run("t") as run:
            await run.step("work", list)
            await self.store.cancel("t")
            self.body_ended = True

    async def runs_a_durable_function(self) -> None:
        @holdfast.durable(store=self.store, name="leaving")
        async def function() -> None:
            await holdfast.current().step("work", list)
            await holdfast.ask("sure?")

        await function.run("t")

    async def runs_an_agent(self) -> None:
        async def function(_task: str) -> None:
            await holdfast.current().step("work", list)
            raise ValueError("no")

        await holdfast.Agent(function, store=self.store).run("task", thread_id="t")

    async def holds_a_session(self) -> None:
        async with holdfast.Orchestrator("writer", "draft", store=self.store).session("t") as session:
            await session.run_turn(lambda: "said")
            self.body_ended = True


SCENES: dict[str, Callable[[Scene], Coroutine[Any, Any, None]]] = {
    name: scene for name, scene in vars(Scene).items() if not name.startswith("_")
}


async def status_of(store: holdfast.Store) -> str | None:
    """The status of a thread that must not be held; None if it does not exist."""
    try:
        info = await store.thread("t")
    except holdfast.NotFound:
        return None
    assert info.owner is None
    assert info.status is not None
    return info.status.value


class Stage:
    """Plays one scene again and again, each time on a new store."""

    def __init__(self, name: str, kind: str, directory: Path) -> None:
        self._scene = SCENES[name]
        self._kind = kind
        self._directory = directory
        self.expected: list[Any] = []

    def play(self, at: int, times: int) -> bool:
        """Cancel it at a point, and check what is left; False if it does not come to that point."""
        world, loop = AwaitableWorld(new_place(self._kind, self._directory)), StrikingLoop(at, times)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(self._playing(world, loop, at))

    async def _playing(self, world: AwaitableWorld, loop: StrikingLoop, at: int) -> bool:
        scene = Scene(world)
        loop.target = task = asyncio.create_task(self._scene(scene))
        await asyncio.wait((task,))
        left = [await status_of(scene.store), scene.events[:]]
        if loop.struck:
            assert task.cancelled(), f"cancelled at point {at}, but it ended as {task}"
            assert left == self.expected or not scene.body_ended, f"cancelled at point {at}"
            with suppress(holdfast.RunCancelled):
                async with scene.store.run("t", wait=0):
                    pass
        else:
            assert isinstance(task.exception(), ValueError | holdfast.RunError | None)
            self.expected = left
        await scene.store.close()
        return loop.struck


CASES = [(name, kind, times) for name in SCENES for kind, times in [*((kind, 1) for kind in EVERY_KIND), ("memory", 3)]]
ON_DISK_IN_TURN = set(zip(SCENES, cycle(ON_DISK), strict=False))
"""In an ordinary run each scene is played on one kind of disk."""


def is_ordinary(name: str, kind: str) -> bool:
    return kind == "memory" or (name, kind) in ON_DISK_IN_TURN


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "kind", "times"),
    [pytest.param(*case, marks=[] if is_ordinary(*case[:2]) else [pytest.mark.slow]) for case in CASES],
)
def test_a_run_cancelled_at_any_point_holds_nothing_and_keeps_what_leaving_decided(
    name: str, kind: str, times: int, tmp_path: Path
) -> None:
    stage = Stage(name, kind, tmp_path)
    assert not stage.play(-times, times)
    assert next(at for at in count(1) if not stage.play(at, times)) > 10


def test_a_timeout_that_expires_as_its_block_ends_is_a_timeout_and_leaves_the_thread_free() -> None:
    async def scenario() -> None:
        store = holdfast.MemoryStore()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit, store.run("t") as run:
                await run.step("work", list)
                limit.reschedule(0)
        assert await status_of(store) == "idle"
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("ending", ["ends", "asks"])
def test_a_task_group_that_cancels_a_block_as_it_ends_shows_its_own_error_and_the_thread_is_free(ending: str) -> None:
    async def fails_when(ended: asyncio.Event) -> None:
        await ended.wait()
        raise ValueError("of the other branch")

    async def scenario() -> None:
        store, ended = holdfast.MemoryStore(), asyncio.Event()

        async def block() -> None:
            async with store.run("t") as run:
                await run.step("work", list)
                ended.set()
                if ending == "asks":
                    await run.ask("sure?")

        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(block())
                group.create_task(fails_when(ended))
        assert [type(each) for each in caught.value.exceptions] == [ValueError]
        assert await status_of(store) in {"idle", "working", "input_required"}
        await store.close()

    asyncio.run(scenario())


def test_a_loop_that_shuts_down_lets_every_block_release_its_thread() -> None:
    """`asyncio.run` cancels all tasks that are left, also those that release."""
    store = holdfast.MemoryStore()

    async def block(number: int, entered: asyncio.Event) -> None:
        async with store.run(f"t{number}") as run:
            await run.step("work", list)
            entered.set()
            for _ in range(number):
                await asyncio.sleep(0)
            asyncio.current_task().cancel()  # type: ignore[union-attr]

    async def main() -> None:
        events = [asyncio.Event() for _ in range(20)]
        tasks = [asyncio.create_task(block(number, event)) for number, event in enumerate(events)]
        for event in events:
            await event.wait()
        assert tasks

    async def held() -> list[str | None]:
        return [(await store.thread(f"t{number}")).owner for number in range(20)]

    asyncio.run(main())
    assert asyncio.run(held()) == [None] * 20


def test_a_listener_that_hangs_is_cancelled_and_does_not_keep_the_lease() -> None:
    async def scenario() -> None:
        store, hears, told = holdfast.MemoryStore(), asyncio.Event(), list[str]()

        async def listen(event: holdfast.StoreEvent) -> None:
            told.append(event.kind)
            if event.kind == "released":
                hears.set()
                await asyncio.sleep(600)

        async def block() -> None:
            async with store.run("t") as run:
                await run.step("work", list)

        store.on_event(listen)
        task = asyncio.create_task(block())
        await hears.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await status_of(store), told[-1]) == ("idle", "released")
        await store.close()

    asyncio.run(scenario())


def test_a_listener_may_limit_its_own_time_while_a_block_is_left() -> None:
    async def scenario() -> None:
        store, late = holdfast.MemoryStore(), list[str]()

        async def listen(event: holdfast.StoreEvent) -> None:
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(600)
            except TimeoutError:
                late.append(event.kind)

        async with store.run("t") as run:
            await run.step("work", list)
            store.on_event(listen)
        assert late == ["released"]
        await store.close()

    asyncio.run(scenario())
