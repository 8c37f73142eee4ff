"""Keys are composed injectively: no two things of a run share one, whatever users call them."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import sync
from holdfast.runs.keys import Key, kept, kind_at, part, prefix_of
from holdfast.runs.scope import Scope
from runs.worlds import World

FINGERPRINT = bytes.fromhex("0f3c5a7e9b1d2468")
IMITATIONS = (
    *("search:0f3c5a7e9b1d2468:1", "search:0f3c5a7e9b1d2468", "record=k", "turn=user", "turn=user/1", "turn~3.1"),
    *("compensate=1:0:x", "append:a=k", "append:a~b", "a/search:0f3c5a7e9b1d2468:1", "a\\/b", "\\", "a\\", "a/", "/"),
)
texts = st.one_of(
    st.text(alphabet="ab:/=~\\01", min_size=1, max_size=6), st.sampled_from(IMITATIONS), st.text(min_size=1)
)
paths = st.lists(texts, min_size=1, max_size=3).map(tuple)
ways = st.one_of(
    st.tuples(st.just("named"), texts),
    st.tuples(st.just("called"), texts),
    st.tuples(st.just("kept"), st.sampled_from(["record", "checkpoint", "turn", "compensate"]), texts),
    st.tuples(st.just("appended"), paths, texts),
    st.tuples(st.just("appended"), paths),
    st.tuples(st.just("branched"), paths),
    st.tuples(st.just("counted"), st.sampled_from(["record", "checkpoint"])),
)


def composed(way: tuple[Any, ...], scope: Scope) -> Key:
    """The key of a thing of one of the ways in which things get keys."""
    match way:
        case "named", text:
            return Key(scope.prefix + text)
        case "called", text:
            return Key(scope.key(text, FINGERPRINT))
        case "kept", kind, text:
            return scope.prefix + kept(kind, text)
        case "appended", path, text:
            return scope.prefix + kept(kind_at("append", path), text)
        case "appended", path:
            return Key(scope.ordinal(kind_at("append", path), FINGERPRINT, scope.branch))
        case "branched", path:
            return Key(scope.ordinal(kind_at("append", path), FINGERPRINT, scope.branch + 1))
        case _, kind:
            return Key(scope.ordinal(kind, FINGERPRINT, scope.branch))
    raise AssertionError(way)


def key_of(levels: list[tuple[Any, ...]]) -> str:
    """The key of what is the last of these, called within the one before it, and so on."""
    scope = Scope()
    for level in levels[:-1]:
        scope = Scope(prefix_of(composed(level, scope)))
    return str(composed(levels[-1], scope))


nested = st.lists(ways, min_size=1, max_size=3)


@given(nested, nested)
def test_two_things_share_a_key_only_if_they_are_the_same(one: list[Any], other: list[Any]) -> None:
    assert (key_of(one) == key_of(other)) == (one == other)


@given(texts, texts)
def test_a_turn_whose_key_was_not_composed_has_steps_of_its_own(one: str, other: str) -> None:
    assert (prefix_of(f"turn={one}") == prefix_of(f"turn={other}")) == (one == other)


@pytest.mark.parametrize("key", ["fetch", "fetch:1", "user-42", "a.b", "step 1", "größe", "pay:0f3c5a7e9b1d2468"])
def test_plain_keys_are_stored_as_they_are(key: str) -> None:
    assert part(key) == key
    assert Scope().key(key, FINGERPRINT) == f"{key}:{FINGERPRINT.hex()}:1"


# In runs


def test_a_nested_step_and_one_whose_key_looks_like_it_are_two() -> None:
    with sync.MemoryStore() as store, sync.Orchestrator("writer", "draft", store=store).session("s") as session:

        def outer() -> str:
            return session.step("b", lambda: "nested")

        assert session.step("a", outer) == "nested"
        assert session.step("a/b", lambda: "plain") == "plain"


def test_steps_of_two_turns_whose_keys_look_alike_are_two() -> None:
    with sync.MemoryStore() as store, sync.Orchestrator("writer", "draft", store=store).session("s") as session:

        def turn(step: str, value: str) -> Callable[[], str]:
            return lambda: session.step(step, lambda: value)

        first = session.run_turn(turn("1/fetch", "first"), idempotency_key="user")
        second = session.run_turn(turn("fetch", "second"), idempotency_key="user/1")
        assert (first.value, second.value) == ("first", "second")


async def test_appends_to_two_places_whose_names_look_alike_are_two(world: World) -> None:
    for _ in range(2):
        async with world.store.run("t") as run:
            await run.append(("a", "b"), 1, key="k")
            await run.append("a/b", 2, key="k")
            await run.append("a=b", 3, key="k")
            await run.append("c", 4, key="d=k")
            await run.append("c=d", 5, key="k")
    async with world.store.run("t") as run:
        assert run.state == {"a": {"b": [1]}, "a/b": [2], "a=b": [3], "c": [4], "c=d": [5]}


async def test_a_step_that_imitates_the_key_of_a_decorated_one_is_another(world: World) -> None:
    @world.step()
    async def search(word: str) -> str:
        return f"found {word}"

    async with world.store.run("t") as run:
        assert await search("kelp") == "found kelp"
        key = run.steps[0].metadata["key"]
        assert await run.step(key, lambda: "mine") == "mine"
        assert await run.step(f"in/{key}", lambda: "mine too") == "mine too"
    async with world.store.run("t") as run:
        assert await search("kelp") == "found kelp"
        assert await run.step(key, lambda: "again") == "mine"


async def test_a_step_begun_by_hand_has_the_same_key_as_one_that_is_called(world: World) -> None:
    async with world.store.run("t") as run:
        handle = await run.begin_step("a/b=c")
        await run.complete_step(handle, 1)
        assert await run.step("a/b=c", lambda: 2) == 1
    async with world.doomed("u") as run:
        await run.begin_step("a/b")
    async with world.open().run("u") as run:
        await run.complete_step(run.in_doubt("a/b"), 3)
        assert await run.step("a/b", lambda: 4) == 3


async def test_a_fork_finds_a_step_by_the_key_that_its_user_gave(world: World) -> None:
    async with world.store.run("t") as run:
        await run.step("a/b", lambda: 1)
        checkpoint = str(run.checkpoint_id)
    thread_id = await world.store.fork(checkpoint, results={"a/b": 2})
    async with world.store.run(thread_id) as run:
        assert await run.step("a/b", lambda: 3) == 2


async def test_the_error_of_a_step_names_it_by_the_key_that_its_user_gave(world: World) -> None:
    with pytest.raises(holdfast.StepFailed, match="step 'a/b' failed"):
        async with world.store.run("t") as run:
            await run.step("a/b", lambda: 1 / 0)
