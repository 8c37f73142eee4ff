"""Steps with an effect: the intent first, one key for all attempts, and a policy for what is in doubt."""

from threading import Event
from typing import Any

import pytest

import holdfast
from runs.worlds import World


class Payments:
    """A payment service: what was sent to it, by key; it may kill whoever sends."""

    def __init__(self, world: World) -> None:
        self.sent: list[str] = []
        self.kills = True
        self._world = world

    def pay(self, amount: int, idempotency_key: str) -> str:
        self.sent.append(idempotency_key)
        if self.kills:
            self.kills = False
            self._world.die_at_next_write()
        return f"paid {amount}"

    def pay_blindly(self, amount: int) -> str:
        return self.pay(amount, "?")


async def in_doubt(world: World, *, blindly: bool = True) -> Payments:
    """A payment that went out, and whose result was never recorded."""
    payments = Payments(world)
    async with world.doomed("t") as run:
        await run.step("pay", payments.pay_blindly if blindly else payments.pay, 40, effect=True, **_policy(blindly))
    assert len(payments.sent) == 1
    return payments


def _policy(blindly: bool) -> dict[str, Any]:
    return {"on_doubt": "fail"} if blindly else {}


async def test_the_intent_is_recorded_before_the_effect(world: World) -> None:
    seen: list[int] = []

    async def look() -> None:
        seen.append(len((await world.store.history("t", journal=True)).items))

    async with world.store.run("t") as run:
        await run.step("look", look, effect=True)
        await run.step("just look", look)
    assert seen == [1, 2]  # the intent of the first; its result, and no intent of the second


async def test_the_key_is_handed_over_in_every_way(world: World) -> None:
    def by_name(idempotency_key: str) -> str:
        return idempotency_key

    def among_others(**named: str) -> str:
        return named["idempotency_key"]

    def not_at_all() -> str:
        return str(world.api.idempotency_key())

    async with world.store.run("t") as run:
        keys = [await run.step(f.__name__, f, effect=True) for f in (by_name, among_others, not_at_all)]
        assert len({*keys, ""}) == 4
        assert await run.step("no effect", not_at_all) not in keys
        with pytest.raises(holdfast.StepFailed, match="TypeError"):
            await run.step("no key", by_name)


async def test_a_step_function_gets_the_key_too(world: World) -> None:
    @world.step(effect=True)
    async def pay(amount: int, idempotency_key: str = "") -> str:
        return idempotency_key

    async with world.store.run("t"):
        keys = [await pay(40), await pay(40)]
    assert all(keys)
    assert keys[0] != keys[1]


async def test_the_key_is_the_same_for_every_attempt_in_every_process(world: World) -> None:
    payments = await in_doubt(world, blindly=False)
    attempts: list[str] = []

    def pay(amount: int, idempotency_key: str) -> str:
        attempts.append(idempotency_key)
        if len(attempts) < 3:
            raise ConnectionError("down")
        return payments.pay(amount, idempotency_key)

    async with world.store.run("t") as run:
        assert await run.step("pay", pay, 40, effect=True, retries=2) == "paid 40"
    assert len({*attempts, *payments.sent}) == 1


async def test_a_fork_and_a_thread_created_anew_have_other_keys(world: World) -> None:
    async def key(thread_id: str) -> Any:
        async with world.store.run(thread_id) as run:
            return await run.step("pay", lambda idempotency_key: idempotency_key, effect=True)

    async with world.store.run("t") as run:
        await run.step("first", list)
        before = run.checkpoint_id
    assert before is not None
    keys = [await key("t"), await key(await world.store.fork(before))]
    await world.store.delete("t")
    await world.store.revive("t")
    keys.append(await key("t"))
    assert len(set(keys)) == 3


async def test_in_doubt_it_is_sent_again_if_it_takes_the_key(world: World) -> None:
    payments = await in_doubt(world, blindly=False)
    async with world.store.run("t") as run:
        assert await run.step("pay", payments.pay, 40, effect=True) == "paid 40"
    assert len(payments.sent) == 2
    assert len(set(payments.sent)) == 1


async def test_in_doubt_it_fails_if_it_does_not_take_the_key(world: World) -> None:
    payments = await in_doubt(world)
    for _ in range(2):
        with pytest.raises(holdfast.StepInDoubt, match=r"may have had its effect.*idempotency_key="):
            async with world.store.run("t") as run:
                await run.step("pay", payments.pay_blindly, 40, effect=True)
    assert len(payments.sent) == 1


async def test_in_doubt_it_is_sent_again_if_the_policy_says_so(world: World) -> None:
    payments = await in_doubt(world)
    async with world.store.run("t") as run:
        assert await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="retry") == "paid 40"
    assert len(payments.sent) == 2


