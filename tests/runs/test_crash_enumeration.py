"""An agent that does all a run can do is killed at every point, and in pairs of points; it always ends the same.

The same enumeration fails over engines that are wrong on purpose.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import StepInDoubt, sync
from holdfast.history import journal
from holdfast.history.cells import Document
from holdfast.history.entries import (
    Answered,
    AnyEntry,
    Begun,
    Marked,
    StepDone,
    message_key,
    read_entries,
    unpack_answer,
)
from holdfast.ports import Ports
from holdfast.records.rows import Swap
from holdfast.runs import asking, scope, steps
from holdfast.runs.block import RunBlock
from holdfast.runs.ledger import Ledger
from holdfast.runs.run import Run
from holdfast.stores.memory import MemoryBackend
from holdfast.stores.writer import Intent
from holdfast.testing import CrashReport, Scenario, crash_everywhere, enumerate_crashes
from holdfast.testing.places import MemoryPlace
from kinds import ON_DISK, new_place, parameters
from rounds import points, rounds
from runs.crash_scenes import (
    answer,
    awaitable_agent,
    block_that_asks_in_doubt,
    block_with_keys,
    blocking_agent,
    outside,
    save_then_run,
    short_block,
    steps_within_steps,
    task_group,
    two_threads,
)

pytestmark = pytest.mark.faults

PAIRS = rounds(3, 40)
SAMPLE = 40
AGENTS: dict[str, Callable[..., Any]] = {"blocking": blocking_agent, "awaitable": awaitable_agent}


@pytest.fixture(params=parameters(*AGENTS, quick={"blocking"}, rare={"awaitable"}))
def agent(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Both agents, one after the other: what is wrong on purpose is beneath both worlds alike."""
    return AGENTS[request.param]


def torture(function: Callable[..., Any], *args: Any, pairs: int | None = PAIRS, **options: Any) -> CrashReport:
    return crash_everywhere(function, *args, answer=answer, before=outside.clear, pairs=pairs, **options)


@pytest.mark.parametrize("world", AGENTS)
def test_an_agent_ends_the_same_wherever_it_is_killed(world: str) -> None:
    report = torture(AGENTS[world], "What holds kelp?", after=outside.check, max_points=points(SAMPLE))
    assert len(report.points) > 100
    assert report.point_count >= SAMPLE
    assert report.pair_count == min(PAIRS, report.possible_pair_count)
    named = {key.partition(":")[0] for _, key in report.executions}
    assert {"plan", "search", "pay", "send"} <= named
    assert any(point.startswith("after a sleep") for point in report.points)


def test_a_block_with_keys_ends_the_same_wherever_it_is_killed() -> None:
    report = torture(block_with_keys)
    assert report.result[0] == [32, 40, "who please"]
    assert report.result[1] == {"messages": ["hello", "who please"], "paid": 40}


@pytest.mark.parametrize("scene", [save_then_run, two_threads, task_group, steps_within_steps])
def test_a_scene_ends_the_same_wherever_it_is_killed(scene: Callable[..., Any]) -> None:
    assert torture(scene, pairs=rounds(2, 20), max_points=points(SAMPLE)).ok


def test_every_pair_of_crashes_in_a_short_block() -> None:
    report = torture(short_block, pairs=None, max_points=points(10))
    assert report.result == [32, 40, {"messages": ["hello"]}]
    assert report.pair_count == report.possible_pair_count > 90


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_block_on_disk_ends_the_same_wherever_it_is_killed(kind: str, tmp_path: Path) -> None:
    torture(short_block, pairs=rounds(0, 5), place=lambda: new_place(kind, tmp_path), max_points=points(12))


def test_an_effect_without_a_key_is_done_once_or_in_doubt() -> None:
    def careless(store: sync.Store) -> str:
        with store.run("careless") as run:
            return run.step("send", outside.send, "refund", effect=True)

    def once() -> None:
        assert len(outside.parcels) <= 1

    torture(careless, pairs=None, accept=StepInDoubt, after=once)
    with pytest.raises(AssertionError, match="StepInDoubt"):
        torture(careless, pairs=0)


def test_who_is_asked_in_doubt_decides() -> None:
    def decide(request: holdfast.Request) -> str:
        return "done" if outside.parcels else "retry"

    report = enumerate_crashes(
        Scenario(function=block_that_asks_in_doubt, answer=decide, before=outside.clear), pairs=None
    )
    assert {failure.problem for failure in report.failures if "parcel" in failure.problem} == set()
    assert not [failure for failure in report.failures if " ran " in failure.problem]


def test_a_recovery_that_is_killed_is_recovered_from() -> None:
    def recovering(store: sync.Store) -> Any:
        durable = sync.durable(store=store)(_short)
        status = durable.start("job", 20).status
        while status != "complete":
            for request in store.requests():
                store.answer(request.id, "approve")
            store.recover()
            status = store.outcome("job").status
        return durable.resume("job")

    assert torture(recovering, pairs=rounds(5, 60)).result == [21, True]


def _short(number: int) -> list[Any]:
    following = sync.current().step("next", lambda: number + 1)
    return [following, sync.confirm("go on", deadline=3600, default=True)]


