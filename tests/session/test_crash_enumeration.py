"""A session is killed at every point, and in pairs of points; it always ends the same."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import ModelPricing, UsageSnapshot, sync
from holdfast.history.entries import Noted
from holdfast.runs.ledger import Given, Ledger
from holdfast.stores.claim import Pending
from holdfast.stores.writer import Intent
from holdfast.testing import CrashReport, crash_everywhere
from kinds import ON_DISK, new_place
from payments import Outside
from rounds import points, rounds

PRICES = {"model-a": ModelPricing(3, 15)}
USED = UsageSnapshot(1000, 100, tool_calls=1)


outside = Outside()


def stream() -> Iterator[str]:
    yield from ("a", "b")


def told(session: sync.Session | holdfast.Session) -> list[Any]:
    """What must be the same however it was killed."""
    kept = [(turn.idempotency_key, turn.role, turn.value) for turn in session.turns if turn.error is None]
    return [kept, session.usage, session.cost_usd, session.summary().turn_count, session.role]


def blocking_talk(store: sync.Store) -> list[Any]:
    """A turn, one with an effect and a question within, a hand-over, a stream, and a budget that is used up."""
    limits: dict[str, Any] = {"max_turns": 4, "budget_tokens": 2500}
    with sync.Orchestrator("writer", "draft", store, pricing=PRICES, **limits).session("talk") as session:

        def act() -> list[Any]:
            paid = session.step("pay", outside.pay, 40, effect=True)
            return [paid, session.pause_for_input("sure?", choices=("yes", "no")).choice]

        session.run_turn(lambda: "draft", model="model-a", usage=USED, idempotency_key="1")
        session.run_turn(act, model="model-a", usage=USED, idempotency_key="2")
        session.hand_over("editor", "review")
        chunks = list(session.run_turn_stream(stream, idempotency_key="3"))
        with suppress(sync.BudgetExceeded):
            session.run_turn(lambda: "too much", usage=USED, idempotency_key="4")
        last = session.run_turn(lambda: "never", idempotency_key="4").value
        return [chunks, last, *told(session)]


async def awaitable_talk(store: holdfast.Store) -> list[Any]:
    """The same with parallel tools."""
    orchestrator = holdfast.Orchestrator("writer", "draft", store, pricing=PRICES, max_turns=3)
    async with orchestrator.session("talk") as session:

        async def act() -> list[Any]:
            tools = (session.step(name, str.upper, name) for name in ("maps", "news"))
            found = await asyncio.gather(*tools, session.step("pay", outside.pay, 40, effect=True))
            return [*found, (await session.pause_for_input("sure?")).value]

        await session.run_turn(lambda: "draft", model="model-a", usage=USED, idempotency_key="1")
        await session.run_turn(act, model="model-a", usage=USED, idempotency_key="2")
        await session.hand_over("editor", "review")
        chunks = [chunk async for chunk in session.run_turn_stream(stream, idempotency_key="3")]
        return [chunks, *told(session)]


TALKS: dict[str, Callable[..., Any]] = {"blocking": blocking_talk, "awaitable": awaitable_talk}


def answer(request: holdfast.Request) -> Any:
    return "yes" if request.choices else "sure"


def torture(talk: Callable[..., Any], *, pairs: int | None, **options: Any) -> CrashReport:
    return crash_everywhere(talk, answer=answer, before=outside.clear, pairs=pairs, **options)


@pytest.fixture(params=TALKS)
def talk(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return TALKS[request.param]


@pytest.mark.faults
def test_a_session_ends_the_same_wherever_it_is_killed(talk: Callable[..., Any]) -> None:
    report = torture(talk, pairs=rounds(3, 40), after=outside.check, max_points=points(30))
    assert {"turn=1", "turn=2", "turn=3"} <= {key for _, key in report.executions}
    assert len(report.points) > 30


@pytest.mark.faults
@pytest.mark.parametrize("kind", ON_DISK)
def test_a_session_on_disk_ends_the_same_wherever_it_is_killed(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"pairs": rounds(0, 5), "max_points": points(12)}
    torture(blocking_talk, after=outside.check, place=lambda: new_place(kind, tmp_path), **options)


@pytest.mark.faults
def test_a_turn_that_is_acknowledged_before_it_is_stored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail."""
    write = Ledger.write

    def careless(self: Ledger, intent: Intent, given: Given) -> Pending:
        entries = given() if callable(given) else given
        if not any(isinstance(each, Noted) and each.kind == "turn" and not each.error for each in entries):
            return write(self, intent, entries)
        pending = write(self, intent, ())
        for each in entries:
            self.journal.add(each)
        return pending

    monkeypatch.setattr(Ledger, "write", careless)
    with pytest.raises(AssertionError, match=r"step 'turn=\d' ran again after it was acknowledged"):
        torture(blocking_talk, pairs=0, accept=Exception)
