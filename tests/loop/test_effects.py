"""Tools with effects: keys, doubt, divergence, and calls that are deferred to the end."""

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast import ConfigurationError, Deferred, Diverged, LoopState, StepFailed, StepInDoubt, sync
from holdfast.ports import run_blocking
from holdfast.testing.clock import Clock
from holdfast.testing.faults import Crash
from holdfast.testing.handles import blocking_store
from holdfast.testing.places import MemoryPlace
from loop.loops import OVER, Outside, failing, new_loop, newest, resumed, transitions
from runs.worlds import SWAPS, BlockingWorld, World
from stores.hooked import Hooked


async def send_step(loop: Any, step: str) -> Any:
    return await loop.call("send", step)


class Mortal(Outside):
    """A service during whose call the process dies, once."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.keys: list[str] = []

    def send(self, what: Any, idempotency_key: str) -> str:
        self.keys.append(idempotency_key)
        sent = super().send(what, idempotency_key)
        if len(self.keys) == 1:
            self._world.faults[-1].plan = holdfast.testing.faults.Fault(1, "crash before", SWAPS)
        return sent

    def post(self, what: Any) -> str:
        """The same without a key."""
        return self.send(what, f"key {len(self.keys)}")


async def die(world: World, **options: Any) -> None:
    """Drive a loop in a process that dies in its first effect; then its lease expires."""
    with pytest.raises(Crash):
        await new_loop(world, store=world.open(), plan=["a"], execute=send_step, **options).drive()
    world.clock.advance(60)


async def test_an_effect_in_flight_is_repeated_with_the_same_key(world: World) -> None:
    outside = Mortal(world)
    tools = [holdfast.tool(outside.send, name="send", effect=True)]
    await die(world, tools=tools)
    loop = await resumed(world, execute=send_step, tools=tools)
    assert loop.results == ["sent a"]
    assert (outside.calls, outside.sent) == (["a", "a"], {outside.keys[0]: "a"})


async def test_an_effect_in_doubt_that_takes_no_key_is_not_repeated(world: World) -> None:
    outside = Mortal(world)
    tools = [holdfast.tool(outside.post, name="send", effect=True)]
    await die(world, tools=tools)
    with pytest.raises(StepInDoubt, match="was begun and its outcome is unknown"):
        await resumed(world, execute=send_step, tools=tools)
    assert outside.calls == ["a"]


async def test_an_effect_in_doubt_is_verified_with_its_key_and_arguments(world: World) -> None:
    outside, asked = Mortal(world), []

    def verify(key: str, what: str) -> Any:
        asked.append((key, what))
        return holdfast.Done("was sent")

    tools = [holdfast.tool(outside.send, name="send", effect=True, on_doubt="verify", verify=verify)]
    await die(world, tools=tools)
    loop = await resumed(world, execute=send_step, tools=tools)
    assert (loop.results, outside.calls, asked) == (["was sent"], ["a"], [(outside.keys[0], "a")])


async def test_a_worker_that_acts_otherwise_when_it_runs_again_is_refused(world: World) -> None:
    """A model may word its mail anew: sending both would be two mails."""
    outside = Outside()
    tools = [holdfast.tool(outside.send, name="send", effect=True)]
    with pytest.raises(ConnectionError):
        await new_loop(world, plan=["a"], execute=failing(1, send_step), tools=tools).drive()

    async def otherwise(loop: Any, _: str) -> Any:
        return await loop.call("send", "other words")

    with pytest.raises(Diverged, match="'send' with 'other words', but an earlier run recorded it with 'a'"):
        await resumed(world, execute=otherwise, tools=tools)
    assert outside.calls == ["a"]
    assert (await resumed(world, execute=send_step, tools=tools)).results == ["sent a"]


@pytest.mark.parametrize("item", [["a"], ["a", "b"], ["a", "a"]])
async def test_a_worker_of_a_parallel_step_that_acts_otherwise_when_it_runs_again_is_refused(
    world: World, item: list[str]
) -> None:
    outside = Outside()
    tools = [holdfast.tool(outside.send, name="send", effect=True)]
    with pytest.raises(ConnectionError):
        await new_loop(world, plan=[item], execute=failing(1, send_step), tools=tools).drive()

    async def otherwise(loop: Any, step: str) -> Any:
        return await loop.call("send", f"{step}, in other words")

    with pytest.raises(Diverged, match="'send' with 'a, in other words', but an earlier run recorded it with 'a'"):
        await resumed(world, execute=otherwise, tools=tools)
    assert sorted(outside.calls) == item
    assert (await resumed(world, execute=send_step, tools=tools)).results == [[f"sent {each}" for each in item]]


@pytest.mark.parametrize("step", ["a", ["a"], ["a", "b"]])
def test_a_plain_worker_on_its_thread_that_acts_otherwise_when_it_runs_again_is_refused(step: Any) -> None:
    paid: list[int] = []

    @holdfast.step(effect=True)
    def pay(amount: int) -> None:
        paid.append(amount)

    async def drive(store: holdfast.Store, amount: int) -> None:
        def execute(_loop: Any, _step: str) -> None:
            pay(amount)
            raise ConnectionError("the network is down")

        await holdfast.Loop("r", plan=lambda _: [step], execute=execute, store=store, thread_id="t").drive()

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            with pytest.raises(ConnectionError):
                await drive(store, 40)
            with pytest.raises(Diverged):
                await drive(store, 50)

    asyncio.run(scenario())
    assert set(paid) == {40}


def test_a_thread_of_a_plain_worker_that_calls_first_is_not_refused_for_what_the_worker_may_still_call() -> None:
    paid: list[str] = []

    @holdfast.step(effect=True)
    def pay(what: str) -> None:
        paid.append(what)

    def first(_loop: Any, _step: str) -> None:
        pay("worker")
        raise ConnectionError("the network is down")

    def second(_loop: Any, _step: str) -> None:
        with sync.pool(1) as pool:
            pool.submit(pay, "thread").result()
        pay("worker")

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            options: dict[str, Any] = {"plan": lambda _: [["a"]], "store": store, "thread_id": "t"}
            with pytest.raises(ConnectionError):
                await holdfast.Loop("r", execute=first, **options).drive()
            await holdfast.Loop("r", execute=second, **options).drive()

    asyncio.run(scenario())
    assert paid == ["worker", "thread"]


def test_branches_of_one_worker_may_still_make_the_recorded_call_so_that_another_is_not_refused() -> None:
    """`b` was recorded; when the worker runs again its branch for `a` comes first, and `b` is found after that."""
    outside, lives = Outside(), iter(["first", "second"])

    async def drive(store: holdfast.Store) -> Any:
        life, called = next(lives), asyncio.Event()

        async def branch(loop: Any, what: str) -> Any:
            if (what == "a") == (life == "first"):
                await called.wait()
            if (life, what) == ("first", "a"):
                raise ConnectionError("the network is down")
            result = await loop.call("send", what)
            called.set()
            return result

        async def execute(loop: Any, _: str) -> Any:
            return await asyncio.gather(branch(loop, "a"), branch(loop, "b"))

        tools = [holdfast.tool(outside.send, name="send", effect=True)]
        options: dict[str, Any] = {"plan": lambda _: [["x"]], "execute": execute, "tools": tools}
        return await holdfast.Loop("r", store=store, thread_id="t", **options).drive()

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            with pytest.raises(ConnectionError):
                await drive(store)
            assert outside.calls == ["b"]
            assert await drive(store) == [[["sent a", "sent b"]]]
        assert outside.calls == ["b", "a"]

    asyncio.run(scenario())


async def test_equal_steps_of_a_plan_have_effects_of_their_own(world: World) -> None:
    outside = Outside()
    tools = [holdfast.tool(outside.send, name="send", effect=True)]

    async def twice(loop: Any, step: str) -> Any:
        return [await loop.call("send", step), await loop.call("send", step)]

    await new_loop(world, plan=["a", ["a", "a"]], execute=twice, tools=tools).drive()
    assert list(outside.sent.values()) == ["a"] * 6


async def test_deferred_calls_are_performed_in_order_after_the_last_decision_and_before_complete(world: World) -> None:
    seen: list[Any] = []

    def report(what: str, idempotency_key: str) -> None:
        seen.append((what, idempotency_key))

    async def execute(loop: Any, step: str) -> Any:
        deferred = await loop.call(report, step)
        assert isinstance(deferred, Deferred)
        assert not seen
        return deferred

    def reflect(_: Any) -> None:
        assert not seen

    tools = [holdfast.tool(report, defer=True)]
    loop = new_loop(world, plan=["a", ["b", "c"]], execute=execute, reflect=reflect, tools=tools)
    first, rest = await loop.drive()
    assert [(each.id, each.tool, each.arguments) for each in (first, *rest)] == [
        ("0.0", "report", ["a"]),
        ("1.0.0", "report", ["b"]),
        ("1.1.0", "report", ["c"]),
    ]
    assert [what for what, _ in seen] == ["a", "b", "c"]
    assert len({key for _, key in seen}) == 3
    assert (await transitions(world))[-2:] == [("REFLECTING", "REFLECTING"), ("REFLECTING", "COMPLETE")]
    assert (await newest(world)).state["outbox"] == []


async def test_a_deferred_call_that_fails_makes_the_loop_failed_and_the_rest_is_kept_for_a_resume(world: World) -> None:
    performed, reflected = [], []
    broken = ["b"]

    def report(what: str, idempotency_key: str) -> None:
        assert idempotency_key
        if what in broken:
            raise ConnectionError("the mail server is down")
        performed.append(what)

    async def execute(loop: Any, step: str) -> str:
        await loop.call("report", step)
        return step

    options: dict[str, Any] = {
        "execute": execute,
        "reflect": lambda _: reflected.append(1),
        "tools": [holdfast.tool(report, defer=True)],
    }
    loop = new_loop(world, **options)
    with pytest.raises(StepFailed, match="the mail server is down"):
        await loop.drive()
    assert (loop.state, performed) == (LoopState.FAILED, ["a"])
    latest = await newest(world)
    assert (latest.status, latest.state["state"]) == ("failed", "FAILED")
    assert [each["arguments"] for each in latest.state["outbox"]] == [["b"], ["c"]]
    broken[:] = ["c"]
    with pytest.raises(StepFailed, match="the mail server is down"):
        await loop.drive()  # the same object may try again
    assert (loop.state, performed) == (LoopState.FAILED, ["a", "b"])
    broken.clear()
    again = await resumed(world, **options)
    assert (again.state, performed, len(reflected)) == (LoopState.COMPLETE, ["a", "b", "c"], 3)


async def test_a_loop_that_gives_up_performs_no_deferred_call(world: World) -> None:
    outside = Outside()

    async def execute(loop: Any, step: str) -> str:
        await loop.call("send", step)
        return step

    tools = [holdfast.tool(outside.send, name="send", defer=True)]
    loop = new_loop(world, execute=execute, reflect=lambda _: LoopState.FAILED, tools=tools)
    assert await loop.drive() == ["a"]
    assert (loop.state, outside.calls) == (LoopState.FAILED, [])
    thread = await world.store.thread("t")
    assert (thread.status, thread.error) == ("failed", "the loop decided to fail at step 1 of 3")
    again = await resumed(world, execute=execute, tools=tools)
    assert (again.state, again.results) == (LoopState.FAILED, ["a"])
    assert (await world.store.thread("t")).status == "failed"


async def test_calls_that_a_worker_deferred_before_it_died_are_forgotten_with_it(world: World) -> None:
    outside = Outside()

    async def execute(loop: Any, step: str) -> str:
        await loop.call("send", step)
        return step

    tools = [holdfast.tool(outside.send, name="send", defer=True)]
    with pytest.raises(ConnectionError):
        await new_loop(world, plan=["a"], execute=failing(1, execute), tools=tools).drive()
    await resumed(world, execute=execute, tools=tools)
    assert outside.calls == ["a"]


async def test_a_loop_driven_by_hand_keeps_what_a_failed_deferred_call_left_whatever_retention_says(
    world: World,
) -> None:
    broken, performed = [True], []

    def report(what: str) -> None:
        if broken:
            raise ConnectionError("the mail server is down")
        performed.append(what)

    async def execute(loop: Any, step: str) -> str:
        await loop.call("report", step)
        return step

    retention = holdfast.Retention(delete_on=("complete", "failed"))
    tools = [holdfast.tool(report, defer=True)]
    options: dict[str, Any] = {"plan": ["a"], "execute": execute, "tools": tools, "retention": retention}
    loop = new_loop(world, **options)
    for _ in range(4):
        await loop.step_once()
    with pytest.raises(StepFailed):
        await loop.step_once()
    await loop.checkpoint()
    assert loop.state is LoopState.FAILED
    assert ((await newest(world)).status, (await newest(world)).state["state"]) == ("failed", "FAILED")
    broken.clear()
    assert (await resumed(world, **options)).state is LoopState.COMPLETE
    assert performed == ["a"]
    assert await world.store.latest("t") is None


async def test_a_loop_whose_process_died_is_deleted_after_its_ttl_too(world: World) -> None:
    outside, retention = Mortal(world), holdfast.Retention(ttl=24 * 3600)
    tools = [holdfast.tool(outside.send, name="send", effect=True)]
    await die(world, tools=tools)
    world.clock.advance(24 * 3600)
    assert await resumed(world, execute=send_step, tools=tools, retention=retention) is None
    assert outside.calls == ["a"]


async def test_a_tool_is_called_by_the_loop_whose_handler_runs_and_by_no_other(world: World) -> None:
    async def execute(loop: Any, _: str) -> Any:
        assert await loop.call(len, "xy") == 2
        return await other.call(len, "xy")

    other = new_loop(world, thread_id="other", tools=[len])
    with pytest.raises(holdfast.ConfigurationError, match=r"loop\.call only works inside a handler"):
        await new_loop(world, execute=execute, tools=[len]).drive()


async def test_one_step_at_a_time_the_decision_is_committed_before_a_deferred_call(world: World) -> None:
    committed: list[str] = []

    async def send(what: Any, idempotency_key: str) -> str:
        committed.append((await newest(world)).state["decision"])
        return f"sent {what}"

    def send_plainly(what: Any, idempotency_key: str) -> str:
        return run_blocking(send(what, idempotency_key))

    function = send_plainly if isinstance(world, BlockingWorld) else send
    loop = new_loop(world, plan=["a"], execute=send_step, tools=[holdfast.tool(function, name="send", defer=True)])
    while loop.state not in OVER:
        await loop.step_once()
    assert committed == ["COMPLETE"]


def test_parallel_effects_that_differ_only_in_what_is_masked_are_refused() -> None:
    """Only their order would tell them apart, and that may be another when the worker runs again."""
    paid: list[Any] = []

    def pay(order: str, card: dict[str, str]) -> None:
        paid.append((order, card["number"]))

    async def drive(*orders: str) -> None:
        async def execute(loop: Any, _: str) -> None:
            cards = [{"number": str(number)} for number in range(len(orders))]
            await asyncio.gather(*(loop.call("pay", *each) for each in zip(orders, cards, strict=True)))

        async with holdfast.MemoryStore() as store:
            options: dict[str, Any] = {"tools": [holdfast.tool(pay, effect=True)], "never_store": {"number"}}
            await holdfast.Loop("r", plan=lambda _: ["a"], execute=execute, store=store, **options).drive()

    asyncio.run(drive("x", "y"))
    assert sorted(paid) == [("x", "0"), ("y", "1")]
    with pytest.raises(ConfigurationError, match="differ only in values that are never stored"):
        asyncio.run(drive("x", "x"))


async def test_effects_that_differ_only_in_what_is_masked_are_told_apart_by_their_order(world: World) -> None:
    paid: list[str] = []

    def pay(card: dict[str, str]) -> str:
        paid.append(card["number"])
        return f"paid by {card['number']}"

    async def execute(loop: Any, _: str) -> Any:
        return [await loop.call("pay", {"number": number}) for number in ("1", "2")]

    options: dict[str, Any] = {"tools": [holdfast.tool(pay, effect=True)], "never_store": {"number"}}
    with pytest.raises(ConnectionError):
        await new_loop(world, plan=["a"], execute=failing(1, execute), **options).drive()
    assert (await resumed(world, execute=execute, **options)).results == [["paid by 1", "paid by 2"]]
    assert paid == ["1", "2"]


@pytest.mark.parametrize("every", [100, 3600.0])
async def test_an_effect_is_never_executed_on_decisions_that_are_not_committed(world: World, every: Any) -> None:
    """A planner that changes its mind in the next process would call other effects in its place."""
    outside, plans = Outside(), [["a", "b"], ["c"], ["d"]]
    options: dict[str, Any] = {
        "plan": lambda _: plans.pop(0),
        "tools": [holdfast.tool(outside.send, name="send", effect=True)],
        "every": every,
    }
    with pytest.raises(ConnectionError):
        await new_loop(world, execute=failing(1, send_step), **options).drive()
    snapshot = (await newest(world)).state
    assert (snapshot["state"], snapshot["plan"], snapshot["cursor"]) == ("EXECUTING", ["a", "b"], 0)
    assert (await resumed(world, execute=send_step, **options)).results == ["sent a", "sent b"]
    assert outside.calls == ["a", "b"]


async def test_a_loop_driven_by_hand_commits_its_decisions_before_an_effect(world: World) -> None:
    outside, plans = Outside(), [["a"], ["b"]]
    options: dict[str, Any] = {
        "plan": lambda _: plans.pop(0),
        "execute": send_step,
        "tools": [holdfast.tool(outside.send, name="send", effect=True)],
    }
    loop = new_loop(world, **options)
    await loop.step_once()
    await loop.step_once()  # and this process is gone
    assert (await resumed(world, **options)).results == ["sent a"]
    assert outside.calls == ["a"]


async def test_after_decisions_that_could_not_be_written_no_other_effect_is_executed(world: World) -> None:
    outside = Outside()

    async def execute(loop: Any, step: str) -> Any:
        if step == "a":
            return object()  # it cannot be stored
        for _ in range(2):
            with pytest.raises(holdfast.UnstorableValue):
                await loop.call("send", step)
        return step

    tools = [holdfast.tool(outside.send, name="send", effect=True)]
    with pytest.raises(holdfast.UnstorableValue):
        await new_loop(world, plan=["a", "b"], execute=execute, tools=tools, every=9).drive()
    assert outside.calls == []


def test_a_loop_that_another_process_starts_again_after_its_ttl_is_not_deleted() -> None:
    place, clock = MemoryPlace(), Clock()
    hooked = Hooked(place.open())
    other = blocking_store(place.open(), ports=clock.ports(), closes=False)
    store = blocking_store(hooked, ports=clock.ports(), closes=False)
    handlers: dict[str, Any] = {"plan": lambda _: ["a"], "execute": lambda _, step: step}
    handlers["retention"] = holdfast.Retention(ttl=60)
    sync.Loop("old", store=other, thread_id="t", **handlers).drive()
    clock.advance(61)

    def start_again() -> None:
        assert sync.Loop.resume(other, "t", **handlers) is None
        sync.Loop("new", store=other, thread_id="t", **handlers).drive()

    hooked.before("swap", start_again)
    found = sync.Loop.resume(store, "t", drive=False, **handlers)
    assert hooked.has_happened
    assert found is not None
    assert found.request == "new"
