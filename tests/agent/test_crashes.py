"""An agent is killed wherever it touches the world, and for real; it always ends the same, and nothing is lost."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import RecoveryAction, Step, sync
from holdfast.runs import steps
from holdfast.runtimes.agent import attempts, rollback
from holdfast.testing import crash_everywhere
from rounds import rounds

pytestmark = pytest.mark.faults

CHILD = Path(__file__).with_name("mortal.py")


class Outside:
    """A service that honours keys: what was paid, and what was paid back."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.payments: dict[str, int] = {}
        self.refunds: dict[str, int] = {}

    def pay(self, amount: int, *, idempotency_key: str) -> int:
        return self.payments.setdefault(idempotency_key, amount)

    def refund(self, amount: int, *, idempotency_key: str) -> None:
        self.refunds.setdefault(idempotency_key, amount)

    def check(self) -> None:
        assert (list(self.payments.values()), list(self.refunds.values())) == ([40, 40], [40])


outside = Outside()


def has_failed(recovery: Any) -> bool:
    return recovery is not None and recovery.failure is not None


def blocking_trip(store: sync.Store) -> Any:
    """Plans, pays, fails, is rolled back to its plan and refunded; then pays again, asks, and is done."""

    def to_the_plan(context: holdfast.FailureContext) -> RecoveryAction:
        infos = store.history(context.thread_id)
        return RecoveryAction.ROLLBACK(checkpoint_id=next(i.id for i in infos if i.metadata.get("step") == "plan"))

    def trip(
        task: str, *, record_step: Any, update_state: Any, restored_state: Any = None, recovery: Any = None
    ) -> Any:
        state, run = restored_state or {}, sync.current()
        if "plan" not in state:
            update_state({"plan": task})
            record_step(Step(action="plan"))
        paid = run.step("pay", outside.pay, 40, effect=True)
        if "booked" not in state:
            update_state({"booked": paid})
            record_step(Step(action="book", tool_output=paid), compensator=("refund", paid))
        if not has_failed(recovery):
            raise ConnectionError("no seat left")
        return [paid, sync.ask("seat", {"task": task}, choices=("window", "aisle")).choice]

    compensators = {"refund": outside.refund}
    return sync.Agent(trip, policy=to_the_plan, store=store, compensators=compensators).run("kelp", thread_id="trip")


async def awaitable_trip(store: holdfast.Store) -> Any:
    """The same, awaited."""

    async def to_the_plan(context: holdfast.FailureContext) -> RecoveryAction:
        infos = await store.history(context.thread_id)
        return RecoveryAction.ROLLBACK(checkpoint_id=next(i.id for i in infos if i.metadata.get("step") == "plan"))

    async def trip(
        task: str, *, record_step: Any, update_state: Any, restored_state: Any = None, recovery: Any = None
    ) -> Any:
        state, run = restored_state or {}, holdfast.current()
        if "plan" not in state:
            update_state({"plan": task})
            record_step(Step(action="plan"))
        paid = await run.step("pay", outside.pay, 40, effect=True)
        if "booked" not in state:
            update_state({"booked": paid})
            record_step(Step(action="book", tool_output=paid), compensator=("refund", paid))
        if not has_failed(recovery):
            raise ConnectionError("no seat left")
        return [paid, (await holdfast.ask("seat", {"task": task}, choices=("window", "aisle"))).choice]

    compensators = {"refund": outside.refund}
    made = holdfast.Agent(trip, policy=to_the_plan, store=store, compensators=compensators)
    return await made.run("kelp", thread_id="trip")


@pytest.mark.parametrize("trip", [blocking_trip, awaitable_trip])
def test_an_agent_ends_the_same_wherever_it_is_killed(trip: Callable[..., Any]) -> None:
    report = crash_everywhere(trip, before=outside.clear, after=outside.check, pairs=rounds(3, 30))
    assert report.result == [40, "window"]
    assert len(report.points) > 20


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (rollback, "_undone", lambda _memory, _rollbacks, _kept: []),
        (steps, "idempotency_key_of", lambda run, key: f"{run.thread_id}{key}"),
        (attempts.Attempts, "begin", lambda _self: _nothing()),
    ],
    ids=["no compensation", "one key for ever", "a decision is not carried out by the next process"],
)
def test_an_engine_that_is_wrong_on_purpose_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, broken: Callable[..., Any]
) -> None:
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(AssertionError):
        crash_everywhere(blocking_trip, before=outside.clear, after=outside.check, pairs=0, limit=1)


async def _nothing() -> None:
    """What a broken engine does."""


# Real processes


def killed(tmp_path: Path, scene: str) -> int:
    """Play a scene of `mortal.py` in a process that kills itself; how many steps it had recorded by then."""
    child = subprocess.run(
        [sys.executable, str(CHILD), scene, str(tmp_path / "agents.db")], capture_output=True, text=True, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    return int(child.stdout)


@pytest.mark.parametrize("scene", ["busy", "polite", "plain", "blocking"])
def test_of_n_recorded_steps_at_least_n_minus_1_survive_a_kill(tmp_path: Path, scene: str) -> None:
    count = killed(tmp_path, scene)
    with sync.open(tmp_path / "agents.db") as store:
        latest = store.latest("t")
        assert latest is not None
        assert count - 1 <= len(latest.steps) <= count
        assert [step.action for step in latest.steps] == [f"step {number}" for number in range(len(latest.steps))]


def test_all_steps_whose_receipts_were_awaited_survive_a_kill(tmp_path: Path) -> None:
    count = killed(tmp_path, "awaited")
    with sync.open(tmp_path / "agents.db") as store:
        assert len(store.latest("t").steps) == count  # type: ignore[union-attr]


def test_a_killed_agent_goes_on_in_another_process(tmp_path: Path) -> None:
    count = killed(tmp_path, "awaited")

    def worker(_task: str, *, recovery: Any) -> tuple[int, int]:
        return len(recovery.steps), recovery.state["n"]

    worker.__module__, worker.__qualname__ = "mortal", "awaited"
    with sync.open(tmp_path / "agents.db") as store:
        assert sync.Agent(worker, store=store).run("task", thread_id="t") == (count, count - 1)


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_400_steps_of_1_kb_take_no_more_than_1_mb(tmp_path: Path, kind: str) -> None:
    async def scene() -> None:
        store = holdfast.open(tmp_path / "agents.db" if kind == "sqlite" else f"file:{tmp_path / 'agents'}")

        async def worker(_task: str, *, record_step: Any, update_state: Any) -> None:
            for number in range(400):
                record_step(Step(action="work", tool_output=os.urandom(500).hex()))
                update_state({"n": number})

        await holdfast.Agent(worker, store=store).run("t", thread_id="t")
        assert len((await store.latest("t")).steps) == 400  # type: ignore[union-attr]
        await store.close()

    asyncio.run(scene())
    stored = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert 400_000 < stored <= 1 << 20
