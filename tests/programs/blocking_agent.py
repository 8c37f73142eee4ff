"""An agent as typical programs have it, blocking: typed strictly, and run."""

from collections.abc import Callable, Iterator
from typing import Any

import holdfast.sync as holdfast
from holdfast.sync import Agent, FailurePolicy, RecoveryAction, SQLiteStore, Step

policy = FailurePolicy.from_dict({"external_fault": {"action": "rollback", "hint": "again"}, "default": "escalate"})
undone: list[str] = []


def cancel(what: str, *, idempotency_key: str) -> None:
    undone.append(f"{what} {len(idempotency_key)}")


def trip(
    task: str,
    *,
    record_step: Callable[[Step], holdfast.Receipt],
    record_compensator: Callable[..., Any],
    recovery: holdfast.RecoveryContext | None = None,
) -> str:
    if recovery is None:
        record_step(Step(action="book", error="full")).wait()
        record_compensator("cancel", "hotel")
        raise ConnectionError("full")
    return f"{task} {recovery.hint}"


def words(task: str) -> Iterator[str]:
    yield from task.split()


def main() -> None:
    with SQLiteStore("agents.db") as store:
        agent = Agent(trip, policy=policy, store=store, compensators={"cancel": cancel})
        assert agent.run("home", thread_id="t-1") == "home again"
        assert undone == ["hotel 32"]
        assert agent.summary("t-1").rollbacks == (0,)
        assert list(Agent(words, store=store).stream("what holds", thread_id="t-2")) == ["what", "holds"]
        suspended = Agent(trip, policy=RecoveryAction.SUSPEND, store=store, compensators={"cancel": cancel})
        outcome = suspended.start("home", thread_id="t-3")
        store.answer(outcome.requests[0].id, "retry")
        assert suspended.run("home", thread_id="t-3") == "home "


main()
