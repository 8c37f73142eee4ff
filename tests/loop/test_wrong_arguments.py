"""Options that make no sense are refused when they are given, in both worlds alike."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import ConfigurationError, sync

BOTH = pytest.mark.parametrize("api", [holdfast, sync], ids=["awaitable", "blocking"])


def noop(*_: Any) -> None:
    """Do nothing."""


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "step"}, "every must be 'transition', a number"),
        ({"every": 0}, "every must be 'transition'"),
        ({"every": -1.0}, "`every` must be a timedelta or seconds, .*got -1.0"),
        ({"every": True}, "every must be"),
        ({"every": timedelta(days=-1)}, "`every` must be"),
        ({"on_secret": "hide"}, "on_secret must be 'refuse' or 'redact', got 'hide'"),
        ({"never_store": "api_key"}, "`never_store` must be a sequence of words, got 'api_key'"),
        ({"version": "1"}, "`version` must be an int .*got '1'"),
        ({"migrations": {"1": noop}}, "migrations must map versions"),
        ({"migrations": {1: None}}, "migrations must map versions"),
        ({"context": []}, "`context` must be a mapping"),
        ({"plan": []}, r"`plan` must be a function or None, got \[\]"),
        ({"retention": 3}, "`retention` must be a holdfast.Retention"),
        ({"tools": [3]}, "a tool is a function, got 3"),
        ({"tools": [noop, noop]}, "two tools are named 'noop'"),
        ({"lease": 0.1}, "`lease` must be at least 0.5 s, got 0.1"),
        ({"exekute": noop}, "unknown option 'exekute'; did you mean 'execute'"),
        ({"store": "agents.db"}, "store must be a store of holdfast"),
    ],
)
def test_a_wrong_option_is_refused(api: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        api.Loop("essay", **options)


@BOTH
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda api: api.tool(lambda: None, effect=True), "a tool needs a name"),
        (lambda api: api.tool(noop, retries=3), "retries of tool 'noop' is for tools with effect=True"),
        (lambda api: api.tool(noop, effect=True, retries=-1), "`retries` must be an int of at least 0, got -1"),
        (lambda api: api.tool(noop, effect=True, on_doubt="perhaps"), "`on_doubt` must be .* got 'perhaps'"),
        (lambda api: api.tool(noop, effects=True), "unknown option 'effects'; did you mean 'effect'"),
    ],
)
def test_a_wrong_tool_is_refused(api: Any, make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(api)


def test_a_tool_is_made_by_a_decorator_too_and_can_be_called_outside_of_a_loop() -> None:
    @holdfast.tool(effect=True, name="shout")
    def upper(text: str) -> str:
        return text.upper()

    assert (upper.name, upper.effect, upper.defer, upper("a")) == ("shout", True, False, "A")


def test_a_loop_without_its_handlers_is_looked_at_and_not_driven(memory_store: sync.Store) -> None:
    snapshot = {"version": 1, "request": "essay", "state": "EXECUTING", "plan": ["a"], "cursor": 0, "results": []}
    loop = sync.Loop.from_dict(snapshot, store=memory_store, thread_id="t")
    assert repr(loop) == "Loop('essay', state=EXECUTING, cursor=0 of 1)"
    for drive in (loop.drive, loop.step_once):
        with pytest.raises(ConfigurationError, match="a loop needs plan= and execute= to be driven"):
            drive()


def test_an_unknown_tool_is_refused_with_those_that_there_are(memory_store: sync.Store) -> None:
    loop = sync.Loop(
        "essay",
        plan=lambda _: ["a"],
        execute=lambda loop, _: loop.call("sned"),
        tools=[sync.tool(noop, name="send"), len],
        store=memory_store,
    )
    with pytest.raises(ConfigurationError, match="the loop has no tool 'sned'; its tools are: send, len"):
        loop.drive()
    assert loop.thread_id.startswith("loop-")


@BOTH
def test_what_is_no_store_of_that_world_is_refused(api: Any, memory_store: sync.Store) -> None:
    stores: list[Any] = [None, "agents.db", memory_store if api is holdfast else holdfast.MemoryStore()]
    for store in stores:
        with pytest.raises(ConfigurationError, match="store must be a store of holdfast"):
            asyncio.run(holdfast.Loop.resume(store, "t")) if api is holdfast else api.Loop.resume(store, "t")
        with pytest.raises(ConfigurationError, match="store must be a store of holdfast"):
            api.SnapshotStore(store, "t")


@BOTH
@pytest.mark.parametrize("wrong", [5, None, ["a"]])
def test_a_snapshot_that_is_none_is_refused(api: Any, wrong: Any) -> None:
    def save() -> None:
        asyncio.run(api.SnapshotStore(api.open("memory:"), "t").save(wrong))

    with pytest.raises(ConfigurationError, match="snapshot must be a Snapshot or its dict, got"):
        save()