@pytest.mark.parametrize("arrived", [True, False])
async def test_in_doubt_a_function_can_find_out(world: World, arrived: bool) -> None:
    payments = await in_doubt(world)
    asked: list[Any] = []

    async def verify(idempotency_key: str, amount: int) -> Any:
        asked.append((idempotency_key, amount))
        return holdfast.Done("found") if arrived else holdfast.NotDone

    async with world.store.run("t") as run:
        paid = await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="verify", verify=verify)
        assert paid == ("found" if arrived else "paid 40")
        assert await run.step("pay", payments.pay_blindly, 40) == paid
    assert [(bool(key), amount) for key, amount in asked] == [(True, 40)]
    assert len(payments.sent) == (1 if arrived else 2)


async def test_a_function_that_finds_out_nothing_is_refused(world: World) -> None:
    payments = await in_doubt(world)
    with pytest.raises(holdfast.ConfigurationError, match=r"Done\(value\) or NotDone"):
        async with world.store.run("t") as run:
            await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="verify", verify=lambda *_: True)
    assert len(payments.sent) == 1
    assert repr(holdfast.NotDone) == "NotDone"


async def ask_in_doubt(world: World, payments: Payments, choice: str, value: Any = None) -> Any:
    """The result of a payment in doubt, once somebody said what became of it."""
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="ask")
    (request,) = caught.value.requests
    assert (request.name, request.choices) == ("pay in doubt", ("retry", "done", "fail"))
    assert request.payload["step"] == "pay"
    await world.store.answer(request.id, choice, value, by="ana")
    async with world.store.run("t") as run:
        return await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="ask")


async def test_in_doubt_a_person_can_say_what_became_of_it(world: World) -> None:
    payments = await in_doubt(world)
    assert await ask_in_doubt(world, payments, "done", "the bank says yes") == "the bank says yes"
    assert len(payments.sent) == 1


async def test_in_doubt_a_person_can_have_it_sent_again(world: World) -> None:
    payments = await in_doubt(world)
    assert await ask_in_doubt(world, payments, "retry") == "paid 40"
    assert len(payments.sent) == 2


async def test_in_doubt_a_person_can_let_it_fail(world: World) -> None:
    payments = await in_doubt(world)
    with pytest.raises(holdfast.StepInDoubt, match="ana chose to let it fail"):
        await ask_in_doubt(world, payments, "fail")
    assert len(payments.sent) == 1


async def test_each_doubt_is_asked_about_by_itself(world: World) -> None:
    payments = await in_doubt(world)
    payments.kills = True
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="ask")
    await world.store.answer(caught.value.requests[0].id, "retry")
    async with world.doomed("t") as run:
        await run.step("pay", payments.pay_blindly, 40, effect=True, on_doubt="ask")
    assert len(payments.sent) == 2
    assert await ask_in_doubt(world, payments, "done", "twice, it seems") == "twice, it seems"
    assert len(payments.sent) == 2


async def test_a_failed_attempt_is_no_doubt(world: World) -> None:
    calls: list[int] = []

    def pay() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("refused")
        return "paid"

    with pytest.raises(holdfast.StepFailed):
        async with world.store.run("t") as run:
            await run.step("pay", pay, effect=True)
    async with world.store.run("t") as run:
        assert await run.step("pay", pay, effect=True) == "paid"


@pytest.mark.parametrize(("takes_key", "error"), [(True, holdfast.StepTimeout), (False, holdfast.StepInDoubt)])
async def test_an_effect_that_is_not_in_time_is_in_doubt(world: World, takes_key: bool, error: type[Exception]) -> None:
    """It was given up, not stopped: called again it may happen twice, so it is only if it takes the key."""
    sent: list[str] = []
    never = Event()

    def pay(idempotency_key: str) -> None:
        sent.append(idempotency_key)
        never.wait()

    def pay_blindly() -> None:
        pay("?")

    for _ in range(2):
        with pytest.raises(error):
            async with world.store.run("t") as run:
                await run.step("pay", pay if takes_key else pay_blindly, effect=True, timeout=0.1)
    never.set()
    assert len(sent) == (2 if takes_key else 1)
    assert len(set(sent)) == 1


async def test_an_effect_that_is_not_in_time_is_verified(world: World) -> None:
    never, asked = Event(), list[str]()

    def verify(idempotency_key: str) -> Any:
        asked.append(idempotency_key)
        return holdfast.Done(True)

    async with world.store.run("t") as run:
        policy: dict[str, Any] = {"effect": True, "timeout": 0.02, "on_doubt": "verify", "verify": verify}
        assert await run.step("pay", never.wait, **policy) is True
        assert await run.step("pay", never.wait, **policy) is True
    never.set()
    assert len(asked) == 1
