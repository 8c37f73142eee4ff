"""Decorated effects in the resume callback and in `hold`: they belong to the save before them, and are done once."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast import CheckpointConfig, Event, ExecutionState, Phase, RecoveryConfig, UnstorableValue, sync
from holdfast.testing import crash_everywhere
from manager.tasks import APPROVAL, TASK, manager, state_of
from rounds import rounds
from runs.worlds import World

SESSION = TASK[:3]
CONFIG = CheckpointConfig(enabled=True, after_tools=True, recovery=RecoveryConfig(auto_resume=True))


class Outside:
    """A payment service: what was paid, by key."""

    def __init__(self) -> None:
        self.payments: dict[str, int] = {}

    def clear(self) -> None:
        self.payments.clear()

    def check(self) -> None:
        assert sorted(self.payments.values()) == [1, 40, 40, 40], "a payment was done again under another key"


outside = Outside()


@sync.step(effect=True)
def pay(amount: int, *, idempotency_key: str = "") -> int:
    return outside.payments.setdefault(idempotency_key, amount)


@holdfast.step(effect=True)
async def awaitable_pay(amount: int, *, idempotency_key: str = "") -> int:
    return outside.payments.setdefault(idempotency_key, amount)


def payer(world: World) -> Callable[[int], Awaitable[int]]:
    @world.step(effect=True)
    async def pay_here(amount: int, *, idempotency_key: str = "") -> int:
        return outside.payments.setdefault(idempotency_key, amount)

    return pay_here


class Server:
    """Pays before the first save, before an approval, after it, and before the end: the last three alike."""

    def __init__(self, store: holdfast.Store) -> None:
        self.manager = holdfast.CheckpointManager(CONFIG, store, max_attempts=99)
        self.manager.on_resume(self.work)

    async def serve(self) -> list[Any]:
        await self.manager.recover("shop")
        if not await self.said() and await self.manager.load(*TASK) is None:
            async with self.manager.hold(*TASK):
                await awaitable_pay(1)
                await self.work(await self.manager.save(state_of()), "")
        state = await self.manager.load(*TASK)
        if state is not None and state.needs_user_input:
            await self.manager.resume(*TASK, user_input="approve")
        await self.manager.clear(*TASK)
        return await self.said()

    async def said(self) -> list[Any]:
        return [event.content for event in await self.manager.events(*SESSION)]

    async def work(self, state: ExecutionState, user_input: str) -> None:
        hooks = self.manager.hooks
        if state.phase is Phase.INITIALIZED:
            await awaitable_pay(40)
            await hooks.tool_approval_required(state, APPROVAL)
            return
        if state.phase is Phase.TOOL_APPROVAL:
            await awaitable_pay(40)
            await hooks.after_tool(state, "refund")
        if not await self.said():
            await awaitable_pay(40)
            await self.manager.add_event(*SESSION, Event("support", "paid"), key="paid")
        await hooks.complete(*TASK)


class BlockingServer:
    """The same, blocking."""

    def __init__(self, store: sync.Store) -> None:
        self.manager = sync.CheckpointManager(CONFIG, store, max_attempts=99)
        self.manager.on_resume(self.work)

    def serve(self) -> list[Any]:
        self.manager.recover("shop")
        if not self.said() and self.manager.load(*TASK) is None:
            with self.manager.hold(*TASK):
                pay(1)
                self.work(self.manager.save(state_of()), "")
        state = self.manager.load(*TASK)
        if state is not None and state.needs_user_input:
            self.manager.resume(*TASK, user_input="approve")
        self.manager.clear(*TASK)
        return self.said()

    def said(self) -> list[Any]:
        return [event.content for event in self.manager.events(*SESSION)]

    def work(self, state: ExecutionState, user_input: str) -> None:
        hooks = self.manager.hooks
        if state.phase is Phase.INITIALIZED:
            pay(40)
            hooks.tool_approval_required(state, APPROVAL)
            return
        if state.phase is Phase.TOOL_APPROVAL:
            pay(40)
            hooks.after_tool(state, "refund")
        if not self.said():
            pay(40)
            self.manager.add_event(*SESSION, Event("support", "paid"), key="paid")
        hooks.complete(*TASK)


async def awaitable_server(store: holdfast.Store) -> list[Any]:
    return await Server(store).serve()


def blocking_server(store: sync.Store) -> list[Any]:
    return BlockingServer(store).serve()


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a branch of a dead process never began
@pytest.mark.parametrize("server", [blocking_server, awaitable_server])
def test_a_decorated_effect_keeps_its_key_wherever_the_server_is_killed(server: Any) -> None:
    report = crash_everywhere(server, before=outside.clear, after=outside.check, pairs=rounds(3, 60))
    assert len(report.points) > 20


async def test_an_effect_that_was_recorded_is_not_repeated_after_several_failures(world: World) -> None:
    outside.clear()
    made, pay_here, calls = manager(world), payer(world), list[str]()

    async def callback(state: ExecutionState, user_input: str) -> None:
        await pay_here(40)
        calls.append(user_input)
        if len(calls) < 4:
            raise ConnectionError("down")

    made.on_resume(callback)
    async with made.hold(*TASK):
        await made.save(state_of())
        await pay_here(40)
        await made.hooks.error(state_of(), "later")
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await made.resume(*TASK)
    await made.resume(*TASK)
    assert list(outside.payments.values()) == [40, 40], "one before the last save, one after it"


async def test_an_effect_in_hold_is_not_repeated_by_the_callback_that_starts_from_the_same_save(world: World) -> None:
    outside.clear()
    made, pay_here = manager(world), payer(world)

    async def callback(state: ExecutionState, user_input: str) -> None:
        await pay_here(40)

    made.on_resume(callback)
    with suppress(ConnectionError):
        async with made.hold(*TASK):
            await made.save(state_of())
            await pay_here(40)
            raise ConnectionError("down")
    await made.resume(*TASK)
    assert list(outside.payments.values()) == [40]


async def test_each_save_begins_a_new_scope_though_the_clock_stands_still(world: World) -> None:
    outside.clear()
    made, pay_here = manager(world), payer(world)

    async def callback(state: ExecutionState, user_input: str) -> None:
        await pay_here(40)
        state = await made.save(state)
        await pay_here(40)
        await made.save(state)

    made.on_resume(callback)
    saved = [(await made.save(state_of())).checkpoint_time for _ in range(3)]
    assert sorted(set(saved)) == saved
    for _ in range(2):
        await made.recover("shop")
        await made.save(state_of())
    assert list(outside.payments.values()) == [40] * 4


async def test_a_save_that_fails_begins_no_scope(world: World) -> None:
    outside.clear()
    made, pay_here = manager(world), payer(world)
    with suppress(ConnectionError):
        async with made.hold(*TASK):
            await made.save(state_of())
            with pytest.raises(UnstorableValue):
                await made.save(state_of(agent_state=holdfast.AgentState(last_event=object())))
            await pay_here(40)
            raise ConnectionError("down")

    async def callback(state: ExecutionState, user_input: str) -> None:
        await pay_here(40)

    made.on_resume(callback)
    await made.resume(*TASK)
    assert list(outside.payments.values()) == [40]
