"""What the document of techrevati's CheckpointSaver states, sentence by sentence, and its sample."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import UnstorableValue, UsageSnapshot, sync
from patience import GIVE_UP_SECONDS
from runs.worlds import World
from session.talks import Model, orchestrator

SAMPLE = """
from holdfast.sync import (
    Orchestrator, SQLiteStore, UsageSnapshot,
)

store = SQLiteStore("checkpoints.db")
orch = Orchestrator(role="writer", phase="draft", store=store)

with orch.session(thread_id="user-42:essay") as session:
    draft, usage = session.run_turn(
        lambda: call_model(outline_prompt),
        model="model-a",
        usage=UsageSnapshot(input_tokens=2_000, output_tokens=900),
        idempotency_key="draft:turn-1",
    )
    revision, _ = session.run_turn(
        lambda: call_model(revision_prompt(draft)),
        model="model-a",
        idempotency_key="draft:turn-2",
    )
"""
STUBS = """
import sys
outline_prompt = "outline"
def revision_prompt(draft):
    return "revise " + draft
def call_model(prompt):
    if prompt.startswith("revise") and "--crash" in sys.argv:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    print("called with", prompt, flush=True)
    return "text about " + prompt
"""


@pytest.fixture
def sample(tmp_path: Path) -> Callable[..., list[str]]:
    """Runs the document's sample as a program, in the same directory each time."""
    (tmp_path / "sample.py").write_text(STUBS + SAMPLE + "print(draft, usage.input_tokens, revision, sep='; ')\n")

    def run(*arguments: str) -> list[str]:
        command = [sys.executable, "-W", "error", "sample.py", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
        )
        assert done.returncode == (-9 if arguments else 0), done.stderr
        return done.stdout.splitlines()

    return run


END = "text about outline; 2000; text about revise text about outline"


