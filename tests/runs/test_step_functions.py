"""`@step`: keys made of the function's name, its arguments and an ordinal in its own scope."""

from dataclasses import dataclass
from typing import Any

import pytest

import holdfast
from runs.worlds import World


@dataclass(frozen=True)
class Found:
    """A result of a class that nobody registered by hand."""

    text: str


async def test_each_call_is_a_step_of_its_own(world: World) -> None:
    calls: list[str] = []

    @world.step()
    async def look(what: str) -> str:
        calls.append(what)
        return f"{what} {len(calls)}"

    for _ in range(2):
        async with world.store.run("t") as run:
            found = [await look("kelp"), await look("kelp"), await look("crab"), await look(what="kelp")]
            assert found == ["kelp 1", "kelp 2", "crab 3", "kelp 4"]
            assert len(run.steps) == 4
    assert len(calls) == 4


async def test_ordinals_do_not_depend_on_the_order_of_branches(world: World) -> None:
    calls: list[str] = []

    @world.step()
    async def look(what: str) -> str:
        calls.append(what)
        return f"found {what}"

    async def branch(what: str) -> list[str]:
        return [await look(what), await look("both"), await look(what)]

    names = ["a", "b", "c"]
    for order in (names, names[::-1]):
        async with world.store.run("t"):
            found = await world.gather(*map(branch, order))
            assert found == [[f"found {name}", "found both", f"found {name}"] for name in order]
    assert len(calls) == 9


async def test_a_scope_counts_by_itself(world: World) -> None:
    calls: list[str] = []

    @world.step()
    async def inner(what: str) -> int:
        calls.append(what)
        return len(calls)

    @world.step(retries=1, backoff=0)
    async def outer(name: str) -> list[int]:
        found = [await inner("same"), await inner("same")]
        if name == "b" and len(world.slept) == 0 and not retried:
            retried.append(name)
            raise ValueError("once more")
        return found

    retried: list[str] = []
    for _ in range(2):
        async with world.store.run("t"):
            assert [await outer("a"), await outer("b")] == [[1, 2], [3, 4]]
            assert await inner("same") == 5
    assert len(calls) == 5


async def test_outside_of_a_run_the_function_is_just_called(world: World) -> None:
    calls: list[str] = []

    @world.step(retries=3)
    async def look(what: str) -> str:
        calls.append(what)
        return what

    assert [await look("kelp"), await look("kelp")] == ["kelp", "kelp"]
    assert len(calls) == 2


async def test_arguments_can_be_ignored(world: World) -> None:
    clients: list[Any] = []

    @world.step(ignore=("client",))
    async def look(client: object, what: str) -> str:
        clients.append(client)
        return what

    for _ in range(2):
        async with world.store.run("t"):
            assert await look(object(), "kelp") == "kelp"
    assert len(clients) == 1


async def test_an_argument_that_cannot_be_compared_is_named_with_the_remedy(world: World) -> None:
    @world.step()
    async def look(what: str, client: object) -> str:
        raise AssertionError("not to be called")

    async with world.store.run("t"):
        with pytest.raises(holdfast.UnstorableValue, match=r"'client' of step 'look'.*ignore=\('client',\)"):
            await look("kelp", object())


async def test_the_class_that_a_step_returns_is_storable(world: World) -> None:
    @world.step(name="find it")
    async def look() -> list[Found]:
        return [Found("kelp")]

    for _ in range(2):
        async with world.store.run("t") as run:
            assert await look() == [Found("kelp")]
            assert [step.action for step in run.steps] == ["find it"]


MADE = """
from dataclasses import dataclass

@dataclass
class Result:
    text: str

async def make() -> Result:
    return Result("kelp")
"""


async def test_the_class_that_a_step_returns_may_come_from_code_that_was_made(world: World) -> None:
    """A class of code that was executed without a module says that it is a builtin."""
    made: dict[str, Any] = {}
    exec(MADE, made)
    make = world.step()(made["make"])
    for _ in range(2):
        async with world.store.run("t"):
            assert (await make()).text == "kelp"


@pytest.mark.parametrize(
    "policy",
    [
        {"ignore": "client"},
        {"ignore": ("nobody",)},
        {"retries": -1},
        {"retries": True},
        {"on_doubt": "shrug", "effect": True},
        {"on_doubt": "verify", "effect": True},
        {"verify": print, "effect": True},
        {"on_doubt": "retry"},
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused_at_once(world: World, policy: dict[str, Any]) -> None:
    with pytest.raises(holdfast.ConfigurationError):

        @world.step(**policy)
        async def look(client: object) -> None: ...


async def test_a_plain_function_can_be_a_step_in_both_worlds(world: World) -> None:
    calls: list[str] = []

    @holdfast.step
    def look(what: str) -> str:
        calls.append(what)
        return what

    for _ in range(2):
        async with world.store.run("t"):
            assert look("kelp") == "kelp"
    assert calls == ["kelp"]


async def test_an_effect_may_require_the_key_that_its_caller_does_not_give(world: World) -> None:
    keys: list[str] = []

    @world.step(effect=True)
    async def refund(amount: int, *, idempotency_key: str, currency: str = "EUR") -> str:
        keys.append(idempotency_key)
        return f"{amount} {currency}"

    give_back: Any = refund
    for _ in range(2):
        async with world.store.run("t"):
            assert [await give_back(40), await give_back(40, currency="NOK")] == ["40 EUR", "40 NOK"]
    assert len(set(keys)) == len(keys) == 2
    with pytest.raises(TypeError, match="idempotency_key"):
        await give_back(40)
