"""Every event of the list is told, with the details it promises, and nothing of what users stored."""

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

import holdfast
from holdfast import sync
from holdfast.records.event import EVENTS, Event, EventKind
from patience import GIVE_UP_SECONDS

ROOT = Path(__file__).parent.parent.parent
SECRET = "canary-4711"


class Boom(Exception):
    """An error with something private in its text."""


def boom(*_: object) -> str:
    raise Boom(SECRET)


def pay(_card: str) -> str:
    return SECRET


@pytest.fixture
def heard(memory_store: sync.Store) -> Iterator[list[Event]]:
    """The events of a store in memory."""
    events: list[Event] = []
    stop = memory_store.on_event(events.append)
    yield events
    stop()


def everything(store: sync.Store) -> None:
    """A little of all that a store and its runs can do."""
    with store.run("t", labels={"app": "a"}) as run:
        run.step("pay", pay, SECRET)
        run.step("pay", pay, SECRET)
        with suppress(sync.StepFailed):
            run.step("boom", boom, SECRET, retries=1, backoff=0)
        run.record(sync.Step(action="noted", tool_output=SECRET))
        run.checkpoint({"secret": SECRET})
        run.complete(SECRET)
    with store.run("t"):
        pass
    first = store.history("t").items[-1].id
    store.pin(first)
    store.pin(first, pinned=False)
    store.delete_checkpoint(store.history("t").items[1].id)
    store.fork(first, "f")
    store.erase("f")
    store.delete("f")
    store.revive("f")
    store.prune(sync.Retention(keep_last=1))
    store.submit("app:f", "submitted", (SECRET,))


def in_doubt(store: sync.Store) -> None:
    def dies() -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), store.run("doubt") as run:
        run.step("send", dies, effect=True)
    with suppress(sync.StepInDoubt), store.run("doubt") as run:
        run.step("send", dies, effect=True)


def questions(store: sync.Store) -> None:
    with suppress(sync.Suspended), store.run("q") as run:
        run.ask("refund", {"secret": SECRET}, choices=("yes", "no"))
    store.answer(store.requests().items[0].id, "yes", SECRET, by=SECRET, comment=SECRET)
    store.recover(lambda run: run.ask("refund", {"secret": SECRET}, choices=("yes", "no")))
    with suppress(Boom), store.run("q") as run:
        boom()
    with suppress(sync.RunCancelled), store.run("c") as run:
        store.cancel("c")
        run.step("late", pay, "card")


def attempts(store: sync.Store) -> None:
    def once_more(task: str, *, recovery: sync.RecoveryContext | None = None) -> str:
        return task if recovery is not None else boom()

    sync.Agent(once_more, policy=sync.RecoveryAction.ROLLBACK, store=store).run(SECRET, thread_id="a")


def divergence(store: sync.Store) -> None:
    secrets = iter((SECRET, f"{SECRET} again"))

    @sync.step
    def look(_secret: str) -> None: ...

    @sync.durable(store=store, name="diverges")
    def diverges() -> None:
        look(next(secrets))
        boom()

    for _ in range(2):
        with suppress(Boom):
            diverges.run("d")


def test_every_kind_of_event_is_told_with_its_details(
    memory_store: sync.Store, heard: list[Event], tmp_path: Path
) -> None:
    everything(memory_store)
    in_doubt(memory_store)
    questions(memory_store)
    attempts(memory_store)
    divergence(memory_store)
    memory_store.export("t", tmp_path / "bundle")
    memory_store.import_(tmp_path / "bundle", to="copy")
    assert set(get_args(EventKind)) - {event.kind for event in heard} == {"taken_over"}  # takes a dead process
    for event in heard:
        assert tuple(event.details) == EVENTS[event.kind].details, event
        assert event.content == {}


def test_nothing_that_a_user_stored_is_told(
    memory_store: sync.Store, heard: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "holdfast"):
        everything(memory_store)
        questions(memory_store)
    assert len(caplog.records) > 30
    assert SECRET not in repr(heard) + repr([vars(record) for record in caplog.records])


