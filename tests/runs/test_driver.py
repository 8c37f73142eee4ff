"""A runtime written from the guide alone: it is killed at every effect, and reads what older versions stored."""

import asyncio
import re
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.codec import encode
from holdfast.history.journal import Journal
from holdfast.runs.driver import Driver, Terms, claim, note, ports_of, read, was_deleted
from holdfast.runtimes.agent.memory import CHOICE, COMPENSATOR, FAILURE, RAISED, USAGE
from holdfast.runtimes.session.record import HAND_OVER, RESERVE, TURN
from holdfast.testing import crash_everywhere

GUIDE = Path(__file__).parent.parent.parent / "docs" / "writing-a-runtime.md"
DONE: list[str] = []


def checklist() -> Any:
    """The class of the guide."""
    code = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code.partition("async def main")[0], names)
    return names["Checklist"]


async def work(store: holdfast.Store) -> Any:
    async def do(item: str) -> str:
        DONE.append(item)
        return item.upper()

    return await checklist()(do, store).run("list", ["a", "b", "c"])


def check() -> None:
    assert set(DONE) == {"a", "b", "c"}


@pytest.mark.faults
def test_the_runtime_of_the_guide_ends_the_same_wherever_it_is_killed() -> None:
    report = crash_everywhere(work, before=DONE.clear, after=check, pairs=20)
    assert report.result == ["A", "B", "C"]


def test_a_runtime_that_forgets_its_notes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr(Journal, "noted", lambda _self, _kind, _key: None)
    with pytest.raises(AssertionError):
        crash_everywhere(work, before=DONE.clear, after=check, pairs=0)


def test_a_thread_is_not_taken_over_by_another_runtime_or_with_other_arguments() -> None:
    with holdfast.sync.MemoryStore() as store:
        run = partial(checklist_run, store)
        assert run(["a"]) == ["A"]
        with pytest.raises(holdfast.KeyReused, match="its items differed"):
            run(["b"])
        assert run(["a"]) == ["A"]
        store.save("used", {"by": "somebody"})
        agent = holdfast.sync.Agent(lambda task: task, store=store)
        with pytest.raises(holdfast.KeyReused, match="runs checklist, not agent"):
            agent.run("t", thread_id="list")


def checklist_run(store: holdfast.sync.Store, items: list[str]) -> Any:
    from holdfast.ports import run_blocking

    return run_blocking(checklist()(str.upper, store._store).run("list", items))


def test_a_restored_thread_is_what_it_was_whatever_waited_or_was_noted() -> None:
    """A change that waited was merged into the restored state, and a note made again broke the thread."""
    asyncio.run(_restored())


async def _restored() -> None:
    async with holdfast.MemoryStore() as store:
        async with claim(store, "t", Terms()) as run:
            driver = Driver(run)
            await run.checkpoint({"a": 1})
            seq = run.seq
            await driver.write(note("item", {}, 1, key="1", value=encode(1), action="one"))
            driver.change_state({"b": 2})
            then = await driver.ports.perform(driver.past().at, seq)
            await driver.restore(then, {})
            assert (run.state, run.steps) == ({"a": 1}, [])
            await driver.write(note("item", {}, 2, key="1", value=encode(2), action="one"))
            assert [step.tool_output for step in run.steps] == [2]
        latest = await store.latest("t")
        assert latest is not None
        assert [step.tool_output for step in latest.steps] == [2]


CONTENTS: list[Any] = [
    [1, 2],
    {},
    None,
    {"role": 1, "phase": "draft"},
    {"role": "writer", "phase": "draft", "usage": {"unknown": 1}},
    {"role": "writer", "phase": "draft", "usage": {"input_tokens": -1}},
    {"role": "writer", "phase": "draft", "cost_usd": nan},
    [{"unknown": 1}, 0],
    [{}, "much"],
    {"attempt": 1, "type": "unknown", "error": "", "message": "", "progress": 0, "action": {"kind": "none"}},
    {"attempt": 1, "type": "none", "error": "", "message": "", "progress": 0, "action": {"kind": "retry"}},
]
"""Such as no runtime of ours writes: another one may, or whoever can write to the store."""