def test_on_a_clean_run_of_the_sample_two_checkpoints_land_in_the_file(
    sample: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert sample()[-1] == END
    with sync.SQLiteStore(tmp_path / "checkpoints.db") as store:
        assert len(store.history("user-42:essay")) == 2
        assert store.thread("user-42:essay").status == "idle"


def test_after_a_crash_between_the_turns_the_first_is_cached_and_execution_continues_with_the_second(
    sample: Callable[..., list[str]],
) -> None:
    assert sample("--crash") == ["called with outline"]
    assert sample() == ["called with revise text about outline", END]
    assert sample() == [END]


async def test_a_fresh_orchestrator_resumes_from_the_last_committed_turn(world: World) -> None:
    model = Model()
    for _ in range(2):
        async with orchestrator(world).session("t") as session:
            one = await session.run_turn(model.asked("one"), idempotency_key="1")
            two = await session.run_turn(model.asked(f"two after {one.value}"), idempotency_key="2")
    assert model.prompts == ["one", "two after answer 1 to one"]
    assert two.value == "answer 2 to two after answer 1 to one"


async def test_a_paused_loop_resumes_from_the_last_committed_turn(world: World) -> None:
    model = Model()

    async def talk() -> Any:
        async with orchestrator(world).session("t") as session:
            draft = (await session.run_turn(model.asked("draft"), idempotency_key="1")).value
            answer = await session.pause_for_input({"draft": draft}, choices=("good", "bad"))
            return (await session.run_turn(model.asked(str(answer.choice)), idempotency_key="2")).value

    with pytest.raises(world.api.Suspended) as paused:
        await talk()
    await world.store.answer(paused.value.requests[0].id, "good", by="ana")
    assert await talk() == "answer 2 to good"
    assert model.prompts == ["draft", "good"]


async def test_a_webhook_that_comes_twice_with_its_request_id_as_key_is_handled_once(world: World) -> None:
    model = Model()

    async def webhook(request_id: str) -> Any:
        async with orchestrator(world).session("webhooks") as session:
            return (await session.run_turn(model.asked(request_id), idempotency_key=request_id)).value

    assert [await webhook(request) for request in ("a", "b", "a")] == [
        "answer 1 to a",
        "answer 2 to b",
        "answer 1 to a",
    ]


async def test_a_result_that_cannot_be_stored_can_be_logged_and_the_call_still_works(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[object] = []

    def unstorable() -> object:
        made.append(object())
        return made[-1]

    async with orchestrator(world, on_unstorable="warn").session("t") as session:
        with caplog.at_level(logging.WARNING, "holdfast"):
            for _ in range(2):  # the durability guarantee is lost
                assert (await session.run_turn(unstorable, idempotency_key="k")).value is made[-1]
        with pytest.raises(UnstorableValue):
            await session.run_turn(unstorable, idempotency_key="k", on_unstorable="raise")
    assert len(made) == 3
    assert [record.levelname for record in caplog.records if "is not stored" in record.message] == ["WARNING"] * 2


async def test_a_half_finished_turn_goes_on_within_itself(world: World) -> None:
    """Theirs checkpoints between turns alone."""
    model, lives = Model(), [1, 2]

    async def talk() -> Any:
        async with orchestrator(world).session("t") as session:

            async def turn() -> str:
                found = await session.step("search", model, "search")
                if lives.pop(0) == 1:
                    raise KeyboardInterrupt
                return f"read {found}"

            return (await session.run_turn(turn, idempotency_key="1")).value

    with pytest.raises(KeyboardInterrupt):
        await talk()
    assert await talk() == "read answer 1 to search"
    assert model.prompts == ["search"]


def test_the_store_in_memory_is_local_to_the_process_and_shared_by_its_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    store, model = sync.MemoryStore(), Model()

    def talk(number: int) -> None:
        with sync.Orchestrator("writer", "draft", store).session(f"t-{number % 4}") as session:
            session.run_turn(model.asked(str(number)), idempotency_key="k")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(talk, range(16)))
    assert len(model.prompts) == 4


def test_a_private_memory_database_is_scoped_to_one_store() -> None:
    model = Model()
    for _ in range(2):
        with sync.SQLiteStore(":memory:") as store, sync.Orchestrator("a", "b", store).session("t") as session:
            session.run_turn(model.asked("x"), idempotency_key="k")
    assert len(model.prompts) == 2


def test_the_sqlite_file_is_in_wal_mode_for_concurrent_readers(tmp_path: Path) -> None:
    with sync.SQLiteStore(tmp_path / "a.db") as store, sync.Orchestrator("a", "b", store).session("t") as session:
        session.run_turn(lambda: 1, idempotency_key="k")
        assert store.guarantee().details["journal_mode"] == "wal"
        with sync.SQLiteStore(tmp_path / "a.db") as reader:
            assert len(reader.history("t")) == 1


async def test_the_same_session_runs_on_every_kind_of_store(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        assert (await session.run_turn(lambda: {"any": ("exact", {1})}, idempotency_key="k")).value == {
            "any": ("exact", {1})
        }


async def test_a_key_is_a_replay_marker_scoped_to_one_thread(world: World) -> None:
    model = Model()
    for thread in ("user-42:essay", "user-43:essay"):
        async with orchestrator(world).session(thread) as session:
            await session.run_turn(model.asked(thread), idempotency_key="same")
    assert model.prompts == ["user-42:essay", "user-43:essay"]


async def test_what_is_changed_after_the_turn_is_not_changed_in_the_record(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        first = (await session.run_turn(lambda: {"list": [1]}, idempotency_key="k")).value
        first["list"].append(2)
        second = (await session.run_turn(lambda: None, idempotency_key="k")).value
        assert second == {"list": [1]}
        second["list"].append(3)
        assert session.turns[0].value == {"list": [1]}


async def test_the_listing_goes_as_far_back_as_one_asks(world: World) -> None:
    async with orchestrator(world).session("t") as session:
        for number in range(60):
            await session.run_turn(lambda: number, idempotency_key=str(number))  # noqa: B023  called at once
    page = await world.store.history("t", limit=10)
    assert [info.seq for info in page] == list(range(60, 50, -1))
    assert [info.metadata for info in await world.store.history("t", cursor=3)] == [
        {"turn": "1", "ms": 0},
        {"turn": "0", "ms": 0},
    ]


@pytest.mark.parametrize("count", [101, 1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_turn_is_too_far_back_to_be_replayed(count: int) -> None:
    """Theirs executes again what is more than 100 turns back."""
    store, model = sync.MemoryStore(), Model()
    for _ in range(2):
        with sync.Orchestrator("writer", "draft", store, max_turns=count).session("t") as session:
            for number in range(count):
                value, usage = session.run_turn(
                    model.asked(str(number)),
                    usage=UsageSnapshot(output_tokens=1),
                    idempotency_key=f"turn-{number}",
                )
                assert (value, usage.output_tokens) == (f"answer {number + 1} to {number}", 1)
    assert len(model.prompts) == count
    assert store.stats().rows < count + 10
    assert sync.Orchestrator("writer", "draft", store).summary("t").usage.output_tokens == count


async def test_sessions_work_without_a_thread_id_and_without_keys(world: World) -> None:
    model, threads = Model(), set[str]()
    for _ in range(2):
        async with orchestrator(world).session() as session:
            threads.add(session.thread_id)
            await session.run_turn(model.asked("same"))
            await session.run_turn(model.asked("same"), idempotency_key="k")
            assert not session.resumed
    assert len(threads) == 2
    assert len(model.prompts) == 4