def test_a_listener_that_asks_for_content_gets_it_and_others_do_not(
    memory_store: sync.Store, heard: list[Event]
) -> None:
    full: list[Event] = []
    memory_store.on_event(full.append, content=True)
    with memory_store.run("t") as run:
        run.step("pay", pay, "card")
    told = {event.kind: event.content for event in full}
    assert told["step_started"] == {"arguments": ("card",), "named": {}}
    assert told["step_done"] == {"result": SECRET}
    assert [event.details for event in full] == [event.details for event in heard]
    assert not any(event.content for event in heard)


def test_a_takeover_names_who_held_the_thread(tmp_path: Path) -> None:
    code = "import os; from holdfast import sync; sync.open('agents.db').run('t').__enter__(); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert killed.returncode == -9
    events: list[Event] = []
    with sync.open(tmp_path / "agents.db") as store:
        store.on_event(events.append)
        with store.run("t"):
            pass
    assert [event.kind for event in events] == ["taken_over", "released"]
    assert tuple(events[0].details) == EVENTS["taken_over"].details
    assert events[0].details["before"] != events[0].details["owner"]


def test_an_event_is_one_log_record_with_fields(caplog: pytest.LogCaptureFixture, memory_store: sync.Store) -> None:
    with caplog.at_level(logging.INFO, "holdfast"), memory_store.run("t") as run:
        run.complete()
    records = [vars(record) for record in caplog.records]
    assert [record["event"] for record in records] == ["claimed", "completed"]
    assert [record["levelname"] for record in records] == ["INFO", "INFO"]
    assert (records[1]["thread_id"], records[1]["seq"], records[1]["details"]) == ("t", 1, {})
    assert caplog.messages[1] == "completed t@1"


async def runs_out(limit: asyncio.Timeout) -> None:
    """Take longer than the limit allows: it ends while this function is under way."""
    limit.reschedule(0)
    await asyncio.sleep(GIVE_UP_SECONDS)


def test_what_a_step_left_by_a_cancellation_is_told() -> None:
    async def main() -> list[str]:
        told: list[str] = []
        async with holdfast.MemoryStore() as store:
            store.on_event(lambda event: told.append(event.kind))
            with suppress(TimeoutError):
                async with store.run("t") as run, asyncio.timeout(None) as limit:
                    await run.step("long", lambda: runs_out(limit))
        return told

    assert asyncio.run(main()) == ["claimed", "step_started", "step_stopped", "failed", "released"]


def test_records_are_told_at_the_next_call_of_the_run() -> None:
    async def main() -> list[tuple[str, int]]:
        told: list[tuple[str, int]] = []
        async with holdfast.MemoryStore() as store:
            store.on_event(lambda event: told.append((event.kind, event.seq)))
            async with store.run("t") as run:
                for number in range(3):
                    run.record(holdfast.Step(action=f"step {number}"))
        return told

    assert asyncio.run(main()) == [("claimed", 0), ("saved", 1), ("saved", 2), ("saved", 3), ("released", 3)]


def test_the_document_lists_every_kind_with_its_details() -> None:
    text = (ROOT / "docs" / "observability.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|(.*?)\| .+ \|$", text, re.MULTILINE)
    levels: dict[int, str] = {10: "debug", 20: "info", 30: "warning"}
    documented: dict[Any, Any] = {
        kind: (level, tuple(re.findall(r"`(\w+)`", details))) for kind, level, details in rows
    }
    assert documented == {kind: (levels[sort.level], sort.details) for kind, sort in EVENTS.items()}


def test_an_async_listener_hears_of_plain_steps_too() -> None:
    """A plain step cannot wait for it, wherever it is called: the event loop does."""
    heard: list[str] = []

    async def listen(event: holdfast.StoreEvent) -> None:
        await asyncio.sleep(0)
        heard.append(event.kind)

    @holdfast.step
    def double(number: int) -> int:
        return 2 * number

    async def scenario() -> None:
        async with holdfast.MemoryStore() as store:
            store.on_event(listen)
            async with store.run("t") as run:
                assert double(1) == 2
                assert await run.step("on a thread", lambda: double(2)) == 4
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert heard.count("step_started") == heard.count("step_done") == 3