@pytest.mark.parametrize("kind", [TURN, RESERVE, HAND_OVER, FAILURE, USAGE, COMPENSATOR, CHOICE, RAISED])
def test_notes_that_are_not_what_their_kind_says_raise_only_errors_of_ours(kind: str) -> None:
    refused = [content for content in CONTENTS if not asyncio.run(_is_read(kind, content))]
    assert refused


async def _is_read(kind: str, content: Any) -> bool:
    async with holdfast.MemoryStore() as store:
        async with claim(store, "t", Terms()) as run:
            await Driver(run).write(note(kind, content, 1, key="1"))
        try:
            await holdfast.Agent(str, store=store).summary("t")
            await holdfast.Orchestrator("writer", "draft", store).summary("t")
            async with store.session("t", wait=0):
                return True
        except holdfast.HoldfastError:
            async with store.run("t", wait=0):
                return False


def test_a_block_that_is_left_resumable_is_found_by_the_next_recovery() -> None:
    async def program() -> None:
        async with holdfast.MemoryStore() as store:
            for thread_id in ("idle", "resumable"):
                async with claim(store, thread_id, Terms()) as run:
                    await run.checkpoint({"n": 1})
                    if thread_id == "resumable":
                        Driver(run).leave_resumable()
            found: list[str] = []
            await store.recover(lambda run: found.append(run.thread_id))
            assert found == ["resumable"]

    asyncio.run(program())


def test_a_deleted_thread_is_told_from_one_that_never_was() -> None:
    async def program() -> None:
        async with holdfast.MemoryStore() as store:
            await store.save("t", {})
            assert not await was_deleted(store, "t")
            await store.delete("t")
            assert await was_deleted(store, "t")
            assert not await was_deleted(store, "never")
            await store.revive("t")
            assert not await was_deleted(store, "t")

    asyncio.run(program())


def test_a_step_within_is_found_again_by_name_arguments_and_number() -> None:
    calls: list[str] = []

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            for _ in range(2):
                async with claim(store, "t", Terms(lease=30)) as run:
                    driver = Driver(run)
                    for text in ("a", "a", "b"):
                        await driver.step_within("call", calls.append, text)
            assert calls == ["a", "a", "b"]

    asyncio.run(scenario())


def test_a_withdrawn_request_says_so_to_its_run_and_to_who_answers() -> None:
    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            with pytest.raises(holdfast.Suspended) as suspended:
                async with claim(store, "t", Terms()) as run:
                    await Driver(run).ask("1", "refund", 40, {"choices": (), "deadline": None, "default": None})
            async with claim(store, "t", Terms()) as run:
                await Driver(run).withdraw("refund", "the order was cancelled")
                await run.checkpoint({})
                with pytest.raises(
                    holdfast.RequestExpired, match="'refund' of thread 't' was withdrawn: the order was c"
                ):
                    await Driver(run).ask("1", "refund", 40, {"choices": (), "deadline": None, "default": None})
            with pytest.raises(holdfast.Conflict, match="was withdrawn: the order was cancelled"):
                await store.answer(suspended.value.requests[0].id, value=1)

    asyncio.run(scenario())


def test_divergence_is_refused_for_a_new_effect_where_another_was_recorded() -> None:
    calls: list[str] = []

    async def call(store: holdfast.Store, text: str) -> None:
        async with claim(store, "t", Terms(lease=30)) as run:
            driver = Driver(run)
            driver.refuse_divergence()
            await driver.step_within("call", calls.append, text, effect=True)

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            await call(store, "a")
            with pytest.raises(holdfast.Diverged):
                await call(store, "b")
            await call(store, "a")
            assert calls == ["a"]

    asyncio.run(scenario())


def test_a_record_that_is_read_has_the_state_also_before_the_first_checkpoint() -> None:
    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            before = ports_of(store).now()
            async with claim(store, "t", Terms(lease=30)) as run:
                driver = Driver(run)
                driver.replace_state({"plan": [1]})
                await driver.start("work", encode([1]))
            record = await read(store, "t")
            assert (record.state, await store.latest("t")) == ({"plan": [1]}, None)
            assert record.started is not None
            assert before <= record.started.at <= ports_of(store).now()

    asyncio.run(scenario())