def one_parcel() -> None:
    assert len(outside.parcels) == 1, f"sent {outside.parcels}"


# Engines that are wrong on purpose


def is_caught(agent: Callable[..., Any], problem: str, limit: int = 10, **options: Any) -> None:
    with pytest.raises(AssertionError) as caught:
        torture(agent, "What holds kelp?", fork=False, pairs=0, limit=limit, **options)
    lines = str(caught.value).splitlines()
    assert any(problem in line for line in lines[1:]), lines[:12]


def test_an_intent_that_is_not_stored_is_caught(agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    note = Ledger.note

    async def careless(self: Ledger, ports: Ports, *entries: AnyEntry) -> None:
        if not any(isinstance(entry, Begun) for entry in entries):
            await note(self, ports, *entries)

    monkeypatch.setattr(Ledger, "note", careless)
    is_caught(agent, "effect 'pay' ran before its intent was stored")
    is_caught(agent, "outside: sent ['refund', 'refund']", limit=300, after=one_parcel)


class Forgetful(MemoryPlace):
    """Loses the last acknowledged write when the process dies."""

    class Backend(MemoryBackend):
        before: dict[bytes, Any] | None = None

        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            self.before = deepcopy(self._threads)
            return super().swap(swaps, wait=wait)

        def close(self) -> None:
            """The place keeps it."""

    def __init__(self) -> None:
        self.forgetful = self.Backend()
        super().__init__(self.forgetful)

    def crashed(self) -> "Forgetful":
        if self.forgetful.before is not None:
            self.forgetful._threads, self.forgetful.before = self.forgetful.before, None
        return self


def test_a_store_that_loses_the_last_write_is_caught(agent: Callable[..., Any]) -> None:
    is_caught(agent, "ran again after it was acknowledged", place=Forgetful)


def test_an_acknowledgement_before_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(self: Ledger, ports: Ports, intent: Intent, *entries: AnyEntry) -> Any:
        pending = self.write(intent, entries)
        ports.dispatch(pending, self.claim.committer)
        return pending

    monkeypatch.setattr(Ledger, "commit", hasty)
    is_caught(awaitable_agent, "ran again after it was acknowledged", limit=100)


def test_a_key_that_changes_with_each_life_is_caught(
    agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (steps, scope):
        monkeypatch.setattr(module, "idempotency_key_of", lambda run, key: f"{run._ledger.claim.token}-{key}")
    is_caught(agent, "ran with 2 different idempotency keys")


def test_finished_steps_that_are_executed_again_are_caught(
    agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = steps.known_memo

    def forgetful(run: Run, key: str, fingerprint: bytes) -> Any:
        memo = known(run, key, fingerprint)
        return None if isinstance(memo, StepDone) else memo

    monkeypatch.setattr(steps, "known_memo", forgetful)
    is_caught(agent, "step 'search' ran again after it was acknowledged")


def test_an_answer_that_is_consumed_twice_is_caught(agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Keeping(MemoryBackend):
        def swap(self, swaps: Sequence[Swap], *, wait: bool = True) -> list[bool]:
            return super().swap([replace(swap, consumed=()) for swap in swaps], wait=wait)

        def close(self) -> None:
            """The place keeps it."""

    def unanswered(document: Document) -> list[AnyEntry]:
        return [entry for entry in read_entries(document) if not isinstance(entry, Answered)]

    monkeypatch.setattr(journal, "read_entries", unanswered)
    is_caught(agent, "the journal has Answered 1 ", place=lambda: MemoryPlace(Keeping()))


def test_an_answer_that_is_taken_before_it_is_written_is_caught(
    agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_two_writes(run: Run, number: int) -> Answered | None:
        if number in run._ledger.journal.answers:
            return run._ledger.journal.answers[number]
        message = message_key(number)
        inbox = await run._ports.perform(run._reader.backend.inbox, run._ledger.claim.thread)
        if message not in inbox:
            return None
        await run._ledger.commit(run._ports, Intent(journal=True, consumed=(message,)))
        answered = unpack_answer(run._ledger.claim.log.binding, number, inbox[message])
        await run._ledger.note(run._ports, answered)
        return answered

    monkeypatch.setattr(asking, "collect", in_two_writes)
    is_caught(agent, "took 2 answers")


def test_an_append_that_is_not_marked_is_caught(agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Ledger._filled

    def unmarked(self: Ledger, intent: Intent, entries: tuple[AnyEntry, ...]) -> Any:
        return filled(self, intent, tuple(entry for entry in entries if not isinstance(entry, Marked)))

    monkeypatch.setattr(Ledger, "_filled", unmarked)
    is_caught(agent, "state of 'ticket'")


def test_a_lease_that_is_left_behind_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def kept(self: RunBlock, ledger: Ledger, status: str, *_: object) -> None:
        ledger.status = status

    monkeypatch.setattr(RunBlock, "_release", kept)
    monkeypatch.setattr("holdfast.testing.crash_ports.Life.outlives", lambda life, owner: True)
    is_caught(blocking_agent, "is still held by life-1")
