"""Durable functions as objects: what they show, what differs between two calls, starting over, methods."""

import asyncio
from threading import Event
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.runs.durable import registry
from runs.worlds import AwaitableWorld, World


async def test_what_differs_is_shown(world: World) -> None:
    @world.durable(name="differs")
    async def order(number: int, *, comment: str = "none", items: tuple[str, ...] = ()) -> int:
        return number

    await order.run("t", 1, comment="first")
    with pytest.raises(
        holdfast.KeyReused, match="number was 1, is now 2, comment was 'first', is now 'none'"
    ) as caught:
        await order.run("t", 2)
    assert "items" not in str(caught.value)
    assert "order.resume('t')" in str(caught.value)
    with pytest.raises(holdfast.KeyReused) as caught:
        await order.run("t", 1, comment="x" * 10_000)
    assert len(str(caught.value)) < 600


async def test_what_was_started_by_another_version_of_the_code_is_refused_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.pop("other version", None)

    @world.durable(name="other version")
    async def order(number: int) -> int:
        return number

    await order.run("t", 1)

    monkeypatch.delitem(registry, "other version")

    @world.durable(name="other version")
    async def newer(number: int, more: int) -> int:
        return number + more

    with pytest.raises(holdfast.KeyReused, match="its parameters were different"):
        await newer.run("t", 1, 2)


async def test_other_arguments_for_a_thread_that_runs_are_refused_without_waiting(world: World) -> None:
    refused: list[BaseException] = []

    @world.durable(name="held", lease=3600)
    async def order(number: int) -> str:
        if number == 1:
            for call in (order.run("t", 2), order.start("t", 3)):
                with pytest.raises(holdfast.KeyReused, match="number was 1, is now") as caught:
                    await call
                refused.append(caught.value)
        return "done"

    assert await order.run("t", 1) == "done"
    assert (len(refused), world.slept) == (2, [])


async def test_another_function_for_a_thread_that_runs_is_refused_without_waiting(world: World) -> None:
    @world.durable(name="second", lease=3600)
    async def second() -> None: ...

    @world.durable(name="first", lease=3600)
    async def first() -> str:
        with pytest.raises(holdfast.KeyReused, match="runs first, not second"):
            await second.run("t")
        return "done"

    assert await first.run("t") == "done"
    assert world.slept == []


async def test_the_same_call_waits_for_the_one_that_runs(world: World) -> None:
    @world.durable(name="waits", lease=0.5, wait=0)
    async def order(number: int, *, outer: bool = True) -> str:
        if outer:
            with pytest.raises(holdfast.LeaseHeld):
                await order.resume("t")
        return "done"

    assert await order.run("t", 1) == "done"


async def test_fresh_starts_over(world: World) -> None:
    calls: list[int] = []

    @world.durable(name="fresh")
    async def order(number: int) -> int:
        await world.api.current().step("work", calls.append, number)
        return number

    assert await order.run("t", 1) == 1
    assert await order.run("t", 2, fresh=True) == 2
    assert await order.run("t", 2, fresh=False) == 2
    assert (await order.start("t", 3, fresh=True)).result == 3
    assert await order.run("new", 4, fresh=True) == 4
    assert calls == [1, 2, 3, 4]
    await world.store.delete("t")
    assert await order.run("t", 5, fresh=True) == 5


async def test_fresh_does_not_take_a_thread_from_a_run(world: World) -> None:
    @world.durable(name="fresh and held")
    async def order(number: int) -> int:
        if number == 1:
            with pytest.raises(holdfast.LeaseHeld):
                await order.run("t", 2, fresh=True)
        return number

    assert await order.run("t", 1) == 1
    assert await order.resume("t") == 1


async def test_a_parameter_named_fresh_is_the_functions_own(world: World) -> None:
    @world.durable(name="fresh of its own")
    async def order(*, fresh: bool) -> bool:
        return fresh

    assert await order.run("t", fresh=True) is True
    with pytest.raises(holdfast.KeyReused, match="fresh was True, is now False"):
        await order.run("t", fresh=False)


async def test_an_unclear_fresh_is_refused(world: World) -> None:
    @world.durable(name="any keywords")
    async def anything(**named: Any) -> Any:
        return named

    @world.durable(name="no keywords")
    async def nothing() -> None: ...

    with pytest.raises(holdfast.ConfigurationError, match="takes keywords of any name"):
        await anything.run("t", fresh=True)
    with pytest.raises(holdfast.ConfigurationError, match="not a bool"):
        await nothing.run("t", fresh="yes")
    assert len(await world.store.threads()) == 0


@pytest.mark.parametrize("colour", ["awaitable", "blocking"])
def test_only_what_users_call_is_visible(colour: str) -> None:
    async def awaitable() -> None: ...

    def blocking() -> None: ...

    made: Any = (
        holdfast.durable(name="seen")(awaitable) if colour == "awaitable" else sync.durable(name="seen too")(blocking)
    )
    assert {name for name in dir(made) if not name.startswith("_")} == {
        "name",
        "options",
        "resume",
        "run",
        "start",
        "submit",
    }


def test_a_durable_method_says_what_to_do() -> None:
    store = sync.MemoryStore()

    class Service:
        @sync.durable(store=store, name="method")
        def work(self, number: int) -> int:
            return number

        @staticmethod
        @sync.durable(store=store, name="static")
        def static(number: int) -> int:
            return number

    with pytest.raises(holdfast.ConfigurationError, match=r"Service\.work is a durable method.*@staticmethod above"):
        Service().work.run("t", 1)  # type: ignore[call-overload]
    assert Service().static.run("t", 1) == 1
    assert Service.static.run("t", 1) == 1


def test_a_durable_function_kept_in_a_class_is_no_method() -> None:
    store = sync.MemoryStore()

    @sync.durable(store=store, name="elsewhere")
    def work(number: int) -> int:
        return number

    class Service:
        task = work

    assert Service().task.run("t", 1) == 1


def test_a_thread_that_is_held_by_another_process_is_looked_into_at_once(world: World) -> None:
    """As a web server does: the first request runs, the second comes with another body."""
    if not isinstance(world, AwaitableWorld):
        return
    may_end = Event()

    async def scenario() -> None:
        started = asyncio.Event()

        @world.durable(name="served")
        async def serve(body: str) -> str:
            started.set()
            await asyncio.to_thread(may_end.wait)
            return body

        task = asyncio.create_task(serve.run("order-1", "apples"))
        await started.wait()
        with pytest.raises(holdfast.KeyReused, match="body was 'apples', is now 'pears'"):
            await serve.run("order-1", "pears")
        may_end.set()
        assert await task == "apples"

    world.play(scenario())


class Unknown:
    """A class that nobody registered."""


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (
            holdfast.Secret("k"),
            holdfast.SecretInState,
            "'token' of call is a Secret, .* from the environment",
        ),
        (Unknown(), holdfast.UnstorableValue, "parameter 'token' of call: an Unknown cannot be stored"),
    ],
)
def test_an_argument_that_cannot_be_stored_is_named(value: Any, error: type[Exception], text: str) -> None:
    with holdfast.sync.MemoryStore() as store:

        @holdfast.sync.durable(store=store)
        def call(number: int, token: Any = None) -> int:
            return number

        with pytest.raises(error, match=text):
            call.run("t", 1, token=value)
        with pytest.raises(error, match=text):
            call.run("t", 1, value)
