"""What a row keeps of a step's arguments: a bounded text, all of them, or nothing; never a secret."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import sync
from holdfast.runs.arguments import LONGEST_BYTES, preview
from runs.worlds import World

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(object),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.lists(inner).map(tuple)
        | st.sets(st.integers() | st.text(max_size=3))
    ),
)


class Loud:
    """An object whose own text must not be asked for."""

    def __repr__(self) -> str:
        raise AssertionError("its repr was called")

    __str__ = __repr__


# The text


@settings(max_examples=settings().max_examples * 2 // 5)
@given(st.dictionaries(st.text(), values) | st.lists(values))
def test_a_preview_is_short_and_the_same_each_time(arguments: Any) -> None:
    text = preview(arguments)
    assert len(text.encode()) <= LONGEST_BYTES
    assert preview(copy.deepcopy(arguments)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"q": "kelp", "limit": 3}, "q='kelp', limit=3"),
        (["kelp", (1,), {2, 1}, None], "'kelp', (1,), {1, 2}, None"),
        ({"order": {"id": 7, "items": [1.5, b"x"]}}, "order={'id': 7, 'items': [1.5, b'x']}"),
        ({"client": Loud(), "key": holdfast.Secret("s3cr3t")}, "client=<Loud>, key=Secret(***)"),
        ({"n": 2**100_000}, "n=<int of 100001 bits>"),
        ({"many": set(range(100))}, "many={100 items}"),
        ({}, ""),
    ],
)
def test_plain_data_is_written_out_and_other_objects_by_their_class(arguments: Any, text: str) -> None:
    assert preview(arguments) == text


def test_a_preview_looks_at_no_more_than_it_shows() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in ("x" * 10**7, list(range(10**6)), {n: n for n in range(10**6)}, endless, {("x" * 10**6,)}):
        assert len(preview([value]).encode()) <= LONGEST_BYTES
    assert preview(["ä" * 300]).endswith("ä…")


# In rows


async def kept(world: World, inputs: str, *args: Any, effect: bool = False) -> tuple[holdfast.Step, holdfast.Step]:
    """The steps of a run, a decorated one and one by key, in a store that keeps so much."""

    @world.step(ignore=("client",), effect=effect)
    async def charge(card: str, amount: int = 40, client: Any = None) -> str:
        return "paid"

    async with world.open(inputs=inputs).run("t") as run:
        await charge("4111", client=Loud())
        await run.step("pay", lambda *_: "paid", "4111", 40)
        first, second = run.steps
    return first, second


async def test_a_step_says_what_it_was_called_with(world: World) -> None:
    decorated, called = await kept(world, "preview")
    assert decorated.metadata["arguments"] == "card='4111', amount=40"
    assert called.metadata["arguments"] == "'4111', 40"
    assert decorated.tool_input is None


async def test_a_store_may_keep_all_arguments(world: World) -> None:
    decorated, called = await kept(world, "full")
    assert decorated.tool_input == {"card": "4111", "amount": 40}
    assert called.tool_input == ["4111", 40]
    assert called.metadata["arguments"] == "'4111', 40"


async def test_a_store_may_keep_no_arguments(world: World) -> None:
    for step in await kept(world, "none"):
        assert "arguments" not in step.metadata
        assert step.tool_input is None


async def test_a_failed_step_says_it_too_and_a_fork_keeps_it(world: World) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.StepFailed):
            await run.step("divide", lambda number: number / 0, 7)
        await run.step("double", lambda number: number * 2, 7)
        checkpoint = str(run.checkpoint_id)
    fork = await world.store.fork(checkpoint, results={"double": 15})
    latest = await world.store.latest(fork)
    assert latest is not None
    assert [step.metadata["arguments"] for step in latest.steps] == ["7", "7"]


async def test_arguments_are_kept_as_they_were_before_the_call(world: World) -> None:
    async with world.open(inputs="full").run("t") as run:
        await run.step("take", lambda items: items.pop(), [1, 2])
        assert run.steps[0].tool_input == [[1, 2]]
        assert run.steps[0].metadata["arguments"] == "[1, 2]"


async def test_a_step_in_doubt_is_shown_with_its_arguments(world: World) -> None:
    def pay(card: str) -> str:
        world.die_at_next_write()
        return "paid"

    async with world.doomed("t") as run:
        await run.step("pay", pay, "4111", effect=True)
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.open().run("t") as run:
            await run.step("pay", pay, "4111", effect=True, on_doubt="ask")
    assert caught.value.requests[0].payload["arguments"] == "'4111'"


async def test_a_step_by_hand_says_it_too(world: World) -> None:
    async with world.doomed("t") as run:
        await run.begin_step("pay", "4111")
    async with world.open().run("t") as run:
        await run.complete_step(run.in_doubt("pay"), "paid")
        assert run.steps[0].metadata["arguments"] == "'4111'"


async def test_the_row_of_a_step_says_how_many_milliseconds_it_took(world: World) -> None:
    def fail() -> None:
        world.clock.advance(0.25)
        raise ValueError

    async with world.store.run("t") as run:
        await run.step("slow", world.clock.advance, 1.5)
        with pytest.raises(holdfast.StepFailed):
            await run.step("fails", fail)
    page = await world.store.history("t")
    assert [row.metadata for row in page] == [
        {"step": "fails", "error": "ValueError", "ms": 250},
        {"step": "slow", "ms": 1500},
    ]


def test_another_word_is_refused() -> None:
    with pytest.raises(holdfast.ConfigurationError, match=r"'all' is not a value of inputs=.*preview, full, none"):
        holdfast.MemoryStore(inputs="all")  # type: ignore[arg-type]


# Secrets


def test_a_secret_beside_a_list_that_holds_itself_is_refused_as_that() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with sync.MemoryStore() as store, store.run("t") as run, pytest.raises(holdfast.LimitExceeded):
        run.step("look", str, [holdfast.Secret("hunter2"), endless])


def test_a_secret_is_hidden_wherever_it_is_shown() -> None:
    secret = holdfast.Secret("hunter2")
    shown = (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>20}",
        repr([secret]),
        repr({"k": secret}),
    )
    assert not [text for text in shown if "hunter2" in text]
    assert secret.reveal() == "hunter2"
    assert copy.deepcopy({"k": secret})["k"].reveal() == "hunter2"
    with pytest.raises(holdfast.SecretInState):
        pickle.dumps(secret)


async def test_a_secret_is_refused_wherever_it_would_be_stored(world: World) -> None:
    secret = holdfast.Secret("hunter2")
    with pytest.raises(holdfast.SecretInState, match=r"state\[\"keys\"\]\[0\] is a Secret") as caught:
        await world.store.save("t", {"keys": [secret]})
    assert caught.value.path == 'state["keys"][0]'
    async with world.store.run("u") as run:
        for store in (
            lambda: run.step("make", lambda: secret),
            lambda: run.checkpoint({"key": secret}),
            lambda: run.append("keys", secret),
            lambda: run.ask("which", {"key": secret}),
            lambda: run.complete(secret),
        ):
            with pytest.raises(holdfast.SecretInState):
                await store()


@pytest.mark.parametrize("inputs", ["preview", "full"])
async def test_a_secret_argument_reaches_the_function_and_no_stored_byte_depends_on_it(
    world: World, inputs: str
) -> None:
    @world.step()
    async def look(key: holdfast.Secret[str], headers: dict[str, Any]) -> int:
        return len(key.reveal() + headers["token"].reveal())

    for value in ("hunter2", "correct horse"):
        secret = holdfast.Secret(value)
        async with world.open(inputs=inputs).run("t") as run:
            assert await look(secret, {"token": secret}) == 14
            assert await run.step("len", lambda key: len(key.reveal()), secret) == 7
            assert len(run.steps) == 2
            assert run.steps[0].metadata["arguments"] == "key=Secret(***), headers={'token': Secret(***)}"
            if inputs == "full":
                assert run.steps[1].tool_input == ["Secret(***)"]


def test_a_secret_is_nowhere_in_the_bytes_of_a_store(tmp_path: Any) -> None:
    from holdfast import sync

    @sync.step
    def look(key: holdfast.Secret[str]) -> int:
        return len(key.reveal())

    with sync.SQLiteStore(tmp_path / "s.db", inputs="full", compress=False) as store, store.run("t"):
        look(holdfast.Secret("canary-4711"))
    for path in tmp_path.iterdir():
        assert b"canary-4711" not in path.read_bytes()
