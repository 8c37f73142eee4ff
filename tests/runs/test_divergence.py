"""A resumed function that calls its effects with other arguments is stopped; one whose branches are slow is not."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Event
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.testing.faults import Crash
from runs.worlds import AwaitableWorld, World


class Shop:
    """A payment and a plain look-up, as steps of one world; `paid` is what the outside saw."""

    def __init__(self, world: World) -> None:
        self.paid: list[tuple[Any, ...]] = []
        self.events: list[holdfast.StoreEvent] = []
        world.store.on_event(self._hear)

        async def pay(*what: Any) -> int:
            self.paid.append(what)
            return len(self.paid)

        async def note(what: Any) -> None: ...

        async def now() -> int:
            return next(self._clock)

        self._clock = count()
        self.pay = world.step(effect=True, name="pay")(pay)
        self.note = world.step(name="note")(note)
        self.now = world.step(name="now")(now)

    def _hear(self, event: holdfast.StoreEvent) -> None:
        if event.kind == "diverged":
            self.events.append(event)

    def tick(self) -> int:
        """Another value in each run: the clock, read outside of a step."""
        return next(self._clock)


class Death(BaseException):
    """Ends a run as a kill would: its thread stays at work, and nothing is recorded of the end."""


def dies(times: int = 1) -> Callable[[], None]:
    """A function that ends the process the first few times it is called."""
    left = [times]

    def die() -> None:
        if left[0]:
            left[0] -= 1
            raise Death

    return die


async def killed(run: Any) -> None:
    with suppress(Death, Crash):
        await run
        raise AssertionError("it was to die")


async def test_an_effect_that_is_called_with_the_clock_does_not_pay_twice(world: World) -> None:
    shop, die = Shop(world), dies()

    @world.durable(name="clock in an effect")
    async def order(number: int) -> None:
        await shop.pay(number, f"paid at {shop.tick()}")
        die()

    await killed(order.run("t", 7))
    for _ in range(2):
        with pytest.raises(holdfast.Diverged, match="put the clock into a step") as caught:
            await order.run("t", 7)
        assert "paid at 0" in caught.value.recorded
        assert "paid at" in caught.value.given
        assert caught.value.name == "pay"
    assert shop.paid == [(7, "paid at 0")]
    assert isinstance(caught.value, holdfast.RunError)


async def test_an_effect_in_doubt_is_not_begun_again_with_other_arguments(world: World) -> None:
    shop = Shop(world)

    async def pay(what: str) -> None:
        shop.paid.append((what,))
        raise Death

    charge = world.step(effect=True, name="charge")(pay)

    @world.durable(name="clock in an effect that dies")
    async def order() -> None:
        await charge(f"at {shop.tick()}")

    await killed(order.run("t"))
    with pytest.raises(holdfast.Diverged, match="charge"):
        await order.run("t")
    assert len(shop.paid) == 1


async def test_a_question_with_the_clock_is_not_asked_for_ever(world: World) -> None:
    shop = Shop(world)

    @world.durable(name="clock in a question")
    async def order() -> Any:
        return (await world.api.ask("refund", {"at": shop.tick()}, choices=["approve", "reject"])).choice

    outcome = await order.start("t")
    await world.store.answer(outcome.requests[0].id, "approve")
    with pytest.raises(holdfast.Diverged, match="put the clock into a step") as caught:
        await order.run("t")
    assert "'at': 0" in caught.value.recorded
    assert "'at': 1" in caught.value.given
    assert len(await world.store.requests(status=None)) == 1


async def test_a_clock_in_a_step_is_replayed(world: World) -> None:
    shop, die = Shop(world), dies()

    @world.durable(name="clock in a step")
    async def order() -> int:
        paid: int = await shop.pay(await shop.now())
        die()
        return paid

    await killed(order.run("t"))
    assert await order.run("t") == 1
    assert (shop.paid, shop.events) == ([(0,)], [])


async def test_a_plain_step_with_the_clock_is_told_and_executed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    shop, die = Shop(world), dies()

    @world.durable(name="clock in a plain step")
    async def order() -> None:
        for _ in range(3):
            await shop.note(shop.tick())
        die()

    await killed(order.run("t"))
    with caplog.at_level(logging.WARNING, "holdfast"):
        await order.run("t")
    told = [event.details["name"] for event in shop.events]
    assert told == ["note", ""]  # once for its place, and once for what was left at the end
    assert all("3" not in str(event.details["name"]) for event in shop.events)
    assert [record for record in caplog.records if getattr(record, "event", "") == "diverged"]


@pytest.mark.parametrize(("policy", "told"), [("warn", True), ("ignore", False)])
async def test_a_policy_lets_it_pass(world: World, policy: Any, told: bool) -> None:
    shop, die = Shop(world), dies()

    @world.durable(name=f"clock, {policy}", on_divergence=policy)
    async def order() -> None:
        await shop.pay(shop.tick())
        die()

    await killed(order.run("t"))
    await order.run("t")
    assert (shop.paid, bool(shop.events)) == ([(0,), (1,)], told)


async def test_a_wrong_policy_is_refused(world: World) -> None:
    with pytest.raises(holdfast.ConfigurationError, match="on_divergence must be one of"):
        world.durable(on_divergence="shout")


async def test_a_loop_that_goes_on_where_it_died_is_none(world: World) -> None:
    shop, die = Shop(world), dies()

    @world.durable(name="loop")
    async def orders() -> list[Any]:
        paid = [await shop.pay(number) for number in (1, 2)]
        die()
        return [*paid, await shop.pay(3), await shop.pay(1)]

    await killed(orders.run("t"))
    assert await orders.run("t") == [1, 2, 3, 4]
    assert (shop.paid, shop.events) == ([(1,), (2,), (3,), (1,)], [])


async def test_a_recovery_raises_it_too(world: World) -> None:
    shop, die = Shop(world), dies()

    @world.durable(name="clock, recovered")
    async def order() -> None:
        await shop.pay(shop.tick())
        die()

    await killed(order.run("t"))
    assert (await world.store.recover()).failed == ("t",)
    assert len(shop.paid) == 1


async def test_an_effect_within_a_step_is_compared_within_that_step(world: World) -> None:
    shop, die = Shop(world), dies()

    async def outer(number: int) -> None:
        await shop.pay(f"{number} at {shop.tick()}")
        die()

    work = world.step(name="outer", retries=5)(outer)

    @world.durable(name="clock within a step")
    async def order() -> None:
        await work(1)

    await killed(order.run("t"))
    with pytest.raises(holdfast.Diverged):
        await order.run("t")
    assert len(shop.paid) == 1


async def test_another_step_with_other_inner_calls_is_none(world: World) -> None:
    shop, die = Shop(world), dies()

    async def outer(number: int) -> None:
        await shop.pay(number)
        if number == 2:
            die()

    work = world.step(name="outer")(outer)

    @world.durable(name="the same step for each")
    async def order() -> None:
        for number in (1, 2, 3):
            await work(number)

    await killed(order.run("t"))
    await order.run("t")
    assert (shop.paid, shop.events) == ([(1,), (2,), (3,)], [])


async def test_the_attempts_of_a_step_may_make_calls_of_their_own(world: World) -> None:
    shop, die, attempts = Shop(world), dies(), count(1)

    async def outer() -> None:
        attempt = next(attempts)
        await shop.pay(f"attempt {attempt}")
        if attempt == 2:
            die()
        if attempt < 4:
            raise ValueError("not yet")

    work = world.step(name="outer", retries=5, backoff=lambda _attempt: 0)(outer)

    @world.durable(name="attempts")
    async def order() -> None:
        await work()

    await killed(order.run("t"))
    await order.run("t")
    assert [text for (text,) in shop.paid] == ["attempt 1", "attempt 2", "attempt 3", "attempt 4"]


async def test_a_step_that_failed_is_called_again_with_other_arguments(world: World) -> None:
    shop, numbers = Shop(world), count()

    async def charge(number: int) -> int:
        if not number:
            raise ValueError("refused")
        return number

    pay = world.step(effect=True, name="charge")(charge)

    @world.durable(name="failed and corrected")
    async def order() -> Any:
        return await pay(next(numbers))

    with pytest.raises(holdfast.StepFailed):
        await order.run("t")
    assert await order.run("t") == 1
    assert shop.events == []


async def test_a_fork_with_another_result_goes_its_own_way(world: World) -> None:
    shop = Shop(world)

    @world.durable(name="forked")
    async def order() -> Any:
        at = await shop.now()
        return await shop.pay(at)

    await order.run("t")
    newest = await world.store.latest("t")
    assert newest is not None
    await world.store.fork(newest.id, to="other", results={"now": 100})
    assert await order.resume("other") == 2
    assert (shop.paid, shop.events) == ([(0,), (100,)], [])


async def test_a_doubt_that_is_asked_about_twice_is_none(world: World) -> None:
    shop, die = Shop(world), dies(2)

    async def charge() -> str:
        die()
        return "paid"

    pay = world.step(effect=True, on_doubt="ask", name="charge")(charge)

    @world.durable(name="asked twice")
    async def order() -> Any:
        return await pay()

    await killed(order.run("t"))
    for last in (False, True):
        outcome = await order.start("t")
        await world.store.answer(outcome.requests[0].id, "retry")
        world.clock.advance(1)
        if not last:
            await killed(order.run("t"))
    assert await order.run("t") == "paid"
    assert shop.events == []


async def test_what_a_finished_replay_left_unasked_is_told_once(world: World) -> None:
    shop, die, asks = Shop(world), dies(), [True]

    @world.durable(name="a step less")
    async def order() -> str:
        if asks[0]:
            await shop.note("old")
        await shop.pay("new")
        die()
        return "done"

    await killed(order.run("t"))
    asks[0] = False
    assert await order.run("t") == "done"
    assert await order.run("t") == "done"
    assert len(shop.events) == 1
    assert "note" in str(shop.events[0].details["recorded"])


async def test_inner_steps_of_a_replayed_step_are_not_told_as_left(world: World) -> None:
    shop, die = Shop(world), dies()

    async def outer() -> None:
        await shop.pay("inner")
        await world.api.current().step("explicit", lambda: world.clock.advance(1))

    async def slow() -> None:
        world.clock.advance(1)
        await outer()
        world.clock.advance(1)

    work = world.step(name="outer")(slow)

    @world.durable(name="replayed whole")
    async def order() -> None:
        await work()
        die()

    await killed(order.run("t"))
    await order.run("t")
    assert (len(shop.paid), shop.events) == (1, [])


async def test_branches_that_resume_at_other_speeds_are_none(world: World) -> None:
    """`b` was recorded; at the resume `a` comes first, and is new."""
    shop, die, first_life = Shop(world), dies(), [True]

    async def branch(name: str) -> Any:
        slow = (name == "a") == first_life[0]
        for _ in range(20 if slow else 0):
            await _pause(world)
        if name == "a":
            die()
        return await shop.pay(name)

    @world.durable(name="branches")
    async def orders() -> list[Any]:
        return await world.gather(branch("a"), branch("b"))

    await killed(orders.run("t"))
    assert shop.paid == [("b",)]
    first_life[0] = False
    await orders.run("t")
    assert (sorted(shop.paid), shop.events) == ([("a",), ("b",)], [])


async def _pause(world: World) -> None:
    if isinstance(world, AwaitableWorld):
        await asyncio.sleep(0.001)
    else:
        import time

        time.sleep(0.001)


def test_a_task_that_may_still_ask_keeps_its_parent_from_diverging(world: World) -> None:
    """The body asks for a new effect while a task that it started has not asked for its recorded one yet."""
    if not isinstance(world, AwaitableWorld):
        return
    shop, die, pauses = Shop(world), dies(), [0, 50]

    async def background() -> None:
        for _ in range(pauses.pop(0)):
            await asyncio.sleep(0)
        await shop.pay("background")

    @world.durable(name="background")
    async def order() -> None:
        task = asyncio.create_task(background())
        while len(pauses) == 1 and not shop.paid:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        die()
        await shop.pay("body")
        await task

    async def scenario() -> None:
        await killed(order.run("t"))
        assert shop.paid == [("background",)]
        await order.run("t")
        assert (shop.paid, shop.events) == ([("background",), ("body",)], [])

    world.play(scenario())


def test_effects_in_the_order_in_which_branches_end_are_none(world: World) -> None:
    """A resumed run gets the recorded results at once, so its branches end in another order than before."""
    if not isinstance(world, AwaitableWorld):
        return
    shop, die = Shop(world), dies()
    waits = {"a": 0.02, "b": 0.0}

    @world.durable(name="as completed")
    async def order() -> None:
        ended = []

        async def look(name: str) -> None:
            await asyncio.sleep(waits[name])
            await shop.note(name)
            ended.append(name)

        await asyncio.gather(look("a"), look("b"))
        for name in ended:
            await shop.pay(name)
            die()

    async def scenario() -> None:
        await killed(order.run("t"))
        assert shop.paid == [("b",)]
        waits.update(a=0.0, b=0.02)
        await order.run("t")
        assert shop.paid == [("b",), ("a",)]

    world.play(scenario())


@pytest.mark.parametrize("is_warm", [False, True])
def test_work_in_a_pool_that_may_still_ask_keeps_its_parent_from_diverging(*, is_warm: bool) -> None:
    paid: list[str] = []
    lives, asks = [0], Event()

    @sync.step(effect=True)
    def pay(what: str) -> None:
        paid.append(what)

    with sync.MemoryStore() as store, sync.pool(2) as pool:
        if is_warm:
            list(pool.map(str, range(8)))

        @sync.durable(store=store, name=f"pool {is_warm}")
        def order() -> None:
            def branch() -> None:
                assert asks.wait(10)
                pay("branch")

            lives[0] += 1
            work = pool.submit(branch)
            if lives[0] == 1:
                asks.set()
                work.result()
                raise Death
            pay("body")
            asks.set()
            work.result()

        with suppress(Death):
            order.run("t")
        asks.clear()
        order.run("t")
    assert paid == ["branch", "body"]


def test_tasks_of_other_requests_do_not_hide_it_forever(world: World) -> None:
    """Tasks that were there before the function began are none of its branches."""
    if not isinstance(world, AwaitableWorld):
        return
    shop, die = Shop(world), dies()

    @world.durable(name="among others")
    async def order() -> None:
        await shop.pay(shop.tick())
        die()

    async def scenario() -> None:
        others = [asyncio.create_task(asyncio.sleep(60)) for _ in range(3)]
        await killed(order.run("t"))
        with pytest.raises(holdfast.Diverged):
            await order.run("t")
        for other in others:
            other.cancel()

    world.play(scenario())
