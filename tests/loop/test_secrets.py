"""What must never be written is not: values under forbidden names, and secrets."""

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any

import pytest

import holdfast
from holdfast import Secret, SecretInState
from loop.loops import failing, new_loop, newest, resumed
from runs.worlds import World

KEY = "sk-canary-8812"


@holdfast.storable
@dataclass
class Client:
    """A class with a field that must not be written."""

    api_key: str


@holdfast.storable
@dataclass
class Call:
    """A class whose field may hold what must not be written."""

    headers: Any


async def everything(world: World) -> str:
    """Return all that the thread holds, in words."""
    rows = (await world.store.history("t", journal=True, limit=500)).items
    checkpoints = [await world.store.load(row.id) for row in rows if not row.journal]
    told = [(each.state, [(step.metadata, step.tool_output) for step in each.steps]) for each in checkpoints]
    return f"{rows}{told}{await world.store.thread('t')}"


@pytest.mark.parametrize(
    ("result", "path"),
    [
        ({"api_key": KEY}, "results[0]['api_key']"),
        ([{"deep": ({"api_key": KEY},)}], "results[0][0]['deep'][0]['api_key']"),
        (Client(KEY), "results[0].api_key"),
        ({"token": Secret(KEY)}, "results[0]['token']"),
        (OrderedDict(api_key=KEY), "results[0]['api_key']"),
        (defaultdict(str, api_key=KEY), "results[0]['api_key']"),
        (deque([{"api_key": KEY}]), "results[0][0]['api_key']"),
        (Call({"api_key": KEY}), "results[0].headers['api_key']"),
        ([Call([Client(KEY)])], "results[0][0].headers[0].api_key"),
    ],
    ids=[
        "a key",
        "deep",
        "a field",
        "a secret",
        "ordered",
        "defaultdict",
        "deque",
        "within a field",
        "a field's field",
    ],
)
async def test_a_forbidden_value_is_refused_with_its_path(world: World, result: Any, path: str) -> None:
    loop = new_loop(world, plan=["a"], execute=lambda *_: result, never_store={"api_key"})
    with pytest.raises(SecretInState) as refused:
        await loop.drive()
    assert refused.value.path == path
    assert path in str(refused.value)
    assert KEY not in await everything(world)
    loop = await resumed(world, execute=lambda *_: "clean", never_store={"api_key"})
    assert loop.results == ["clean"]


@pytest.mark.parametrize("where", ["request", "plan", "context"])
async def test_a_forbidden_value_is_refused_wherever_it_would_be_written(world: World, where: str) -> None:
    forbidden = {"api_key": KEY}
    options: dict[str, Any] = {"plan": [forbidden]} if where == "plan" else {"context": {"x": forbidden}}
    request = forbidden if where == "request" else "essay"
    loop = new_loop(world, request, never_store={"api_key"}, **({} if where == "request" else options))
    with pytest.raises(SecretInState, match=where):
        await loop.drive()


async def test_redacted_values_are_used_and_not_written(world: World) -> None:
    used: list[str] = []

    async def execute(loop: Any, _: str) -> Any:
        used.append(loop.context["api_key"])
        used.append(loop.context["token"].reveal())
        return {"api_key": KEY, "answer": 42}

    context = {"api_key": KEY, "token": Secret(KEY)}
    options: dict[str, Any] = {"execute": execute, "never_store": {"api_key"}, "on_secret": "redact"}
    loop = new_loop(world, plan=["a"], context=context, **options)
    assert await loop.drive() == [{"api_key": KEY, "answer": 42}]
    assert used == [KEY, KEY]
    assert KEY not in await everything(world)
    assert KEY not in str(loop.snapshot())
    assert (await newest(world)).state["results"] == [{"api_key": "Secret(***)", "answer": 42}]


async def test_the_arguments_and_results_of_effects_are_screened_too(world: World) -> None:
    def charge(account: dict[str, str], token: Secret[str], idempotency_key: str) -> dict[str, str]:
        assert idempotency_key
        return {"api_key": account["api_key"] + token.reveal(), "paid": "yes"}

    async def execute(loop: Any, _: str) -> Any:
        return (await loop.call("charge", {"api_key": KEY}, Secret(KEY)))["paid"]

    tools = [holdfast.tool(charge, effect=True)]
    loop = new_loop(world, plan=["a"], execute=execute, tools=tools, never_store=["api_key"], on_secret="redact")
    assert await loop.drive() == ["yes"]
    found = await everything(world)
    assert KEY not in found
    assert "Secret(***)" in found


@pytest.mark.parametrize("on_secret", ["refuse", "redact"])
async def test_a_deferred_call_with_a_secret_is_refused(world: World, on_secret: str) -> None:
    """It could not be performed by another process."""

    async def execute(loop: Any, _: str) -> Any:
        return await loop.call("send", Secret(KEY))

    def send(what: Any) -> None:
        raise AssertionError(what)

    tools = [holdfast.tool(send, defer=True)]
    with pytest.raises(SecretInState, match="argument 0 of send"):
        await new_loop(world, plan=["a"], execute=execute, tools=tools, on_secret=on_secret).drive()


async def test_a_secret_that_was_redacted_comes_back_from_the_configuration(world: World) -> None:
    def execute(loop: Any, step: str) -> str:
        loop.context["count"] += 1
        return str(loop.context["token"].reveal()) + step

    context = {"token": Secret("old "), "count": 0}
    options: dict[str, Any] = {"on_secret": "redact", "never_store": {"x"}}
    with pytest.raises(ConnectionError):
        await new_loop(world, context=context, reflect=failing(1, lambda _: None), execute=execute, **options).drive()
    loop = await resumed(world, context={"token": Secret("new "), "count": 0}, execute=execute, **options)
    assert loop.results == ["old a", "new b", "new c"]
    assert loop.context["count"] == 3  # what handlers kept there is not given anew


async def test_an_object_with_a_forbidden_field_is_an_argument_of_an_effect_and_not_shown(world: World) -> None:
    def charge(client: Client, idempotency_key: str) -> str:
        return client.api_key[:2] + idempotency_key[:0]

    async def execute(loop: Any, _: str) -> Any:
        return await loop.call("charge", Client(KEY))

    tools = [holdfast.tool(charge, effect=True)]
    loop = new_loop(world, plan=["a"], execute=execute, tools=tools, never_store={"api_key"})
    assert await loop.drive() == ["sk"]
    assert KEY not in await everything(world)


def test_a_loop_does_not_show_what_must_not_be_written() -> None:
    loop = holdfast.Loop({"api_key": KEY, "token": Secret(KEY), "topic": "kelp"}, never_store={"api_key"})
    assert KEY not in repr(loop)
    assert "kelp" in repr(loop)


async def test_what_cannot_be_replaced_is_refused_where_others_are_redacted(world: World) -> None:
    loop = new_loop(world, plan=["a"], execute=lambda *_: Call({"api_key": KEY}), never_store={"api_key"})
    with pytest.raises(SecretInState):
        await loop.drive()
    loop = new_loop(
        world, plan=["a"], execute=lambda *_: OrderedDict(api_key=KEY), never_store={"api_key"}, on_secret="redact"
    )
    with pytest.raises(SecretInState):
        await loop.drive()
    assert KEY not in await everything(world)
